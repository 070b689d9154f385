#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The file map of docs/architecture.md: one row for each base name of the three
rooms, with the opening sentence of its .c file, or of its .h file where that only
refers to it.

  filemap.py ROOT           prints it; exit code 1: the document has another one
  filemap.py ROOT --write   writes it into the document
"""

import collections
import os
import re
import sys

from sources import FOLDERS

DOCUMENT = os.path.join("docs", "architecture.md")
BEGIN, END = "<!-- file map: tests/tidy/filemap.py -->", "<!-- end of file map -->"
ROOMS = ("pool", "capture", "interpose")
ENDINGS = (".c", ".h", ".S")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def sentence_of(text):
    """The first sentence behind the name of the file in its opening comment."""
    text = re.sub(r"^/\* SPDX[^\n]*\n", "", text)
    opening = re.match(r"/\*\n?(.*?)\*/", text, re.S)
    words = re.sub(r"\n \* ?", "\n", opening.group(1)) if opening else ""
    words = words.strip().lstrip("* ").split("\n\n")[0].replace("\n", " ")
    words = words.partition(" - ")[2] or words
    found = re.match(r"(.*?[.])(\s|$)", words + " ")
    return re.sub(r"\s+", " ", found.group(1) if found else words).rstrip(".")


def rows_of(root, room):
    """Those of the room itself, and then of its folders, in the order of sources.py."""
    yield from rows_of_folder(root, room, "")
    for folder in FOLDERS.get(room, []):
        yield from rows_of_folder(root, os.path.join(room, folder), folder + "/")


def rows_of_folder(root, room, shown_folder):
    files = collections.defaultdict(list)
    for name in sorted(os.listdir(os.path.join(root, room))):
        base, ending = os.path.splitext(name)
        if ending in ENDINGS:
            files[base].append(ending)
    for base, endings in files.items():
        endings.sort(key=ENDINGS.index)
        sentences = [sentence_of(read(root, room, base + ending)) for ending in endings]
        said = next((s for s in sentences if s and base + ".h" not in s), "")
        shown = endings[0] if len(endings) == 1 else ".[%s]" % "".join(e[1] for e in endings)
        yield "| `%s%s%s` | %s |" % (shown_folder, base, shown, said.replace("|", "\\|"))


def file_map(root):
    lines = []
    for room in ROOMS:
        lines += ["", "### %s/" % room, "", "| file | |", "|---|---|", *rows_of(root, room)]
    return "\n".join([BEGIN, *lines, "", END])


def main():
    root = sys.argv[1]
    made, text = file_map(root), read(root, DOCUMENT)
    start, end = text.find(BEGIN), text.find(END)
    if start < 0 or end < 0:
        sys.exit("%s has no place for the file map" % DOCUMENT)
    if "--write" in sys.argv:
        with open(os.path.join(root, DOCUMENT), "w", encoding="utf-8") as file:
            file.write(text[:start] + made + text[end + len(END) :])
    elif made not in text:
        print("the file map of %s is not that of the sources: run %s %s --write"
              % (DOCUMENT, sys.argv[0], root))
        sys.exit(1)
    else:
        print(made)


if __name__ == "__main__":
    main()
