#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bugs that no person chose: changes that universalmutator (PyPI) makes to the files
with safety rules, of which a sample is tried.

  generated.py BUILD [--count N] [--seed N] [--histories N] [--jobs N] [--minutes N]
               [--only FILE...] [--also TEST...]

Each change is compiled alone and linked with the library's other objects. It is found
by the unit tests of its room, by histories of the explorer, or by the tests of --also
(preload/captures_static, as mutants.py names them). One that gives the same machine
code changes nothing; one that does not compile is none; neither counts in N. What is
left SURVIVES: a hole in the tests, or a change that makes no difference to anything
that is promised. survivors.md says of each which.

The files take turns, each with a line of its own that was not changed yet, so that a
run that ends early (--minutes) has tried all of them.

The build is a release or debug build without sanitizers; `pip install
universalmutator` first (PYTHONPATH may say where).
"""
import argparse
import concurrent.futures
import functools
import itertools
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import mutants

FILES = (
    "pool/timeline/fence.c", "pool/timeline/context_fence.c", "pool/reclaim/reclaim.c", "pool/cache/cache.c",
    "pool/timeline/timeline.h", "pool/graphs/private.c", "pool/graphs/lane.c",
    "pool/graphs/lane_move.c", "pool/space/replace.c", "pool/pinned/pinned_fence.c",
    "pool/graphs/checkpoint.c", "pool/graphs/lane_work.c",
    "pool/timeline/window.c", "pool/timeline/tight.c", "pool/timeline/quota.c",
    "pool/timeline/pin.c", "pool/space/vmm.c", "pool/space/vmm_space.c",
    "pool/space/segment.c", "pool/space/handle.c", "pool/space/spare.c",
    "pool/reclaim/grow.c", "pool/reclaim/purge.c", "pool/reclaim/maintain.c",
    "pool/reclaim/reclaimable.c", "pool/device/miss.c", "pool/device/export.c",
    "pool/device/stream_alloc.c", "pool/device/pools.c", "pool/device/alloc.c",
    "pool/pinned/pinned.c", "pool/pinned/pinned_bucket.c", "pool/pinned/pinned_set.c",
    "pool/pinned/pinned_reclaim.c", "pool/cache/heap.c", "pool/cache/depot.c",
    "pool/cache/take.c", "pool/cache/stream_cache.c", "pool/cache/stream_heap.c",
    "pool/heap/block.c", "pool/heap/slab.c",
    "capture/order.c", "capture/reach.c", "capture/graph_pool.c",
    "capture/graph_checkpoint.c", "capture/route.c", "capture/launch.c",
    "capture/share.c", "capture/taken.c", "capture/track.c", "capture/tracker.c", "capture/records.c",
    "capture/holders.c", "capture/holder_books.c", "capture/holding.c", "capture/waiting.c",
    "capture/relaunch.c", "capture/graph_memory.c",
    "interpose/cuda/contexts.c", "interpose/process/context_observers.c", "interpose/cuda/ctx_scope.c",
    "interpose/cuda/fence_all.c", "interpose/process/cuda_backend.c",
    "interpose/cuda/cuda_capture.c", "interpose/cuda/stream_fences.c", "interpose/process/stream_refs.c",
    "interpose/hooks/hooks_memory.c", "interpose/hooks/hooks_capture.c", "interpose/hooks/hooks_context.c",
    "interpose/hooks/hooks_graph.c", "interpose/hooks/hooks_launch.c", "interpose/cuda/submissions.c",
    "interpose/hooks/hooks_async.c", "interpose/hooks/hooks_pinned.c", "interpose/cuda/unknown_calls.c",
    "interpose/hooks/ipc.c", "interpose/ipc/ipc_opened.c", "interpose/ipc/ipc_exports.c",
    "interpose/ipc/ipc_imports.c",
    "interpose/ipc/ipc_server.c", "interpose/ipc/ipc_wire.c",
    "interpose/cuda/async_pools.c", "interpose/cuda/cuda_vmm.c", "interpose/cuda/known_calls.c",
    "interpose/cuda/resolve.c", "interpose/cuda/third_party_dma.c",
    "interpose/cuda/foreign_work.c", "interpose/hooks/hooks_copy.c",
    "interpose/hooks/hooks_submit.c",
    "interpose/process/process_life.c", "interpose/process/calling_thread.c",
    "interpose/hooks/pointer_queries.c", "interpose/hooks/hooks_runtime.c",
    "interpose/hooks/handles.c", "interpose/hooks/frameworks.c", "interpose/hooks/exports.c",
    "interpose/hooks/dlsym.c", "interpose/hooks/getprocaddress.c",
    "interpose/handles/handles_list.c", "interpose/handles/handles_library.c",
)
ROOMS = {"pool": "pool/libpool.a", "capture": "capture/libcapture.a",
         "interpose": "interpose/libinterpose.a"}
# The unit tests that call capture/.
CAPTURE_UNITS = ("capture", "complete", "events", "holders", "many_events", "pinned_capture",
                 "relaunch", "rest", "reuse", "route", "share", "share_handles",
                 "share_kept", "share_marked", "share_own", "share_pools", "shortage")
MUTATE = ("import sys; from universalmutator.genmutants import main; "
          "sys.argv = ['mutate', *sys.argv[1:]]; main()")
NO_CHANGE = ("same code", "does not compile")
TIMEOUT_S = 15
PATIENT_S = 90  # for a test that is tried once more


def run(command, cwd, timeout=TIMEOUT_S, env=None):
    """(exit code, output); -1: it took too long"""
    try:
        done = subprocess.run(command, cwd=cwd, timeout=timeout, env=env, text=True,
                              errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, shell=isinstance(command, str))
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return -1, "hangs"


def object_of(source):
    """As meson names it: the folders of a room are joined to the file's name."""
    room, _, name = source.partition("/")
    return f"{ROOMS[room]}.p/{name.replace('/', '_')}.o"


class Build:
    def __init__(self, path):
        self.path = path.resolve()
        self.root = pathlib.Path(__file__).resolve().parents[3]
        tests = (self.path / "tests" / "unit").glob("test_*")
        self.unit = sorted(t.name for t in tests if t.is_file() and os.access(t, os.X_OK))
        self.trials = mutants.Trials(path)

    @functools.lru_cache(maxsize=None)
    def command(self, target):
        return run(["ninja", "-t", "commands", target], self.path)[1].strip().split("\n")[-1]

    def compiling(self, source):
        """The command for a source, and its object; of a header, of the first that
        includes it."""
        if source.endswith(".h"):
            source = source.replace("timeline.h", "fence.c")
        target = object_of(source)
        return self.command(target), target, self.root / source


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def mutants_of(source, root, place, chance):
    """Changed copies of a source, in an order by chance: first one of each line."""
    place.mkdir(parents=True)
    run([sys.executable, "-c", MUTATE, str(root / source), "c", "--noCheck",
         "--mutantDir", str(place)], place, timeout=600)
    made, turns = sorted(place.glob("*.mutant.*")), {}
    chance.shuffle(made)
    code, ordered = without_comments((root / source).read_text()), []
    for mutant in made:
        if without_comments(mutant.read_text()) == code:
            continue
        change = change_of(source, root, mutant)
        turns[change[0]] = turns.get(change[0], -1) + 1
        ordered.append((turns[change[0]], mutant, change))
    return [(mutant, change) for _, mutant, change in sorted(ordered, key=lambda x: x[0])]


def change_of(source, root, mutant):
    """line, before, after; changes are of one line"""
    old = (root / source).read_text().split("\n")
    new = mutant.read_text().split("\n")
    number = next((i for i, (x, y) in enumerate(zip(old, new)) if x != y), len(new) - 1)
    after = new[number:number + 1 + len(new) - len(old)]
    return number + 1, old[number].strip(), " ".join(line.strip() for line in after)


class Trial:
    """One changed source: what becomes of it."""

    def __init__(self, build, source, mutant, histories, also):
        self.build, self.source, self.mutant = build, source, mutant
        self.histories, self.also = histories, also
        self.dir = mutant.parent / (mutant.name + ".d")
        self.dir.mkdir()

    def compiled(self, source, name):
        """The object of a copy that has the original's name: objects say how their
        sources are called, and are compared."""
        command, target, original = self.build.compiling(self.source)
        place = self.dir / name
        place.mkdir()
        copy = place / os.path.basename(self.source)
        shutil.copyfile(source, copy)
        if self.source.endswith(".h"):
            text = original.read_text().replace(f'"{copy.name}"', f'"{copy}"')
            copy = place / original.name
            copy.write_text(text)
        out = self.dir / (name + ".o")
        command = re.sub(r" -o \S+ -c \S+", "", command)
        command = re.sub(r" -M\S+( \S+\.[od])*", "", command)
        command = (f"{command} -g0 -w -fmacro-prefix-map={place}/= -iquote {original.parent}"
                   f" -o {out} -c {copy}")
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

    def units(self, room):
        if room == "interpose":
            return []
        if room == "capture":
            return [f"test_{name}" for name in CAPTURE_UNITS]
        return [name for name in self.build.unit if name != "test_threads"]

    def by_units(self, room, objects):
        for name in self.units(room):
            program = self.linked(f"tests/unit/{name}", room, objects)
            # Twice: some of them look at the clock, and the machine may be busy.
            if program and all(run([str(program)], self.build.path, timeout)[0]
                               for timeout in (TIMEOUT_S, PATIENT_S)):
                return f"unit/{name.removeprefix('test_')}"
        return None

    def by_histories(self, room, objects):
        self.library = self.linked("tests/explore/libgcpool-explore.so", room, objects)
        if not self.library:
            return "does not link"
        code, said = run(
            [str(self.build.path / "tests/explore/explore"), "--library",
             str(self.library), "--from", "1", "--count", str(self.histories),
             "--seconds", str(mutants.HANG_S)],
            self.build.path, timeout=400, env={**os.environ, "MALLOC_PERTURB_": "0"})
        if code == mutants.EXPLORER_FAILS:
            return "explore cannot run: " + said.strip()[-80:]
        return f"explore: {mutants.what_it_said(said)[:80]}" if code else None

    def by_others(self):
        """The tests of --also, with this library in the place of the explorer's."""
        self.build.trials.product = lambda name, test: name
        for test in self.also:
            verdict, _, _ = self.build.trials.run(str(self.library), test, 0)
            if verdict == "FOUND":
                return test
        return None

    def looked_for(self, objects_of):
        room, objects = self.objects(objects_of)
        return (self.by_units(room, objects) or self.by_histories(room, objects)
                or self.by_others())

    def control(self):
        """The library as it is, linked in the same way: nothing may be found."""
        return self.looked_for(self.compiled(self.build.root / self.source, "before"))

    def verdict(self):
        before = self.compiled(self.build.root / self.source, "before")
        after = self.compiled(self.mutant, "after")
        if not after:
            return "does not compile"
        if not before or before.read_bytes() == after.read_bytes():
            return "same code"
        return self.looked_for(after) or "SURVIVES"


class Sample:
    """Changes from all files in turn, until so many were tried that change the code."""

    def __init__(self, queues, count, minutes):
        self.plans = itertools.chain.from_iterable(
            filter(None, turn) for turn in itertools.zip_longest(*queues))
        self.left, self.lock = count, threading.Lock()
        self.until = time.monotonic() + 60 * minutes
        self.verdicts = []

    def next(self):
        with self.lock:
            if self.left <= 0 or time.monotonic() > self.until:
                return None
            self.left -= 1
            return next(self.plans, None)

    def judged(self, verdict):
        with self.lock:
            self.verdicts.append(verdict)
            self.left += verdict in NO_CHANGE

    def work(self, build, arguments):
        while (plan := self.next()) is not None:
            source, mutant, (number, before, after) = plan
            trial = Trial(build, source, mutant, arguments.histories, arguments.also)
            verdict = trial.verdict()
            shutil.rmtree(trial.dir)
            self.judged(verdict)
            if verdict not in NO_CHANGE:
                print(f"{source}:{number}: {before} => {after}: {verdict}", flush=True)


def queue(build, source, place, chance):
    made = mutants_of(source, build.root, place / source, chance)
    print(f"{source}: {len(made)} changes", flush=True)
    return [(source, *change) for change in made]


def tell(verdicts):
    left = sum(v == "SURVIVES" for v in verdicts)
    same = sum(v in NO_CHANGE for v in verdicts)
    units = sum(v.startswith("unit/") for v in verdicts)
    histories = sum(v.startswith("explore: ") for v in verdicts)
    print(f"{len(verdicts) - same} changes tried ({same} more change no code or are none): "
          f"{units} found by unit tests, {histories} by histories, "
          f"{len(verdicts) - left - same - units - histories} otherwise, {left} survive")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=24 * 60)
    parser.add_argument("--only", nargs="+", default=FILES)
    parser.add_argument("--also", nargs="+", default=[])
    arguments = parser.parse_args()
    build, chance = Build(arguments.build), random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as temporary:
        place = pathlib.Path(temporary)
        queues = [queue(build, source, place, chance) for source in arguments.only]
        source, mutant, _ = queues[0][0]
        wrong = Trial(build, source, mutant, arguments.histories, arguments.also).control()
        shutil.rmtree(str(mutant) + ".d")
        if wrong:
            sys.exit(f"in the library as it is: {wrong}")
        sample = Sample(queues, arguments.count, arguments.minutes)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for job in [pool.submit(sample.work, build, arguments)
                        for _ in range(arguments.jobs)]:
                job.result()
    tell(sample.verdicts)


if __name__ == "__main__":
    main()
