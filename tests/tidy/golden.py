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

import section

MARKS = ("<!-- golden files -->\n\n", "\n<!-- end of golden files -->")


def table(place):
    rows = ["| file | lines | SHA-256 |", "|---|---|---|"]
    for path in sorted(place.glob("conform_*.golden")):
        said = path.read_bytes()
        rows += [f"| {path.name} | {said.count(10)} | {hashlib.sha256(said).hexdigest()} |"]
    return "\n".join(rows) + "\n"


def main():
    place = pathlib.Path(sys.argv[1]) / "tests" / "sim"
    made = table(place)
    return section.keep(
        place / "golden.md", MARKS, made,
        lambda said: "\n".join(["a golden file is not the one that was recorded (tests/sim/golden.md):",
                                *sorted(set(made.splitlines()) ^ set(said.splitlines()))]))


if __name__ == "__main__":
    sys.exit(main())
