#!/usr/bin/env python3
"""elf.py SYMBOLS_PROGRAM

What libgcpool.so is for the loader: it needs libc alone, of a version that old
systems have; it runs no code of ours when it is loaded; and it exports the rows
of the table of hooks, dlsym, the functions of gcpool.h, and nothing else."""

import os
import platform
import re
import subprocess
import sys

import preload

# The oldest glibc that must be able to load a library built here.
OLDEST = {"x86_64": (2, 28), "aarch64": (2, 28)}

RUN_BY_COMPILER = 8  # bytes: the one entry of crtbegin.o (frame_dummy)


def read(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exports(library):
    """{name@VERSION} that are defined; a version of its own is no symbol."""
    names = set()
    for line in read("nm", "-D", "--defined-only", library).splitlines():
        _, kind, name = line.split()
        if kind != "A":
            names.add(name.replace("@@", "@"))
    return names


def check_exports(checks, library, program):
    wanted = set(read(program).split()) | {"dlsym"}
    found = {name for name in exports(library) if not name.startswith("gcpool_")}
    checks.equal("exports", "\n".join(sorted(wanted)), "\n".join(sorted(found)))


def check_loading(checks, library):
    dynamic = read("readelf", "-dW", library)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    checks.equal("needed libraries", ["libc.so.6"], needed)
    found = re.search(r"INIT_ARRAYSZ\)\s+(\d+)", dynamic)
    size = int(found.group(1)) if found else 0
    checks.that(size <= RUN_BY_COMPILER, f"{size} bytes of pointers to code run at load")
    checks.that("NODELETE" in dynamic, "dlclose could unload it")


def check_glibc(checks, library):
    oldest = OLDEST.get(platform.machine())
    for line in read("nm", "-D", "--undefined-only", library).splitlines():
        found = re.search(r"(\w+)@GLIBC_(\d+)\.(\d+)", line)
        if found and oldest:
            version = (int(found.group(2)), int(found.group(3)))
            checks.that(version <= oldest, f"{found.group(0)} is newer than glibc {oldest}")


def main():
    if preload.sanitized():
        sys.exit(preload.SKIP)
    checks = preload.Checks()
    library = os.environ["GCPT_LIBRARY"]
    check_exports(checks, library, sys.argv[1])
    check_loading(checks, library)
    check_glibc(checks, library)
    checks.end()


if __name__ == "__main__":
    main()
