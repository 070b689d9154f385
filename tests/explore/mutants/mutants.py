#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mutants.py - plants known bugs in copies of the library's sources, and demands that
the tests find each of them. A bug that nothing finds is a hole in the tests.

  mutants.py BUILD [NAME...]   tries these planted bugs, or all; exit code 1: one was not
                               found
    --share I/N                every Nth, from the Ith on; else what GCPT_SHARE says
    --seeds N                  so many histories for each, whatever the table says: tells
                               which seed finds a bug first
    --jobs N                   so many at the same time
  mutants.py --check           only whether each rule has a planted bug, and each planted
                               bug its rule and its place in the sources

planted.txt has the bugs. Each has the number of the rule that it breaks, which stands in
the opening comment of one file. The histories of the explorer must find it, or the test
that is named: what needs kernels that wait for each other, more contexts than a history
has, or one instant between two threads.
"""

import argparse
import concurrent.futures
import os
import re
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import changed

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "planted.txt")
# Their programs: explore_ptsz is built for default streams of each thread.
EXPLORERS = {"explore": "explore", "explore_ptsz": "explore_ptsz", "faults": "explore"}
HEAD = re.compile(r"([A-Z]\d+)_(\w+): (\S+): (\S+)(?: (\d+))?$")
RULE = re.compile(r"^(?:/\*| \*) +([A-Z]\d+) ", re.M)


class Bug:
    def __init__(self, rule, name, source, test, seeds):
        self.rule, self.name, self.source = rule, f"{rule}_{name}", source
        self.test, self.seeds, self.hunk = test, int(seeds or 0), []

    def text(self, sign):
        """What stands in the source before ("-") or after ("+")."""
        return "\n".join(line[1:] for line in self.hunk if line[0] in (" ", sign))

    def planted(self):
        """The source with the bug; None: the words do not stand there once."""
        with open(os.path.join(changed.ROOT, self.source), encoding="utf-8") as file:
            source = file.read()
        words = self.text("-").split()
        pattern = r"(?<!\w)" * words[0][:1].isidentifier() + r"\s+".join(map(re.escape, words))
        found = list(re.finditer(pattern, source))
        if len(found) != 1:
            return None
        start, end = found[0].span()
        return source[:start] + self.text("+").strip() + source[end:]


def table_read():
    bugs = []
    with open(TABLE, encoding="utf-8") as file:
        for number, line in enumerate(file.read().split("\n"), 1):
            head = HEAD.match(line)
            if head:
                bugs.append(Bug(*head.groups()))
            elif line[:1] in (" ", "-", "+") and line and bugs:
                bugs[-1].hunk.append(line)
            elif line and line[0] != "#":
                sys.exit(f"planted.txt:{number}: what is {line!r}?")
    return bugs


def rules_stated():
    """Of each rule in the sources, by its number, the files that state it."""
    stated = {}
    for room in changed.ROOMS:
        for folder, _, names in os.walk(os.path.join(changed.ROOT, room)):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8", errors="replace") as file:
                    for rule in RULE.findall(file.read()):
                        stated.setdefault(rule, []).append(os.path.relpath(path, changed.ROOT))
    return stated


def check(bugs):
    """What is wrong with the table, in words."""
    stated, wrong = rules_stated(), []
    names = [bug.name for bug in bugs]
    for rule, files in sorted(stated.items()):
        if len(files) > 1:
            wrong.append(f"{rule} is stated more than once: {' '.join(files)}")
        if rule not in {bug.rule for bug in bugs}:
            wrong.append(f"{rule} of {files[0]} has no planted bug")
    for bug in bugs:
        if names.count(bug.name) > 1:
            wrong.append(f"{bug.name} is there twice")
        if bug.rule not in stated:
            wrong.append(f"{bug.name}: no file states {bug.rule}")
        if not bug.planted():
            wrong.append(f"{bug.name}: not once in {bug.source}:\n{bug.text('-')}")
    return wrong


def arguments_of(bug, seeds):
    """The explorer's for a bug."""
    if bug.test.startswith("frozen/") and not seeds:
        return ["--frozen", os.path.join(changed.KEPT, bug.test.partition("/")[2])]
    faults = ["--faults"] if bug.test == "faults" else []
    return [*faults, "--from", "1", "--count", str(seeds or bug.seeds)]


def tried(build, copy, bug, seeds):
    """(exit code, what the test said) with the bug planted"""
    by_explorer = seeds or bug.test in EXPLORERS or bug.test.startswith("frozen/")
    test = None if by_explorer else build.tests[bug.test]
    unit = test and bug.test.startswith("unit/")
    handles = bug.source.startswith("interpose/handles/")
    product = copy.link(os.path.relpath(test["cmd"][0], build.path) if unit else
                        changed.HANDLES if handles else changed.LIBRARY)
    if not product:
        return changed.CANNOT, "it does not link"
    if by_explorer:
        return changed.explorer(build, product, *arguments_of(bug, seeds), "--seconds",
                                str(changed.HANG_S), program=EXPLORERS.get(bug.test, "explore"))
    command, env = list(test["cmd"]), {**os.environ, **test["env"]}
    if unit:
        command[0] = product
    else:
        env["GCPT_HANDLES_LIBRARY" if handles else "GCPT_LIBRARY"] = product
    return changed.started(command, env, test["workdir"] or build.path)


def judge(build, bug, seeds):
    """(bug, verdict, seconds, what was found)"""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gcpool-mutant") as place:
        copy = changed.Copy(build, place)
        broken = copy.compile(bug.source, bug.planted() or "#error not in the source once")
        code, said = (changed.CANNOT, broken) if broken else tried(build, copy, bug, seeds)
    verdict, seed = changed.verdict(code, said), changed.seed_of(said)
    if bug.test in EXPLORERS and verdict == "FOUND":
        # That history finds nothing in the library as it is.
        library = os.path.join(build.path, changed.LIBRARY)
        code, other = changed.explorer(build, library, "--seed", hex(seed),
                                       program=EXPLORERS[bug.test])
        if code != 0:
            verdict, said = "BROKEN", "in the library as it is: " + changed.finding(other)
    seed = f"seed {seed & (1 << 60) - 1} " if seed else ""
    return bug, verdict, time.monotonic() - start, seed + changed.finding(said)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--share", default=os.environ.get("GCPT_SHARE", "0/1"))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1)
    arguments = parser.parse_args()
    bugs = table_read()
    if arguments.check:
        sys.exit("\n".join(check(bugs)) or 0)
    share, of = map(int, arguments.share.split("/"))
    bugs = [bug for bug in bugs if bug.name in arguments.names or not arguments.names]
    build, lost = changed.Build(arguments.build), 0
    if not any(name.startswith("unit/") for name in build.tests):
        print("left out, for want of cmocka: those that a unit test finds")
        bugs = [bug for bug in bugs if not bug.test.startswith("unit/")]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        # Those that may take longest come first.
        trials = [pool.submit(judge, build, bug, arguments.seeds)
                  for bug in sorted(bugs[share::of], key=lambda bug: -bug.seeds)]
        for trial in concurrent.futures.as_completed(trials):
            bug, verdict, seconds, said = trial.result()
            lost += verdict != "FOUND"
            print(f"{verdict:9} {bug.name:48} {bug.test:16} {seconds:5.1f} s  {said[:110]}",
                  flush=True)
    print(f"{len(bugs[share::of])} planted bugs, {lost} not found")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
