#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The explorer's excuses (tests/explore/excuses.h) and their table in docs/limits.md.

usage: excuses.py ROOT [--write]
"""
import pathlib
import re
import sys

import section

MARKS = ("<!-- excuses: tests/explore/excuses.h -->\n\n", "\n<!-- end of excuses -->")


def table(root):
    source = (root / "tests" / "explore" / "excuses.h").read_text()
    source = source[source.index("#define EXPLORE_EXCUSES") :]
    source = re.sub(r'"\s*\\\s*"', "", source)  # a text that goes on in the next line
    rows = re.findall(r'X\((\w+), "([^"]+)",[\s\\]*"([^"]+)"\)', source)
    if len(rows) != source.count("\tX("):
        sys.exit("excuses.h: a row is not X(NAME, \"name\", \"reason\")")
    lines = [f"| {name} | {reason} |" for _, name, reason in rows]
    return "\n".join(["| excuse | the difference, and why |", "|---|---|"] + lines) + "\n"


def main():
    root = pathlib.Path(sys.argv[1])
    return section.keep(root / "docs" / "limits.md", MARKS, table(root),
                        "docs/limits.md does not list the excuses of tests/explore/excuses.h:\n"
                        "run tests/tidy/excuses.py . --write")


if __name__ == "__main__":
    sys.exit(main())
