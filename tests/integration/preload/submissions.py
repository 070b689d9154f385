#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""submissions.py EAGER_WORK

What the library runs in a call that submits work while nothing captures: at most 64
instructions, whichever call it is. They are counted by callgrind, on the simulated
device, in the entry and in the functions of the library that it calls. (gcc 12, x86-64:
62.8 at most, of a launch of eleven arguments; others come to more, and do not count.)"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import preload

MOST = 64  # instructions
TIMES = 500  # the first call on a stream costs more
LEAST_CALLS = 20  # rows that must be found
EVENTS = ("cuEventRecord", "cuStreamWaitEvent")
SUBMITS = re.compile(r"cu(Launch|GraphLaunch|Mem(cpy|set)|StreamWriteValue|StreamAddCallback)")


def is_library(path):
    return os.path.basename(path).startswith("libgcpool")


def profile(path):
    """Of the library's functions: {name: instructions of its own}, and {name: {called one of
    the library: how often}}."""
    objects, names, own, edges = {}, {}, {}, {}
    object_, function, callee, called, calls = "", "", "", "", 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            kind, _, rest = line.strip().partition("=")
            number, _, name = rest.partition(" ")
            if kind == "ob":
                object_ = callee = objects.setdefault(number, name)
            elif kind == "cob":
                callee = objects.setdefault(number, name)
            elif kind == "fn":
                function = names.setdefault(number, name)
            elif kind == "cfn":
                called = names.setdefault(number, name)
            elif kind == "calls":
                calls = int(rest.split()[0])
            elif line[0] in "+-*0123456789":
                if is_library(object_) and not calls:
                    own[function] = own.get(function, 0) + int(line.split()[1])
                elif is_library(object_) and is_library(callee):
                    of = edges.setdefault(function, {})
                    of[called] = of.get(called, 0) + calls
                calls, callee = 0, object_
    return own, edges


def each(name, calls, own, edges, within=()):
    """Instructions of one call, with those of what it calls in the library."""
    total = own.get(name, 0) / calls[name]
    for called, count in edges.get(name, {}).items():
        if called not in within:
            total += (count / calls[name]
                      * each(called, calls, own, edges, (*within, name)))
    return total


def callgrind(out):
    return ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"]


def can_count():
    if not shutil.which("valgrind"):
        return False
    done = subprocess.run([*callgrind("/dev/null"), "true"], capture_output=True, check=False)
    return done.returncode == 0


def main():
    program, checks = sys.argv[1], preload.Checks()
    if len(sys.argv) > 2:
        print("counted with gcc 12 on x86-64 alone")
        sys.exit(preload.SKIP)
    if not can_count():
        print("no valgrind that counts here")
        sys.exit(preload.SKIP)
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "out")
        env = {**os.environ, "LD_LIBRARY_PATH": os.environ["GCPT_PATH"], "GCPT_TIMES": str(TIMES),
               "GCPSIM_MEMORY": "512M", "LD_PRELOAD": preload.library()}
        done = subprocess.run([*callgrind(out), program, "each_call_often"], env=env,
                              capture_output=True, text=True, timeout=300, check=False)
        checks.equal("exit code", 0, done.returncode)
        print(done.stderr[-2000:])
        own, edges = profile(out) if os.path.exists(out) else ({}, {})
    calls = {}
    for of in edges.values():
        for name, count in of.items():
            calls[name] = calls.get(name, 0) + count
    rows = 0
    for name in sorted(own):
        entry, _, version = name.partition("@")
        if version != "GCPOOL" or not (SUBMITS.match(entry) or entry in EVENTS):
            continue
        rows += 1
        calls.setdefault(name, sum(edges.get(name, {}).values()))  # the program's
        cost = each(name, calls, own, edges)
        print(f"{entry:32}{calls[name]:6} calls, {cost:5.1f} instructions each")
        checks.that(cost <= MOST, f"{entry} costs {cost:.1f} instructions, not {MOST}")
    checks.that(rows >= LEAST_CALLS, f"only {rows} functions were found")
    checks.end()


if __name__ == "__main__":
    main()
