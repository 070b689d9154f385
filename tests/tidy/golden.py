#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The golden files, which were recorded on a GPU, are those that were recorded: their
lines and checksums are in tests/sim/golden.md. `scripts/record-golden --record` writes
both.

usage: golden.py ROOT [--write]
"""
import hashlib
import pathlib
import sys

START = "<!-- golden files -->\n\n"
END = "\n<!-- end of golden files -->"


def table(place):
    rows = ["| file | lines | SHA-256 |", "|---|---|---|"]
    for path in sorted(place.glob("conform_*.golden")):
        said = path.read_bytes()
        rows += [f"| {path.name} | {said.count(10)} | {hashlib.sha256(said).hexdigest()} |"]
    return "\n".join(rows) + "\n"


def main():
    place = pathlib.Path(sys.argv[1]) / "tests" / "sim"
    path = place / "golden.md"
    text = path.read_text()
    start, end = text.index(START) + len(START), text.index(END)
    wanted = table(place)
    if "--write" in sys.argv:
        path.write_text(text[:start] + wanted + text[end:])
    elif text[start:end] != wanted:
        print("a golden file is not the one that was recorded (tests/sim/golden.md):")
        print("\n".join(sorted(set(wanted.splitlines()) ^ set(text[start:end].splitlines()))))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
