# SPDX-License-Identifier: MIT
"""Sections of documents that are made of something else, between two marks. For the
scripts here."""
import sys


def keep(path, marks, made, complaint):
    """The exit code of a script: with --write the section is renewed; else it must be as
    made, or the complaint is printed (a function: of what there is)."""
    text = path.read_text(encoding="utf-8")
    start, end = text.index(marks[0]) + len(marks[0]), text.index(marks[1])
    if "--write" in sys.argv:
        path.write_text(text[:start] + made + text[end:], encoding="utf-8")
    elif text[start:end] != made:
        print(complaint(text[start:end]) if callable(complaint) else complaint)
        return 1
    return 0
