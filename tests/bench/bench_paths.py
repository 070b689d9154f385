#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench_paths.py POOL_BENCH LOOP_SHARED LOOP_STATIC LOOP_LINKED NULL_DRIVER

What a malloc+free pair that hits costs a program: nanoseconds, and instructions,
which do not depend on how busy the machine is. On the simulated device, through the
runtime's symbol (shared cudart), through the driver's (linked with libcuda), and through
a static cudart, whose own cost is told by a driver that costs nothing (bench_null.c);
and in the pool alone; and what the library runs at a kernel launch while
nothing captures. Instructions are the difference of two runs of
different length under callgrind, so that start and end do not count; "library" are
those within libgcpool. Without valgrind they are left out.

  meson test -C build --benchmark --verbose

The build hands over GCPT_LIBRARY and GCPT_PATH, as to the tests."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

LONG, SHORT = 30000, 10000
RUNS = 5
SIZES = ("512", "64k", "1m")


def environment(preload):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GCPOOL_", "GCPSIM_"))}
    env["LD_LIBRARY_PATH"] = os.environ["GCPT_PATH"]
    env["GCPSIM_MEMORY"] = "512M"  # callgrind has little address space to give
    if preload:
        env["LD_PRELOAD"] = preload
    return env


def output(command, preload):
    done = subprocess.run(
        command, env=environment(preload), capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        sys.exit(f"bench_paths: {' '.join(command)} failed: {done.stderr[-500:]}")
    return done.stdout


def loop(program, size, iterations):
    return [program, "--no-kernel", "--size", size, "--iterations", str(iterations)]


LAUNCHES = 20  # fewer of them: the simulated driver runs the kernel


def launches(program, _, iterations):
    return [program, "--launch", "--iterations", str(iterations // LAUNCHES)]


def pool(program, size, iterations):
    return [program, size, "1", str(iterations)]


def nanoseconds(command, preload):
    """Best of some runs: the machine is shared, and noise only adds."""
    found = [float(re.search(r"([0-9]+) ns", output(command, preload))[1]) for _ in range(RUNS)]
    return min(found)


def profile(command, preload):
    """Instructions in all, and within the library."""
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "out")
        output(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"] + command, preload)
        return instructions(out)


def instructions(path):
    """Adds up a callgrind file: cost lines count for the object of their function;
    the line after `calls=` is of the callee, and counted there."""
    names, total, library, inside, skip = {}, 0, 0, False, False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("ob=", "cob=")):
                kind, _, object = line.strip().partition("=")
                number, _, name = object.partition(" ")
                name = names.setdefault(number, name)
                if kind == "ob":
                    inside = os.path.basename(name).startswith("libgcpool")
            elif line.startswith("calls="):
                skip = True
            elif line[0] in "+-*0123456789":
                cost = 0 if skip else int(line.split()[1])
                skip = False
                total += cost
                library += cost if inside else 0
    return total, library


def count(make, program, size, preload):
    if not shutil.which("valgrind"):
        return None
    long = profile(make(program, size, LONG), preload)
    short = profile(make(program, size, SHORT), preload)
    return [(a - b) / (LONG - SHORT) for a, b in zip(long, short)]


def show(name, size, figures):
    tail = f"{figures[1]:14.0f}{figures[2]:9.0f}" if len(figures) > 1 else ""
    print(f"{name:32}{size:>6}{figures[0]:8.0f}{tail}", flush=True)


def main():
    bench, shared, static, linked, null = sys.argv[1:]
    library = os.environ["GCPT_LIBRARY"]
    rows = (
        ("pool alone", pool, bench, None),
        ("shared cudart, runtime symbol", loop, shared, library),
        ("driver API", loop, linked, library),
        ("static cudart", loop, static, library),
        ("static cudart, driver for free", loop, static, null),
    )
    found = {}
    print("malloc+free that hits, one thread, per pair")
    print(f"{'':32}{'bytes':>6}{'ns':>8}{'instructions':>14}{'library':>9}")
    if not shutil.which("valgrind"):
        print("(no valgrind here: instructions are not counted)")
    for name, make, program, preload in rows:
        for size in SIZES:
            ns = nanoseconds(make(program, size, 1000000), preload)
            counted = count(make, program, size, preload)
            found[name, size] = [ns] + (counted or [])
            show(name, size, found[name, size])
    for size in SIZES:
        both = zip(found["static cudart", size], found["static cudart, driver for free", size])
        show("on top of static cudart's own", size, [a - b for a, b in both])
    counted = count(launches, linked, None, library)
    if counted:
        print("a kernel launch while nothing captures: "
              f"{counted[1] * LAUNCHES:.0f} instructions of the library")


if __name__ == "__main__":
    main()
