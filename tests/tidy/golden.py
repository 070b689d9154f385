#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The golden files, which were recorded on a GPU, are those that were recorded: their
lines and checksums are in tests/sim/golden.md. `scripts/gpu-check --record` writes both.

usage: golden.py ROOT [--write]
"""
import hashlib
import pathlib
import sys

MARKS = ("<!-- golden files -->\n\n", "\n<!-- end of golden files -->")


def table(place):
    rows = ["| file | lines | SHA-256 |", "|---|---|---|"]
    for path in sorted(place.glob("conform_*.golden")):
        said = path.read_bytes()
        rows += [f"| {path.name} | {said.count(10)} | {hashlib.sha256(said).hexdigest()} |"]
    return "\n".join(rows) + "\n"


def main():
    place = pathlib.Path(sys.argv[1]) / "tests" / "sim"
    path, made = place / "golden.md", table(place)
    text = path.read_text(encoding="utf-8")
    start, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
    if "--write" in sys.argv:
        path.write_text(text[:start] + made + text[end:], encoding="utf-8")
    elif text[start:end] != made:
        print("a golden file is not the one that was recorded (tests/sim/golden.md):",
              *sorted(set(made.splitlines()) ^ set(text[start:end].splitlines())), sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
