#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that use no CUDA behave under the library as without it: same output,
same exit code, no CUDA library mapped, no file left open."""

import os
import shutil
import subprocess
import sys
import tempfile

import preload

SOURCE = "#include <stdio.h>\nint main(void) { return puts(\"made\") < 0; }\n"

COMMANDS = {
    "bash": ["bash", "-c", "echo one; echo two >&2; for i in 1 2; do echo $i; done; exit 3"],
    "bash pipes": ["bash", "-c", "printf 'b\\na\\n' | sort | tr a-z A-Z; x=$(echo in); echo $x"],
    "git": ["git", "--version"],
    "git in a repository": ["bash", "-c", "git init -q r && cd r && git status --short && git log"],
    "python": ["python3", "-c", "import sys, ctypes, threading; print(sys.argv); sys.exit(4)"],
    "gcc": ["bash", "-c", "gcc -o made made.c && ./made"],
    "missing file": ["cat", "/does/not/exist"], "ls": ["ls", "-l", "/proc/self/fd/"],
    "environment": ["env"],
    "a program that dlopens": ["python3", "-c", "import sqlite3, ssl, json; print('loaded')"]}

MAPS = "cat /proc/self/maps"
FILES = "import os; print(sorted(os.listdir('/proc/self/fd')))"
THREADS = "import os; print(len(os.listdir('/proc/self/task')))"


def run(command, library):
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "made.c"), "w") as source:
            source.write(SOURCE)
        env = preload.environment(library)
        env.pop("LD_LIBRARY_PATH")
        env["HOME"] = directory
        done = subprocess.run(command, env=env, cwd=directory, capture_output=True, text=True, timeout=120)
        return done.returncode, scrub(done.stdout, directory), scrub(done.stderr, directory)


def scrub(text, directory):
    """Takes out what differs between any two runs."""
    lines = []
    for line in text.replace(directory, "DIRECTORY").splitlines():
        if line.startswith(("LD_PRELOAD=", "_=")):
            continue
        if " -> " in line:  # ls -l /proc/self/fd: times and numbers of pipes
            line = line.split()[0] + " " + line.split()[-3]
        lines.append(line)
    return "\n".join(lines)


def main():
    if os.environ.get("GCPT_EMULATOR"):
        print("the library is of another machine than this one's programs")
        sys.exit(preload.SKIP)
    if preload.sanitized():
        sys.exit(preload.SKIP)  # a sanitizer is not inert
    checks = preload.Checks()
    for name, command in COMMANDS.items():
        if not shutil.which(command[0]):
            print(f"{name}: no {command[0]} here")
            continue
        checks.equal(name, run(command, None), run(command, preload.library()))
    maps = run(["bash", "-c", MAPS], preload.library())[1]
    checks.that("libgcpool.so" in maps, "the library is not even loaded")
    for unwanted in ("libcuda", "libcudart", "nvidia"):
        checks.that(unwanted not in maps, f"{unwanted} is mapped")
    for what in (FILES, THREADS):
        command = ["python3", "-c", what]
        checks.equal(what, run(command, None), run(command, preload.library()))
    checks.end()


if __name__ == "__main__":
    main()
