#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How old published results are. Documents name the commits that their numbers were
measured at; docs/benchmarks.md lists each of them with how many commits have changed the
library since: at least so many, for the list is as old as its last renewal.

usage: ages.py ROOT [--write | --print]

Checked: each commit that a document names is in the history and either in the list or
newer than it, and what the list says is true. --write renews the list, --print shows
today's. Exit code 77: the history is not here.
"""
import pathlib
import re
import subprocess
import sys

LIBRARY = ("pool", "capture", "interpose")
PLACES = ("README.md", "docs/*.md", "tests/gpu/*.md", "tests/explore/**/*.md")
START = "<!-- ages of results -->\n\n"
END = "\n<!-- end of ages -->"
OF = "The library of "
SKIP = 77


def git(root, *words):
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def named(root):
    """{commit: the documents that name it}: seven to twelve hexadecimal digits, of which one
    is a letter and one is not, or so many digits after "commit", but for the list itself."""
    found = {}
    for place in PLACES:
        for path in sorted(root.glob(place)):
            text = re.sub(f"{re.escape(START)}.*?{re.escape(END)}", "",
                          path.read_text(encoding="utf-8"), flags=re.S)
            for word in re.findall(r"(?<![\w/.#-])[0-9a-f]{7,12}(?![\w.-]\w)\b", text):
                if re.search("[a-f]", word) and re.search("[0-9]", word):
                    found.setdefault(word, set()).add(str(path.relative_to(root)))
            for word in re.findall(r"\bcommit:? ([0-9]{7,12})\b(?!-)", text):
                found.setdefault(word, set()).add(str(path.relative_to(root)))
    return found


def behind(root, commit):
    """How many commits have changed the library since; None: it is not in the history."""
    if git(root, "merge-base", "--is-ancestor", commit, "HEAD") is None:
        return None
    return int(git(root, "rev-list", "--count", f"{commit}..HEAD", "--", *LIBRARY))


def table(root, commits):
    rows = []
    for commit, places in commits.items():
        age = behind(root, commit)
        rows.append((-1 if age is None else age, commit, ", ".join(sorted(places))))
    lines = [f"| {commit} | {'not in the history' if age < 0 else age} | {places} |"
             for age, commit, places in sorted(rows)]
    newest = git(root, "rev-list", "-1", "--abbrev=7", "--abbrev-commit", "HEAD", "--", *LIBRARY)
    return "\n".join([f"{OF}{newest}:", "", "| commit | library commits since | named in |",
                      "|---|---|---|", *lines]) + "\n"


def is_newer(root, commit, text):
    """Whether the commit came after those that the list knew."""
    known = text.partition(OF)[2].partition(":")[0]
    return behind(root, commit) is not None and git(
        root, "merge-base", "--is-ancestor", commit, known) is None


def check(root, commits, text):
    listed = dict(re.findall(r"^\| ([0-9a-f]{7,12}) \| ([^|]+?) \|", text, re.M))
    wrong = [f"{commit} ({', '.join(sorted(places))}) is not in the list"
             for commit, places in commits.items()
             if commit not in listed and not is_newer(root, commit, text)]
    for commit, said in listed.items():
        age = behind(root, commit)
        if age is None or not said.isdigit() or age < int(said):
            wrong.append(f"{commit} is said to be {said} commits old, and is "
                         f"{'not in the history' if age is None else age}")
    return wrong


def main():
    root = pathlib.Path(sys.argv[1])
    top = git(root, "rev-parse", "--show-toplevel")
    if not top or pathlib.Path(top).resolve() != root.resolve() or git(
            root, "rev-parse", "--is-shallow-repository") != "false":
        print("no history of this source here")
        return SKIP
    path = root / "docs" / "benchmarks.md"
    text = path.read_text(encoding="utf-8")
    start, end = text.index(START) + len(START), text.index(END)
    commits = named(root)
    if all(behind(root, commit) is None for commit in commits):
        print("no history of this source here: of the commits that documents name it has none")
        return SKIP
    if "--print" in sys.argv:
        print(table(root, commits), end="")
        return 0
    if "--write" in sys.argv:
        path.write_text(text[:start] + table(root, commits) + text[end:], encoding="utf-8")
        return 0
    wrong = check(root, commits, text[start:end])
    if wrong:
        print("docs/benchmarks.md does not say how old results are:\n" + "\n".join(wrong))
        print("run tests/tidy/ages.py . --write")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
