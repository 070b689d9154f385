# SPDX-License-Identifier: MIT
"""changed.py - the library and its tests with one source changed: that source is compiled
alone and linked with the other objects of the build. For mutants.py and mutate."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess

ROOMS = ("pool", "capture", "interpose")
LIBRARY = "tests/explore/libgcpool-explore.so"
HANDLES = "libgcpool-handles.so"
KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "kept")
ROOT = os.path.realpath(os.path.join(KEPT, os.pardir, os.pardir, os.pardir))
HANG_S = 8  # after which a history with a bug hangs; those that do run for seconds
TIMEOUT_S = 400
EXPLORER_FAILS, SKIP = 2, 77
PARTS = "_hot", "_rest"  # of the library of a room
LATE, CANNOT = -99, -98  # for an exit code: it took too long; it could not run
# What a test says of the library. All else that ends a test is an error of the test.
FINDINGS = (r"^explore.*--(?:ops|fault) \S*: (.*)", r"^ +got +(\[.*)", r"^not ok \d+ - (\S+)",
            r"^.*?(WRONG: .*)", r"(\S+:\d+: .*Assertion.*)")
NOT_LOADED = "cannot be preloaded|symbol lookup error|error while loading shared libraries"


class Build:
    """A build directory: its commands and its tests."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self.root = os.path.relpath(ROOT, self.path)  # as its commands have it
        with open(os.path.join(path, "meson-info", "intro-tests.json")) as file:
            self.tests = {f"{test['suite'][0].split(':')[-1]}/{test['name']}": test
                          for test in json.load(file)}

    def run(self, command):
        return subprocess.run(command, cwd=self.path, shell=isinstance(command, str), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")

    @functools.lru_cache(maxsize=None)
    def command(self, target):
        """What makes it; where it is no target, ninja's word for that."""
        return self.run(["ninja", "-t", "commands", target]).stdout.strip().split("\n")[-1]

    @functools.lru_cache(maxsize=None)
    def objects_of(self, source):
        """Those of the rooms that are compiled from it, or include it."""
        if source.endswith(".c"):
            room, _, rest = source.partition("/")
            made = [f"lib{room}{part}.a.p/{source.replace('/', '_')}.o" for part in PARTS]
            if rest.startswith("handles/"):
                made = [f"interpose/libhandles.a.p/{rest.replace('/', '_')}.o"]
            return [name for name in made if f" -o {name} " in self.command(name)]
        found = []
        for lines in self.run(["ninja", "-t", "deps"]).stdout.split("\n\n"):
            if re.match(r"lib\w+_(hot|rest)\.a\.p/", lines) and f"{self.root}/{source}\n" in lines:
                found.append(lines.partition(":")[0])
        return found


class Copy:
    """The sources of the rooms, to be changed, and what is built of them."""

    def __init__(self, build, place):
        self.build, self.place, self.objects = build, place, {}
        for room in ROOMS:
            shutil.copytree(os.path.join(ROOT, room), os.path.join(place, room))

    def compile(self, source, text):
        """Changes a source. What the compiler said, or None."""
        with open(os.path.join(self.place, source), "w", encoding="utf-8") as file:
            file.write(text)
        if not self.build.objects_of(source):
            return f"nothing is compiled of {source}"
        for target in self.build.objects_of(source):
            self.objects[target] = os.path.join(self.place, target.replace("/", "_"))
            command = re.sub(r" -MD -MQ \S+ -MF \S+| -g\b| -Werror\b", "", self.build.command(target))
            command = re.sub(r" -o \S+", f" -O1 -w -o {self.objects[target]}", command)
            for room in ROOMS:
                command = re.sub(rf"(?<=[ I]){re.escape(self.build.root)}/{room}(?=[ /])",
                                 f"{self.place}/{room}", command)
            done = self.build.run(command)
            if done.returncode != 0:
                return done.stdout
        return None

    def link(self, target):
        """The path of a product of the build, linked with the changed objects; None: it has
        none of these, or does not link."""
        command = self.build.command(target)
        for archive in {re.sub(r"\.p/.*", "", name) for name in self.objects}:
            if f" {archive}" not in command:
                return None
            mine = os.path.join(self.place, archive.replace("/", "_"))
            if os.path.exists(mine):
                os.remove(mine)
            members = [os.path.relpath(name, self.build.path) if os.path.isabs(name) else name
                       for name in self.members(archive)]
            self.build.run(["ar", "crs", mine, *(self.objects.get(m, m) for m in members)])
            command = command.replace(f" {archive}", f" {mine}")
        out = os.path.join(self.place, os.path.basename(target))
        done = self.build.run(re.sub(r" -o \S+", f" -o {out}", command, count=1))
        return out if done.returncode == 0 else None

    def members(self, archive):
        return self.build.run(["ninja", "-t", "query", archive]).stdout.split("outputs:")[0].split()[3:]


def explorer(build, library, *arguments, program="explore"):
    """(exit code, what it said); see explore_env of tests/explore/meson.build"""
    code, said = started([os.path.join(build.path, "tests/explore", program), "--library",
                          library, *arguments], {**os.environ, "MALLOC_PERTURB_": "0"}, build.path)
    return CANNOT if code == EXPLORER_FAILS else code, said


def started(command, env, workdir, timeout=TIMEOUT_S):
    """Runs a test in a group of processes of its own, none of which outlives it."""
    try:
        process = subprocess.Popen(command, env=env, cwd=workdir, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True)
    except OSError as error:
        return CANNOT, str(error)
    try:
        said = process.communicate(timeout=timeout)[0]
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return LATE, f"not done after {timeout} s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()


def verdict(code, said):
    """FOUND, NOT FOUND, TIMEOUT; BROKEN: the test did not come to look at the library."""
    if code == LATE:
        return "TIMEOUT"
    if re.search(NOT_LOADED, said) or code in (SKIP, CANNOT):
        return "BROKEN"
    if code == 0:
        return "NOT FOUND"
    found = any(re.search(pattern, said, re.M) for pattern in FINDINGS)
    return "FOUND" if found or ended_within(said) else "BROKEN"


def ended_within(said):
    """The number of the test that the program ended in: of cmocka's tests one that fails
    in a thread of its own ends all of them, and says nothing."""
    planned = sum(int(count) for count in re.findall(r"^1\.\.(\d+)$", said, re.M))
    done = len(re.findall(r"^(?:not )?ok \d+", said, re.M))
    return done + 1 if done < planned else 0


def finding(said):
    """What a test found, in its words."""
    for pattern in FINDINGS:
        found = re.search(pattern, said, re.M)
        if found:
            return found.group(1)
    if ended_within(said):
        return f"the program ended in its test {ended_within(said)}"
    lines = [line for line in said.strip().split("\n") if line]
    return lines[-1] if lines else "nothing said"


def seed_of(said):
    """With its generation (tests/explore/draw.h); 0: none is named."""
    found = re.search(r"\bseed[ =](0x[0-9a-f]+|\d+)", said)
    return int(found.group(1), 0) if found else 0
