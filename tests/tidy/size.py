#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""size.py ROOT - how large the rooms are: lines and files, tuning constants (enumerators
of unnamed enums to which a value is given; those of pool/check, which tests alone link,
do not count), and circles of files (sources.py). Takes older trees too."""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from sources import ROOMS, Tree, arrows, circles, code_of  # noqa: E402

UNNAMED = re.compile(r"\benum \{([^}]*)\}")
VALUE = re.compile(r"\b([A-Z]\w+)\s*=\s*[^,]+")


def constants(tree, names):
    texts = [code_of(tree.read(name)) for name in names
             if name.endswith((".c", ".h")) and "/check/" not in name]
    return sum(len(VALUE.findall(body)) for text in texts for body in UNNAMED.findall(text))


def main():
    tree = Tree(sys.argv[1])
    for room in ROOMS:
        names = [name for name in tree.ending(".c", ".h", ".S") if name.startswith(room + "/")]
        lines = sum(tree.read(name).count("\n") for name in names)
        found = sorted((len(circle) for circle in circles(arrows(tree, room))), reverse=True)
        print("%-10s %6d lines in %3d files, %3d constants, circles of files: %s" % (
            room, lines, len(names), constants(tree, names),
            ", ".join(map(str, found)) or "none"))


if __name__ == "__main__":
    main()
