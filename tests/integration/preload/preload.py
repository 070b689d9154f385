# SPDX-License-Identifier: MIT
"""What the preload tests share: running a program on the simulated device,
plain and under the library, and reading what the simulated driver saw.

The build hands over, in the environment:
  GCPT_LIBRARY   libgcpool.so
  GCPT_PATH      directories of the simulated libcuda and libcudart
  GCPT_FIRST     a library to preload before ours (a sanitizer's), may be empty
  GCPT_BACKEND   how the library gets memory (GCPOOL_BACKEND; segments)
  GCPT_MEMORY    of each simulated device, may be absent (tests/systems/aarch64)
  GCPT_EMULATOR  what runs programs of another machine (qemu-user), may be absent
"""

import difflib
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time

SKIP = 77


class Run:
    """A finished program: code, out, err, and figures of the simulated driver."""

    def __init__(self, code, out, err, figures):
        self.code, self.out, self.err, self.figures = code, out, err, figures


def sanitized():
    return bool(os.environ.get("GCPT_SANITIZER"))


def environment(library=None, extra=None):
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GCPOOL_", "GCPSIM_")) and name != "LD_PRELOAD"}
    env["LD_LIBRARY_PATH"] = os.environ["GCPT_PATH"]
    # The library keeps its state for good, by design: it must not free at exit.
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    preload = [os.environ.get("GCPT_FIRST", ""), library or ""]
    preload = ":".join(path for path in preload if path)
    if preload:
        env["LD_PRELOAD"] = preload
    # With and without the library: programs may show their environment.
    env["GCPOOL_BACKEND"] = os.environ.get("GCPT_BACKEND", "segments")
    if os.environ.get("GCPT_MEMORY"):
        env["GCPSIM_MEMORY"] = os.environ["GCPT_MEMORY"]
    env.update(extra or {})
    return env


def figures_read(path):
    """Sums the lines that the processes of a run appended."""
    figures = {}
    try:
        with open(path) as report:
            for word in report.read().split():
                name, _, value = word.partition("=")
                figures[name] = figures.get(name, 0) + int(value)
    except FileNotFoundError:
        pass
    return figures


def emulated(command, env):
    """The loader's variables are the program's, not the emulator's."""
    emulator = os.environ.get("GCPT_EMULATOR", "").split()
    if not emulator:
        return command
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        if name in env:
            emulator += ["-E", f"{name}={env.pop(name)}"]
    return emulator + command


def soon(there):
    """Waits until `there` gives something, and returns it."""
    end = time.monotonic() + 60
    while not (found := there()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def alone():
    """Until this process ends no other test looks at the pages of all processes."""
    fcntl.flock(os.open("/dev/shm", os.O_RDONLY), fcntl.LOCK_EX)


def run(command, library=None, extra=None, timeout=120):
    with tempfile.TemporaryDirectory() as directory:
        report = os.path.join(directory, "report")
        env = environment(library, {"GCPSIM_REPORT": report, **(extra or {})})
        done = subprocess.run(
            emulated(command, env), env=env, capture_output=True, text=True, timeout=timeout)
        if "cannot be preloaded" in done.stderr:
            sys.exit(f"WRONG: the library was not there: {done.stderr}")
        return Run(done.returncode, done.stdout, done.stderr, figures_read(report))


def without_shortages(text):
    """What the library says when memory is out is no output of the program."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines
                   if not (line.startswith("libgcpool[") and "]: out of memory: " in line))


def first_comment(text):
    """What the first comment of a program says of how it is built and run: word -> what
    stands behind "Word: " and in the lines after it; of "Run" and "Once" a list."""
    found, word = {}, None
    for line in text.partition("\n/*\n")[2].partition("*/")[0].split("\n"):
        begins = re.match(r" \* ([A-Z]\w+): (.*)", line)
        if begins:
            word = begins[1]
            found.setdefault(word, []).append(begins[2])
        elif word and line.startswith(" * ") and line[3:4].strip():
            found[word][-1] += " " + line[3:]
        else:
            word = None
    return {word: words if word in ("Run", "Once") else words[0] for word, words in found.items()}


def library():
    return os.environ["GCPT_LIBRARY"]


class Checks:
    """Collects what is wrong; `end` prints it and gives the exit code."""

    def __init__(self):
        self.wrong = 0

    def that(self, good, words):
        if not good:
            self.wrong += 1
            print(f"WRONG: {words}")
        return good

    def equal(self, name, a, b):
        if a == b:
            return True
        self.wrong += 1
        lines = [str(text).splitlines() for text in (a, b)]
        print(f"WRONG: {name} differs:")
        print("\n".join(difflib.unified_diff(*lines, "wanted", "found", "", "", 1, "")))
        return False

    def clean(self, result, name, reported=True):
        """No hazard, no fault, no misuse of the driver, which reports at exit."""
        self.that("hazards" in result.figures or not reported,
                  f"{name}: no report of the driver")
        for figure in ("hazards", "disorders", "faults", "misuses"):
            count = result.figures.get(figure, 0)
            self.that(count == 0, f"{name}: {count} {figure}\n{result.err}")

    def trials(self, program, table):
        """Runs a program once for each (arguments, schedule): all must be right, and
        no user object of a graph may be left."""
        for arguments, schedule in table:
            name = f"{arguments} {schedule}"
            result = run([program, "--words", "2000", *arguments], library(), schedule)
            print(name, result.out.strip(), result.figures)
            self.that(result.code == 0,
                      f"{name}: exit code {result.code}\n{result.out}{result.err}")
            self.clean(result, name)
            left = result.figures.get("user_objects", 0)
            self.that(left == 0, f"{name}: {left} user objects left")

    def refused(self, program):
        """Plain CUDA cannot run it."""
        plain = run([program])
        self.that(plain.code == 2, f"plain CUDA did not refuse: {plain.code} {plain.out}")

    def end(self):
        print("wrong:", self.wrong) if self.wrong else print("all right")
        sys.exit(1 if self.wrong else 0)
