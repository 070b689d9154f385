# SPDX-License-Identifier: MIT
"""misuse.py PROGRAM MISUSES ROWS VERSION [NAME ...]

Runs each misuse of misuse.c, and each row of rows.txt, or those that are named, on the
simulated device: the exit code plain and under the library, and all that the library says
("libgcpool[pid]: " is left out), must be as it stands there."""

import argparse
import os
import re
import subprocess
import sys
import tempfile


def row_of(line):
    parser = argparse.ArgumentParser()
    parser.add_argument("--misuse", default="allocate")
    parser.add_argument("--plain", type=int, default=0)
    parser.add_argument("--code", type=int)
    parser.add_argument("--more", action="store_true")
    parser.add_argument("environment", nargs="*")
    name, _, words = line.partition(":")
    row = parser.parse_intermixed_args(words.replace("\\n", "\n").split(" ")[1:])
    row.name, row.say, row.log = name, [], []
    return row


def rows_of(misuses, rows):
    """All that is run, in order."""
    found = {}
    with open(misuses, encoding="utf-8") as file:
        for name, code in re.findall(r"^MISUSE\((\w+), (\d+)\)", file.read(), re.M):
            found[name] = row_of(f"{name}: --misuse {name} --plain {code}")
    with open(rows, encoding="utf-8") as file:
        for line in file.read().split("\n"):
            if line.startswith("\tlog: "):
                row.log.append(line[6:])
            elif line.startswith("\t"):
                row.say.append(line[1:])
            elif line and line[0] != "#":
                row = row_of(line)
                row = found.setdefault(row.name, row)
    return found.values()


def run(program, options, library, log):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GCPOOL_", "GCPSIM_")) and name != "LD_PRELOAD"}
    env.update(GCPSIM_MEMORY="1G", LD_LIBRARY_PATH=os.environ["GCPT_PATH"])
    # The pools live as long as the process, by design: they are no leak.
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    env.update(pair.split("=", 1) for pair in options.environment)
    if env.get("GCPOOL_LOG_FILE") == "@":
        env["GCPOOL_LOG_FILE"] = log
    if library:
        first = os.environ.get("GCPT_FIRST", "")
        env["LD_PRELOAD"] = ":".join(path for path in (first, library) if path)
    done = subprocess.run([program, options.misuse], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def lines_of(text):
    """What the library said, without the process id and the commit it was built from."""
    return [re.sub(r"^libgcpool\[\d+\]: (version \S+(?= \())?(?(1) \([^)]*\))", r"\1", line)
            for line in text.splitlines()]


def check(what, got, wanted):
    if got != wanted:
        print("%s:\n  wanted %r\n  got    %r" % (what, wanted, got))
        return 1
    return 0


def play(program, row, version):
    said_wanted = [line.replace("@PROGRAM@", program).replace("@VERSION@", version)
                   for line in row.say]
    with tempfile.TemporaryDirectory() as directory:
        log = os.path.join(directory, "log")
        code, said = run(program, row, None, log)
        wrong = check("exit code, plain", code, row.plain)
        code, said = run(program, row, os.environ["GCPT_LIBRARY"], log)
        wrong += check("exit code", code, row.plain if row.code is None else row.code)
        said = lines_of(said)
        said = said[: len(said_wanted)] if row.more else said
        wrong += check("said on stderr", said, said_wanted)
        logged = open(log, encoding="utf-8").read() if os.path.exists(log) else ""
        return wrong + check("said in the log", lines_of(logged), row.log)


def main():
    program, misuses, rows, version, *chosen = sys.argv[1:]
    wrong = 0
    for row in rows_of(misuses, rows):
        if not chosen or row.name in chosen:
            print("--", row.name, flush=True)
            wrong += play(program, row, version)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
