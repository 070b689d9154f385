#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mutants.py - plants known bugs in copies of the library's sources, and demands
that the tests find each of them. A mutant that nothing finds is a hole in the
tests.

  mutants.py plant TABLES ROOT DIR    writes DIR/NAME.c for each mutant
  mutants.py run TABLES BUILD [...]   runs each mutant's trial, prints a table;
                                      exit code 1: one was not found

    --only NAME...   these alone
    --kind KIND...   those of these kinds alone: safety, promise, tuning
    --share I/N      every Nth, from the Ith on; else what GCPT_SHARE says, if set
    --fast           leaves out those that the table calls slow
    --every TEST...  instead of each one's own trials runs these tests on all of
                     them, and says which find what (no demand); --seeds N: so
                     many of the explorer

A finding is what a test says of the library: the explorer's line of a failure,
"WRONG:", "not ok", a failed assertion. A test that breaks in another way, a library
that does not load, and a test that finds something in the library as it is, are
errors; a trial that takes too long has found nothing, and is told from the others.

TABLES is a folder with a file for each room (pool.txt, capture.txt, interpose.txt).
They say of each mutant which rule it removes, of what kind that is, where, how, and
which trial finds it within how many seeds, or which history of tests/explore/kept
(frozen/NAME). Sources are found by their words, not
by line or blanks; words that are not there exactly once are an error.
"""

import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

ROOMS = ("pool", "capture", "interpose")
KEYS = ("mutant", "rule", "kind", "file", "found by")
KINDS = ("safety", "promise", "tuning")
KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "kept")
TIMEOUT_S = 400
HANG_S = 8  # after which a history with a mutant hangs; those that do run for seconds
ENDS_S = 10  # for a test that was told to end
# Histories, and rounds, on the unchanged library; each history that finds a bug is tried.
UNCHANGED_MAX = {"faults": 8, "explore": 500, "unit/locks": 20}
SKIP = 77
# Tests that not every build has: of headers of the toolkit that its Python package lacks.
NOT_EVERYWHERE = ("preload/tools_are_told_of_blocks",)
EXPLORER_FAILS = 2  # its status where it could not run (tests/explore/main.c)
FINDINGS = (r"^explore.*--(?:ops|fault) \S*: (.*)", r"^ +got +(\[.*)", r"^not ok \d+ - (\S+)",
            r"^.*?(WRONG: .*)", r"(\S+:\d+: .*Assertion.*)")
FINAL = r"not ok \d+ - |WRONG: "  # what follows in the same test matters no more
NOT_LOADED = "cannot be preloaded|symbol lookup error|error while loading shared libraries"


class Mutant:
    def __init__(self, line):
        self.line = line
        self.fields = {}
        self.hunk = []

    def __getattr__(self, key):
        try:
            return self.fields[key.replace("_", " ")]
        except KeyError:
            raise AttributeError(key) from None

    def trials(self):
        """(test, seeds, whether it takes long) for each that must find it."""
        for trial in self.found_by.split(","):
            words = trial.split()
            seeds = int(words[words.index("within") + 1]) if "within" in words else 0
            yield words[0], seeds, "slow" in words

    def text(self, sign):
        """What stands in the source before ("-") or after ("+")."""
        return "\n".join(line[1:] for line in self.hunk if line[0] in (" ", sign))


def fail(words):
    sys.exit(f"mutants: {words}")


def tables_read(place):
    """The mutants of all rooms; a name is one mutant's alone."""
    mutants = [mutant for room in ROOMS for mutant in table_read(place, room)]
    names = [mutant.mutant for mutant in mutants]
    for name in names:
        if names.count(name) > 1:
            fail(f"there are two of {name}")
    return mutants


def table_read(place, room):
    mutants, path = [], os.path.join(place, room + ".txt")
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file.read().split("\n"), 1):
            key, _, value = line.partition(":")
            if not line.strip() or line.startswith("#"):
                continue
            if line[0] in " -+\t":
                mutants[-1].hunk.append(line)
                continue
            if key not in KEYS:
                fail(f"{path}:{number}: what is {line!r}?")
            if key == "mutant":
                mutants.append(Mutant(number))
            mutants[-1].fields[key] = value.strip()
    for mutant in mutants:
        if set(mutant.fields) != set(KEYS) or not mutant.hunk:
            fail(f"{path}:{mutant.line}: something is missing")
        if mutant.kind not in KINDS:
            fail(f"{path}:{mutant.line}: the kind is {' or '.join(KINDS)}")
        if not mutant.file.startswith(room + "/"):
            fail(f"{path}:{mutant.line}: {mutant.file} is of another room")
    return mutants


# --- planting -------------------------------------------------------------------


def planted(mutant, source):
    words = mutant.text("-").split()
    pattern = r"(?<!\w)" * words[0][:1].isidentifier() + r"\s+".join(map(re.escape, words))
    found = list(re.finditer(pattern, source))
    if len(found) != 1:
        print(f"{mutant.mutant}: {mutant.file} has these words {len(found)} times, not once:\n"
              + mutant.text("-"))
        return None
    start, end = found[0].span()
    return (f'#line 1 "{mutant.file}"\n' + source[:start] + mutant.text("+").strip()
            + source[end:])


def write(path, text):
    """Leaves a file alone that says the same already: nothing is built anew."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    except FileNotFoundError:
        pass
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def plant(arguments):
    lost = 0
    for mutant in tables_read(arguments.tables):
        with open(os.path.join(arguments.root, mutant.file), encoding="utf-8") as file:
            text = planted(mutant, file.read())
        if text:
            write(os.path.join(arguments.dir, mutant.mutant + ".c"), text)
        else:
            lost += 1
    if lost:
        fail(f"{lost} mutants do not fit the sources any more; the tables must follow them")


# --- trials ---------------------------------------------------------------------


class Trials:
    """The tests of the build, run with a mutant in the place of the library."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.dir = os.path.join(self.build, "tests", "explore", "mutants")
        with open(os.path.join(build, "meson-info", "intro-tests.json")) as file:
            self.tests = {}
            for test in json.load(file):
                suite = test["suite"][0].split(":")[-1]
                self.tests[f"{suite}/{test['name']}"] = test

    def product(self, name, test):
        file = name if test.startswith("unit/") else f"libgcpool-{name}.so"
        return os.path.join(self.dir, file)

    def unchanged(self, test):
        """The same without a bug."""
        if test.startswith("unit/"):
            return self.tests[test]["cmd"][0]
        return os.path.join(self.build, "tests", "explore", "libgcpool-explore.so")

    def run(self, name, test, seeds):
        """(verdict, seconds, what it said); without a name on the library as it is"""
        product = self.product(name, test) if name else self.unchanged(test)
        if test in ("explore", "faults") or test.startswith("frozen/"):
            explorer = os.path.join(self.build, "tests", "explore", "explore")
            command = [explorer, "--library", product]
            if test.startswith("frozen/"):
                command += ["--frozen", os.path.join(KEPT, test.partition("/")[2])]
            else:
                command += ["--from", "1", "--count", str(seeds or 1000)]
            command += ["--faults"] if test == "faults" else []
            command += ["--seconds", str(HANG_S)] if name else []
            # See explore_env of tests/explore/meson.build.
            return self.started(command, {**os.environ, "MALLOC_PERTURB_": "0"}, self.build)
        entry = self.tests.get(test)
        if not entry:
            fail(f"{name}: there is no test {test}")
        command, env = list(entry["cmd"]), {**os.environ, **entry["env"]}
        if test.startswith("unit/"):
            command[0] = product
        else:
            env["GCPT_LIBRARY"] = product
        command += ["1", str(seeds)] if seeds else []
        return self.started(command, env, entry["workdir"] or self.build)

    def confirmed(self, said):
        """The history that found something finds nothing in the library as it is."""
        explorer = os.path.join(self.build, "tests", "explore", "explore")
        command = [explorer, "--library", self.unchanged("explore"), "--seed",
                   hex(whole_seed_of(said))]
        verdict, _, others = self.started(
            command, {**os.environ, "MALLOC_PERTURB_": "0"}, self.build)
        if verdict == "NOT FOUND":
            return "FOUND", said
        return "BROKEN", "in the library as it is: " + what_it_said(others)

    def started(self, command, env, workdir):
        start = time.monotonic()
        try:
            test = Started(command, env, workdir)
        except OSError as error:
            return "BROKEN", time.monotonic() - start, str(error)
        code, said = test.watched()
        verdict = ("FOUND" if test.found else "TIMEOUT" if test.late
                   else "BROKEN" if code == EXPLORER_FAILS and is_explorer(command)
                   else verdict_of(code, said))
        if verdict == "TIMEOUT":
            said = f"not done after {TIMEOUT_S} s"
        return verdict, time.monotonic() - start, said


class Started:
    """A test that runs, in a group of processes of its own. With its first finding it is
    told to end: by SIGINT, by which scripts of Python clean up."""

    def __init__(self, command, env, workdir):
        self.found = self.late = False
        self.process = subprocess.Popen(
            command, env={**(env or os.environ), "PYTHONUNBUFFERED": "1"}, cwd=workdir,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True)

    def watched(self):
        """(exit code, what it said)"""
        timers, said = [self.timer(TIMEOUT_S)], ""
        with self.process:
            for line in self.process.stdout:
                said += line
                if self.found or not is_final(line, said):
                    continue
                self.found = True
                self.end(signal.SIGINT)
                timers.append(self.timer(ENDS_S))
        for timer in timers:
            timer.cancel()
        return self.process.returncode, said

    def timer(self, seconds):
        timer = threading.Timer(seconds, self.end, [signal.SIGKILL])
        timer.start()
        return timer

    def end(self, number):
        self.late |= number == signal.SIGKILL
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


def is_explorer(command):
    return os.path.basename(command[0]) == "explore"


def is_final(line, said):
    return re.match(FINAL, line) and not re.search(NOT_LOADED, said)


def verdict_of(code, said):
    """FOUND, NOT FOUND, or BROKEN: the test did not come to look at the library."""
    if re.search(NOT_LOADED, said):
        return "BROKEN"
    if code == 0:
        return "NOT FOUND"
    found = any(re.search(pattern, said, re.M) for pattern in FINDINGS)
    return "FOUND" if (found or ended_within(said)) and code != SKIP else "BROKEN"


def ended_within(said):
    """The number of the test that the program ended in: of cmocka's tests one that fails
    in a thread of its own ends all of them, and says nothing."""
    planned = sum(int(count) for count in re.findall(r"^1\.\.(\d+)$", said, re.M))
    done = len(re.findall(r"^(?:not )?ok \d+", said, re.M))
    return done + 1 if done < planned else 0


def what_it_said(said):
    """The test that failed first (cmocka), or the words that it failed with."""
    for pattern in FINDINGS:
        found = re.search(pattern, said, re.M)
        if found:
            return found.group(1)
    if ended_within(said):
        return f"the program ended in its test {ended_within(said)}"
    lines = [line for line in said.strip().split("\n") if line]
    return lines[-1] if lines else "nothing said"


def whole_seed_of(said):
    found = re.search(r"\bseed[ =](0x[0-9a-f]+|\d+)", said)
    return int(found.group(1), 0) if found else 0


def seed_of(said):
    return whole_seed_of(said) & (1 << 60) - 1  # without its generation (tests/explore/draw.h)


def judge(trials, mutant, test, seeds):
    verdict, seconds, said = trials.run(mutant.mutant if mutant else None, test, seeds)
    if mutant and verdict == "FOUND" and test.startswith("explore"):
        verdict, said = trials.confirmed(said)
    seed = f"{seed_of(said)} of {seeds}" if seeds else "1 run"
    return mutant, test, verdict, seconds, seed, what_it_said(said)


def unchanged(planned):
    """Each test once, with the most seeds that a mutant has of it, on no mutant."""
    most = {}
    for _, test, seeds in planned:
        most[test] = max(min(seeds, UNCHANGED_MAX.get(test, seeds)), most.get(test, 0))
    return [(None, test, seeds) for test, seeds in most.items()]


def said_of(judged):
    """Prints a line of the table; what is wrong, or None."""
    mutant, test, verdict, seconds, seed, said = judged
    wrong = None
    if verdict != ("FOUND" if mutant else "NOT FOUND"):
        rule = mutant.rule if mutant else "in the library as it is"
        said = f"{verdict}: {rule}: {said}"
        wrong = f"{mutant.mutant if mutant else '(no bug)'}: {test}: {said[:200]}"
    elif not mutant:
        said = "nothing found"
    print(f"{mutant.mutant if mutant else '(no bug)':42} {test:24} {seed:>12} "
          f"{seconds:5.1f}  {said[:120]}", flush=True)
    return wrong


def longest_first(planned, judged):
    """By what the tests took without a bug; histories by how many may be needed."""
    seconds = {test: took for _, test, _, took, _, _ in judged}
    return sorted(planned, key=lambda plan: -(plan[2] / 100 if plan[1] == "explore"
                                              else seconds[plan[1]]))


def demand(trials, planned):
    print(f"{'mutant':42} {'found by':24} {'seeds':>12} {'s':>5}  what it said")
    # A third of the time they sleep.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() + 3) as pool:
        first = list(pool.map(lambda plan: judge(trials, *plan), unchanged(planned)))
        wrong = [said_of(judged) for judged in first]
        wrong += map(said_of, pool.map(lambda plan: judge(trials, *plan),
                                       longest_first(planned, first)))
    wrong = [line for line in wrong if line]
    names = {mutant.mutant for mutant, _, _ in planned}
    for line in wrong:  # again: the table is long
        print(line)
    print(f"{len(names)} mutants, {len(planned)} trials of them, {len(wrong)} not found or broken")
    sys.exit(1 if wrong else 0)


def survey(trials, mutants, tests, seeds):
    """Of the unit tests only those that the mutant was linked with can be run."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant in mutants:
            own = [test for test, _, _ in mutant.trials()]
            chosen = [test for test in [*sorted(trials.tests), "explore"]
                      if test.startswith(tuple(tests)) and not test.startswith("explore/")
                      and (test in own or not test.startswith("unit/"))]
            results = list(pool.map(lambda test: trials.run(
                mutant.mutant, test, seeds if test == "explore" else 0), chosen))
            found = [f"{test}:{seed_of(result[2])}:{what_it_said(result[2])[:60]}"
                     if test == "explore" else test
                     for test, result in zip(chosen, results) if result[0] == "FOUND"]
            print(f"{mutant.mutant:42} {' '.join(found) or 'NOT FOUND'}", flush=True)


def run(arguments):
    mutants = tables_read(arguments.tables)
    if arguments.share:
        which, shares = (int(number) for number in arguments.share.split("/"))
        mutants = mutants[which::shares]
    if arguments.only:
        mutants = [mutant for mutant in mutants if mutant.mutant in arguments.only]
    if arguments.kind:
        mutants = [mutant for mutant in mutants if mutant.kind in arguments.kind]
    trials = Trials(arguments.build)
    planned = [(mutant, test, seeds) for mutant in mutants
               for test, seeds, slow in mutant.trials() if not (slow and arguments.fast)]
    missing = [mutant.mutant for mutant, test, _ in planned
               if test in NOT_EVERYWHERE and test not in trials.tests]
    planned = [trial for trial in planned if trial[0].mutant not in missing]
    if missing:
        print(f"left out, for want of their tests: {' '.join(missing)}")
    unbuilt = [mutant.mutant for mutant, test, _ in planned
               if not os.path.exists(trials.product(mutant.mutant, test))]
    if unbuilt:
        print(f"not built: {' '.join(unbuilt)}; ninja -C {arguments.build} mutants")
        sys.exit(SKIP if len(unbuilt) == len(planned) else 1)
    if arguments.every:
        survey(trials, mutants, arguments.every, arguments.seeds)
    else:
        demand(trials, planned)


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("plant")
    command.add_argument("tables")
    command.add_argument("root")
    command.add_argument("dir")
    command.set_defaults(do=plant)
    command = commands.add_parser("run")
    command.add_argument("tables")
    command.add_argument("build")
    command.add_argument("--only", nargs="+")
    command.add_argument("--kind", nargs="+", choices=KINDS)
    command.add_argument("--share", default=os.environ.get("GCPT_SHARE"))
    command.add_argument("--fast", action="store_true")
    command.add_argument("--every", nargs="+")
    command.add_argument("--seeds", type=int, default=500)
    command.set_defaults(do=run)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
