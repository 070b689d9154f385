# SPDX-License-Identifier: MIT
"""needed.py EXPLORE LIBRARY - each row of excuses.h is needed: without it a history of kept/
fails that passes with it. A row for which none is named is an error."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# What threads do at the same time, and when the device has done its work, no seed says.
TRIES = 20
HISTORIES = {
    "rounded": "9000000000000014", "graphs": "9000000000000400", "concurrent": "30000000002ea200",
    "pinned busy": "700001a2088d2ece", "wait full": "50000000b500008a",
    "wait pinned": "50000001cf20e59b", "wait capture": "30000000009e8070",
    "wait lane": "b0000000000e09db", "launch full": "c000abcd111122b9",
    "wait export": "100001a1fd7b8988", "wait devices": "c000000ddd000983",
    "left": "40000000044c9249", "pinned limit": "9000000000000caa", "fault": "5"}


def rows():
    text = (HERE / "excuses.h").read_text().partition("#define EXPLORE_EXCUSES")[2]
    return re.findall(r'\tX\(\w+, "([^"]+)"', text)


def fails(explore, library, row, history):
    """What was said of it, or None."""
    done = subprocess.run([explore, "--library", library, "--without", row, "--frozen",
                           str(HERE / "kept" / history)], capture_output=True, text=True)
    said = done.stdout.strip().split("\n")[-1]
    if done.returncode == 1:
        return said.split(" operations: ")[-1]
    if done.returncode != 0:
        sys.exit(f"{row}: {said}{done.stderr}")
    return None


def main():
    explore, library = sys.argv[1:]
    if sorted(rows()) != sorted(HISTORIES):
        sys.exit(f"needed.py and excuses.h differ: {set(rows()) ^ set(HISTORIES)}")
    wrong = 0
    for row, kept in HISTORIES.items():
        said = next(filter(None, (fails(explore, library, row, kept) for _ in range(TRIES))), None)
        print(f"{row}: {kept}: {said}")
        wrong += said is None
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
