#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the tests that others wrote for CUDA programs, plain and under the library, and
says which of them ended otherwise. It needs a GPU, and for Python's tests pytest.

  own_tests.py LIBRARY programs DIR [--args test_args.json]
  own_tests.py LIBRARY pytest DIR [-- PYTEST ARGUMENTS]

programs: each executable below DIR, as a build of github.com/NVIDIA/cuda-samples leaves
them, in its own folder; --args is the file of that name there. What ends otherwise is its
exit code, or a line that it prints, numbers aside. pytest: the tests of DIR, as those of
github.com/cupy/cupy. --without-pool: CuPy allocates with cudaMalloc and cudaMallocHost.

Each runs plain, with the library, with GCPOOL_BACKEND=segments, and plain again; what
differs between the two plain runs is not compared, and counted. Exit code 0: nothing ended
otherwise; 1: something did; 2: a wrong argument."""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

RUNS = [("plain", False, {}), ("library", True, {}),
        ("segments", True, {"GCPOOL_BACKEND": "segments"}), ("plain again", False, {})]
NUMBER = re.compile(r"[-+]?\d[\w.]*|\bnan\b|\binf\b")
POOLLESS = """import cupy
cupy.cuda.set_allocator(None)
cupy.cuda.set_pinned_memory_allocator(None)
"""


def environment(library, extra):
    """Of a run: plain if there is no library."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("GCPOOL_") and name != "LD_PRELOAD"}
    if library:
        env["LD_PRELOAD"] = library
    return {**env, **extra}


# --- programs --------------------------------------------------------------------------


def executables(folder):
    """The programs below a folder: ELF files that may be run, and are no libraries."""
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "CMakeFiles")
        for name in sorted(names):
            path = os.path.join(at, name)
            if ".so" in name or not os.access(path, os.X_OK):
                continue
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def runs_of(path, told):
    """The argument lists that the samples' own file tells for a program."""
    entry = told.get(os.path.basename(path), {})
    if entry.get("skip"):
        return []
    return [run.get("args", []) for run in entry.get("runs", [entry])]


def outcome(path, words, env, limit):
    """The exit code of a program, and its lines without numbers."""
    try:
        done = subprocess.run([path, *words], cwd=os.path.dirname(path), env=env, timeout=limit,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        return "no end", ()
    text = NUMBER.sub("#", done.stdout.decode(errors="replace"))
    return f"code {done.returncode}", tuple(sorted(set(text.split("\n"))))


def play_programs(args, env):
    """{name and arguments: outcome} of all programs."""
    told = {}
    if args.args:
        with open(args.args, encoding="utf-8") as file:
            told = json.load(file)
    jobs = [(path, words) for path in executables(args.folder) for words in runs_of(path, told)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as threads:
        found = threads.map(lambda job: outcome(*job, env, args.limit), jobs)
        return {" ".join([os.path.relpath(path, args.folder), *words]): how
                for (path, words), how in zip(jobs, found)}


# --- pytest ----------------------------------------------------------------------------


def play_pytest(args, env):
    """{test: "passed", "failed" or "skipped"} of all tests."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "poolless.py"), "w", encoding="utf-8") as file:
            file.write(POOLLESS)
        report = os.path.join(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                   f"--junitxml={report}", *(["-p", "poolless"] if args.without_pool else []),
                   *args.more]
        path = [folder] + ([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])
        try:
            done = subprocess.run(command, cwd=args.folder, stdout=subprocess.PIPE,
                                  env={**env, "PYTHONPATH": ":".join(path)}, check=False,
                                  stderr=subprocess.STDOUT, timeout=args.limit)
        except subprocess.TimeoutExpired as late:
            print(f"    no end in {args.limit} s:", (late.stdout or b"")[-300:].decode(
                errors="replace"), flush=True)
            return {}
        text = done.stdout.decode(errors="replace").strip().splitlines()
        print("   ", text[-1] if text else f"code {done.returncode}", flush=True)
        try:
            cases = xml.etree.ElementTree.parse(report).iter("testcase")
        except (OSError, xml.etree.ElementTree.ParseError):
            print("\n".join(text[-20:]))
            return {}
        return {f"{case.get('classname')}.{case.get('name')}": verdict(case) for case in cases}


def verdict(case):
    """What became of a test, and why it failed."""
    for child in case:
        if child.tag in ("failure", "error"):
            first = (child.get("message") or "").strip().splitlines()
            return "failed: " + NUMBER.sub("#", first[0] if first else "")[:200]
        if child.tag == "skipped":
            return "skipped"
    return "passed"


# --- what differs ----------------------------------------------------------------------


def words_of(how):
    return how if isinstance(how, str) else how[0]


def compare(found):
    """Prints the table; the number of tests that ended otherwise."""
    plain, again = found["plain"], found["plain again"]
    unsteady = {name for name in plain if plain[name] != again.get(name)}
    lacking = sum(how[0] == "code 127" for how in plain.values() if not isinstance(how, str))
    print(f"{len(plain)} tests, {len(unsteady)} of them not the same in both plain runs, "
          f"{lacking} that could not be started (a library is missing)")
    for word in sorted({words_of(how).split(":")[0] for how in plain.values()}):
        print(f"    plain: {word}: "
              f"{sum(words_of(how).split(':')[0] == word for how in plain.values())}")
    differ = 0
    for which in ("library", "segments"):
        names = [name for name in plain
                 if name not in unsteady and found[which].get(name) != plain[name]]
        print(f"{which}: {len(names)} ended otherwise")
        differ += len(names)
        for name in names:
            how = found[which].get(name, "did not run")
            print(f"    {name}: plain {words_of(plain[name])}, {which} {words_of(how)}")
            if not isinstance(how, str) and how[0] == plain[name][0]:
                lines = set(plain[name][1]) ^ set(how[1])
                print("\n".join("        " + line[:150] for line in sorted(lines)[:6]))
        for name in sorted(unsteady):
            how = words_of(found[which].get(name, "did not run"))
            if how not in (words_of(plain[name]), words_of(again.get(name, ""))):
                print(f"    (unsteady) {name}: plain {words_of(plain[name])}, {which} {how}")
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("kind", choices=("programs", "pytest"))
    parser.add_argument("folder")
    parser.add_argument("--args", help="the samples' test_args.json")
    parser.add_argument("--jobs", type=int, default=4, help="programs at a time")
    parser.add_argument("--limit", type=int, default=60, help="seconds for a program, or for pytest")
    parser.add_argument("--without-pool", action="store_true")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:end])
    args.more = words[end + 1:]
    args.library, args.folder = os.path.abspath(args.library), os.path.abspath(args.folder)
    for path in filter(None, (args.library, args.folder, args.args)):
        if not os.path.exists(path):
            parser.error(f"there is no {path}")
    found = {}
    for which, preloaded, extra in RUNS:
        print(f"{which} ...", flush=True)
        play = play_programs if args.kind == "programs" else play_pytest
        found[which] = play(args, environment(preloaded and args.library, extra))
    sys.exit(1 if compare(found) or not found["plain"] else 0)


if __name__ == "__main__":
    main()
