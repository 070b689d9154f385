#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Words that are out, and where they still stand.

  vocabulary.py ROOT           exit code 1: a word stands where vocabulary.txt does not
                               allow it, or less often than that file says
  vocabulary.py ROOT --write   writes vocabulary.txt anew: its lines only ever shrink,
                               so a reviewer refuses a change that makes one grow.
                               Each line says why, behind the number

In comments, documents, names and messages: the subject of a sentence is a thing, the
block, the epoch, the caller, the thread. CONTRIBUTING.md says which words take their
place."""

import collections
import os
import re
import sys

sys.dont_write_bytecode = True
import sources

OUT = """bystander crowd hurried shelf shelves tally tallies swallow swallowed surrender
surrendered world lodger widened dear regroup regrouped regroups settle settled settles
visit visits visitor visitors vacate dissolve abandon abandoned depart retire patience
spoil spoiled nap naps forget forgets forgot forgotten tide tides by_hand in_vain let_go
who whoever whom nobody no.one somebody someone everybody everyone anybody
anyone he his him himself""".split()

LIST = os.path.join("tests", "tidy", "vocabulary.txt")
C = (".c", ".h", ".S", ".cu", ".cpp")
TEXT = (".md", ".py", ".sh", "meson.build")
SKIPPED = re.compile(
    r"tests/tidy/vocabulary\.py|CONTRIBUTING\.md|CHANGELOG\.md|debian/"
    r"|tests/gpu/(results|bench)\.md|tests/bench/traces/")

# An underscore parts words of a name: gcp_world_lock has "world".
PATTERN = re.compile(r"(?<![A-Za-z])(%s)(?![A-Za-z])" % "|".join(OUT), re.I)


def files(root):
    tree = sources.Tree(root)
    scripts = set(tree.scripts(b"/bin/sh") + tree.scripts(b"python3"))
    return [name for name in tree.names
            if (name.endswith(C + TEXT) or name in scripts) and not SKIPPED.match(name)]


def found_in(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as file:
        text = file.read()
    for found in PATTERN.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found.group().lower()


def listed(root):
    """Name -> (how many, why)."""
    allowed = {}
    with open(os.path.join(root, LIST), encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                name, count, *why = line.split(maxsplit=2)
                allowed[name] = int(count), "".join(why).strip()
    return allowed


def complaints(root, found, allowed):
    for name, places in found.items():
        if len(places) > allowed.get(name, (0,))[0]:
            for line, word in places:
                yield "%s:%d: %s" % (name, line, word)
            if name in allowed:
                yield "%s: %d such words, at most %d" % (name, len(places), allowed[name][0])
    for name, (count, why) in allowed.items():
        if not why:
            yield "%s: %s does not say why its words stay" % (name, LIST)
        if len(found[name]) < count:
            yield "%s: %d such words are left, but %s says %d" % (
                name, len(found[name]), LIST, count)


def main():
    root = sys.argv[1]
    found = collections.defaultdict(list)
    for name in files(root):
        found[name] = list(found_in(root, name))
    if "--write" in sys.argv:
        kept = listed(root)
        with open(os.path.join(root, LIST), "w", encoding="utf-8") as file:
            file.write("# Files with words that are out (vocabulary.py), how many, and why.\n")
            file.writelines(" ".join([n, str(len(p)), kept.get(n, ("", ""))[1]]).strip() + "\n"
                            for n, p in found.items() if p)
        return
    said = list(complaints(root, found, listed(root)))
    print("\n".join(said))
    sys.exit(1 if said else 0)


if __name__ == "__main__":
    main()
