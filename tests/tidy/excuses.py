#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The explorer's excuses (tests/explore/excuses.h) and their table in docs/limits.md.

usage: excuses.py ROOT [--write]
"""
import pathlib
import re
import sys

START = "<!-- excuses: tests/explore/excuses.h -->\n\n"
END = "\n<!-- end of excuses -->"


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
    path = root / "docs" / "limits.md"
    text = path.read_text()
    start = text.index(START) + len(START)
    end = text.index(END)
    wanted = table(root)
    if "--write" in sys.argv:
        path.write_text(text[:start] + wanted + text[end:])
    elif text[start:end] != wanted:
        print("docs/limits.md does not list the excuses of tests/explore/excuses.h:")
        print("run tests/tidy/excuses.py . --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
