# SPDX-License-Identifier: MIT
"""wrong_calls.py EXPLORE LIBRARY - the explorer refuses what it cannot play, in a line and with
exit code 2: a call that plays nothing must not look like one that found nothing."""

import subprocess
import sys

explore, library = sys.argv[1:]
CALLS = (
    (("--plain", "--count", "x"), "--count needs a number"),
    (("--plain", "--count", "3x"), "--count needs a number"),
    (("--plain", "--count", "-3"), "--count needs a number"),
    (("--plain", "--jobs", ""), "--jobs needs a number"),
    (("--plain", "--seed"), "--seed needs a value"),
    (("--plain", "--seed", "x"), "--seed needs a number"),
    (("--plain", "--fault", "cuNothing:1"),
     "--fault needs a call of the table in faults.c, as in X:3+:2"),
    (("--plain", "--without", "luck"), "--without needs the name of an excuse, see excuses.h"),
    (("--plain", "--frozen", "/nonexistent"), "cannot read /nonexistent: No such file or directory"),
    (("--plain", "--kept", "/nonexistent"), "no histories in /nonexistent"),
    (("--plain", "--frob", "1"), "--frob is no argument, see main.c"),
    (("--plain", "--count", "0"), "no history was played"),
    (("--count", "1"), "--library is needed, or --plain"),
    (("--library", "/nonexistent", "--count", "1"), "--library needs a file that can be read"),
    (("--library", library, "--count", "0"), "no history was played"))


def main():
    wrong = 0
    for words, line in CALLS:
        done = subprocess.run([explore, *words], capture_output=True, text=True)
        if (done.returncode, done.stderr) != (2, f"explore: {line}\n"):
            print(f"{words}: {done.returncode} {done.stderr!r}, wanted {line!r}")
            wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
