#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bugs that no person chose: changes that universalmutator (PyPI) makes to the files
with safety rules, of which a sample is tried.

  generated.py BUILD [--count N] [--seed N] [--histories N] [--jobs N] [--only FILE...]

Each change is compiled alone and linked with the library's other objects. It is found
by the unit tests of the rooms, or by histories of the explorer. One that gives the
same machine code changes nothing; one that does not compile is none. What is left
SURVIVES: a hole in the tests, or a change that makes no difference to anything that is
promised. survivors.md says of each which.

The build is a release or debug build without sanitizers; `pip install
universalmutator` first (PYTHONPATH may say where).
"""
import argparse
import concurrent.futures
import difflib
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

FILES = (
    "pool/fence.c", "pool/context_fence.c", "pool/reclaim.c", "pool/cache.c",
    "pool/timeline.h", "pool/private.c", "capture/graph_pool.c", "capture/order.c",
    "capture/route.c", "capture/tracker.c", "capture/records.c", "interpose/contexts.c",
    "interpose/hooks_memory.c", "interpose/hooks_capture.c", "interpose/hooks_context.c",
    "interpose/hooks_launch.c", "interpose/fence_all.c",
)
ROOMS = {"pool": "pool/libpool.a", "capture": "capture/libcapture.a",
         "interpose": "interpose/libinterpose.a"}
MUTATE = ("import sys; from universalmutator.genmutants import main; "
          "sys.argv = ['mutate', *sys.argv[1:]]; main()")
TIMEOUT_S = 120


def run(command, cwd, timeout=TIMEOUT_S, env=None):
    """(exit code, output); -1: it took too long"""
    try:
        done = subprocess.run(command, cwd=cwd, timeout=timeout, env=env, text=True,
                              errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, shell=isinstance(command, str))
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return -1, "hangs"


class Build:
    def __init__(self, path):
        self.path = path.resolve()
        self.root = pathlib.Path(__file__).resolve().parents[3]
        tests = (self.path / "tests" / "unit").glob("test_*")
        self.unit = sorted(t.name for t in tests if t.is_file() and os.access(t, os.X_OK))

    def command(self, target):
        return run(["ninja", "-t", "commands", target], self.path)[1].strip().split("\n")[-1]

    def compiling(self, source):
        """The command for a source, and its object; of a header, of the first that
        includes it."""
        if source.endswith(".h"):
            source = source.replace("timeline.h", "fence.c")
        room, name = source.split("/")
        archive = ROOMS[room]
        target = f"{archive}.p/{name}.o"
        return self.command(target), target, self.root / source


def mutants_of(source, root, place):
    """Changed copies of a source."""
    place.mkdir(parents=True)
    run([sys.executable, "-c", MUTATE, str(root / source), "c", "--noCheck",
         "--mutantDir", str(place)], place, timeout=600)
    return sorted(place.glob("*.mutant.*"))


def change_of(source, root, mutant):
    """line, before, after"""
    old = (root / source).read_text().split("\n")
    new = mutant.read_text().split("\n")
    lines = [line for line in difflib.unified_diff(old, new, n=0, lineterm="")][2:]
    number = re.search(r"-(\d+)", lines[0]).group(1)
    pick = lambda sign: " ".join(x[1:].strip() for x in lines[1:] if x[0] == sign)
    return int(number), pick("-"), pick("+")


class Trial:
    """One changed source: what becomes of it."""

    def __init__(self, build, source, mutant, histories):
        self.build, self.source, self.mutant = build, source, mutant
        self.histories = histories
        self.dir = mutant.parent / (mutant.name + ".d")
        self.dir.mkdir()

    def compiled(self, source, name):
        command, target, original = self.build.compiling(self.source)
        if self.source.endswith(".h"):
            text = original.read_text().replace(
                f'"{os.path.basename(self.source)}"', f'"{source}"')
            wrapped = self.dir / (name + ".c")
            wrapped.write_text(text)
            source = wrapped
        out = self.dir / (name + ".o")
        command = re.sub(r" -o \S+ -c \S+", "", command)
        command = re.sub(r" -M\S+( \S+\.[od])*", "", command)
        command = f"{command} -g0 -w -iquote {original.parent} -o {out} -c {source}"
        return out if run(command, self.build.path)[0] == 0 else None

    def objects(self, object_file):
        """The room, and its objects with the changed one among them."""
        room = self.source.split("/")[0]
        changed = os.path.basename(self.build.compiling(self.source)[1])
        members = run(["ar", "t", ROOMS[room]], self.build.path)[1].split()
        return room, " ".join(str(object_file) if os.path.basename(m) == changed else m
                              for m in members)

    def linked(self, target, room, objects):
        out = self.dir / os.path.basename(target)
        command = self.build.command(target)
        if f" {ROOMS[room]}" not in command:
            return None
        command = command.replace(f" {ROOMS[room]}", f" {objects}")
        command = re.sub(r" -o \S+", f" -o {out}", command, count=1)
        return out if run(command, self.build.path)[0] == 0 else None

    def by_units(self, room, objects):
        for name in self.build.unit:
            program = self.linked(f"tests/unit/{name}", room, objects)
            # Twice: some of them look at the clock, and the machine may be busy.
            if program and name != "test_threads" and all(
                    run([str(program)], self.build.path)[0] for _ in range(2)):
                return f"unit/{name.removeprefix('test_')}"
        return None

    def by_histories(self, room, objects):
        library = self.linked("tests/explore/libgcpool-explore.so", room, objects)
        if not library:
            return "does not link"
        code, said = run(
            [str(self.build.path / "tests/explore/explore"), "--library", str(library),
             "--from", "1", "--count", str(self.histories)],
            self.build.path, timeout=400, env={**os.environ, "MALLOC_PERTURB_": "0"})
        return f"explore: {said.strip()[-80:]}" if code else None

    def control(self):
        """The library as it is, linked in the same way: nothing may be found."""
        room, objects = self.objects(self.compiled(self.build.root / self.source, "before"))
        return self.by_units(room, objects) or self.by_histories(room, objects)

    def verdict(self):
        before = self.compiled(self.build.root / self.source, "before")
        after = self.compiled(self.mutant, "after")
        if not after:
            return "does not compile"
        if not before or before.read_bytes() == after.read_bytes():
            return "same code"
        room, objects = self.objects(after)
        return (self.by_units(room, objects) or self.by_histories(room, objects)
                or "SURVIVES")


def judge(plan):
    trial, (number, before, after) = plan
    verdict = trial.verdict()
    print(f"{trial.source}:{number}: {before} => {after}: {verdict}", flush=True)
    return verdict


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=FILES)
    arguments = parser.parse_args()
    build, chance = Build(arguments.build), random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as temporary:
        plans = []
        for source in arguments.only:
            place = pathlib.Path(temporary) / source
            made = mutants_of(source, build.root, place)
            share = max(1, arguments.count // len(arguments.only))
            for mutant in chance.sample(made, min(share, len(made))):
                change = change_of(source, build.root, mutant)
                plans.append((Trial(build, source, mutant, arguments.histories), change))
            print(f"{source}: {len(made)} changes", flush=True)
        wrong = plans[0][0].control() if plans else None
        if wrong:
            sys.exit(f"in the library as it is: {wrong}")
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            verdicts = list(pool.map(judge, plans))
    left = sum(v == "SURVIVES" for v in verdicts)
    same = sum(v in ("same code", "does not compile") for v in verdicts)
    print(f"{len(verdicts)} changes tried: {same} change no code or are none, "
          f"{len(verdicts) - left - same} found, {left} survive")


if __name__ == "__main__":
    main()
