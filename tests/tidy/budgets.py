#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the size of the project with its budgets.

  budgets.py ROOT [--library FILE] [--reach] [--lower]

Prints one row for each budget of budgets.txt: what is measured, the ceiling, the goal.
Exit code 1: something is above its ceiling, or a ceiling was raised.

  --library FILE  also measures the code of the built library
  --reach         also measures how many functions and files a call can reach (reach.py:
                  compiles the library once, about 30 s)
  --lower         writes what was measured as the new ceilings

"""

# Code lines are lines that are neither blank nor comment. A constant is an enumerator of
# an unnamed enum to which a value is given. An include runs upwards if it names a header
# of a later folder of its room (FOLDERS of sources.py). pool/check does not count.
import argparse
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reach  # noqa: E402
from sources import ROOMS, Tree, arrows, circles, code_of, floor_of  # noqa: E402

TABLE = "tests/tidy/budgets.txt"
UNNAMED = re.compile(r"\benum \{([^}]*)\}")
VALUE = re.compile(r"\b([A-Z]\w+)\s*=\s*[^,]+")
HASHED = (".py", ".sh", ".txt", "meson.build", ".ini", ".toml", ".bash", ".fish")
CODE = (".c", ".h", ".S", ".cu", ".cpp", ".css", ".js", ".html") + HASHED


def code_lines(name, text):
    if name.endswith(HASHED) or text.startswith("#!"):
        return sum(1 for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#"))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return sum(1 for line in text.split("\n") if line.strip() and not line.lstrip().startswith("//"))


def counted(tree, place):
    """Code lines of a folder: of its documents all lines, of a room what is compiled."""
    total = 0
    for name in tree.names:
        if name != place and not name.startswith(place + "/") or name.startswith("pool/check/"):
            continue
        text = tree.read(name) if not name.endswith((".xz", ".png")) else ""
        if place in ("docs", "README.md"):
            total += text.count("\n") if name.endswith(".md") else 0
        elif name.endswith(CODE) or text.startswith("#!"):
            total += code_lines(name, text)
    return total


def constants(tree):
    texts = [code_of(tree.read(name)) for name in tree.ending(".c", ".h")
             if name.startswith("pool/") and "/check/" not in name]
    return sum(len(VALUE.findall(body)) for text in texts for body in UNNAMED.findall(text))


def includes_upwards(tree):
    found = 0
    for name in tree.ending(".c", ".h"):
        room = name.split("/")[0]
        if room not in ("pool", "interpose"):
            continue
        for include in re.findall(r'#\s*include "([^"]+)"', tree.read(name)):
            other = os.path.normpath(os.path.join(os.path.dirname(name), include))
            if other.startswith(room + "/") and floor_of(other) > max(floor_of(name), 0):
                found += 1
    return found


def files_in_circles(tree):
    return sum(len(circle) for room in ROOMS for circle in circles(arrows(tree, room)))


def assertions(tree, room):
    return sum(len(re.findall(r"\b(?:assert|gcp_assert\w*)\(", code_of(tree.read(name))))
               for name in tree.ending(".c", ".h") if name.startswith(room + "/"))


def text_kilobytes(library):
    done = subprocess.run(["size", library], capture_output=True, text=True, check=True)
    return (int(done.stdout.split("\n")[1].split()[0]) + 1023) // 1024


def rows_of(text):
    """name -> [ceiling, goal], in the order of the table."""
    rows = {}
    for line in text.split("\n"):
        if line.strip() and not line.startswith("#"):
            name, ceiling, goal = (word.strip() for word in line.split("|"))
            rows[name] = [int(ceiling), int(goal)]
    return rows


def measured(tree, names, options):
    """name -> value, of those that can be measured now."""
    walk = reach.graph(os.path.abspath(tree.root)) if options.reach else None
    found = {}
    for name in names:
        kind, _, what = name.partition(" ")
        if kind == "lines":
            found[name] = sum(counted(tree, place) for place in what.split("+"))
        elif kind == "assertions":
            found[name] = assertions(tree, what)
        elif kind in ("functions", "files") and walk:
            edges, home = walk
            seen = reach.reached(edges, home, what)
            found[name] = len(seen) if kind == "functions" else len({home[n] for n in seen} - {""})
        elif kind == "text" and options.library:
            found[name] = text_kilobytes(options.library)
    found.update({
        "constants in pool": constants(tree), "includes upwards": includes_upwards(tree),
        "files in circles": files_in_circles(tree)})
    return {name: value for name, value in found.items() if name in names}


def raised(root, rows):
    """Rows whose ceiling is above that of an earlier commit."""
    def git(*words):
        if not shutil.which("git"):
            return ""
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else ""

    for commit in git("log", "--format=%h", "-20", "--", TABLE).split():
        for name, (ceiling, _) in rows_of(git("show", "%s:%s" % (commit, TABLE))).items():
            now = rows.get(name, [0])[0]
            if name.startswith("assertions"):
                continue
            if now > ceiling:
                yield "%s: the ceiling is %d, and was %d in %s" % (name, now, ceiling, commit)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--library")
    parser.add_argument("--reach", action="store_true")
    parser.add_argument("--lower", action="store_true")
    options = parser.parse_args()
    tree = Tree(options.root)
    path = os.path.join(options.root, TABLE)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    rows = rows_of(text)
    found = measured(tree, rows, options)
    wrong = list(raised(options.root, rows))
    print("%-44s %9s %9s %9s" % ("", "now", "ceiling", "goal"))
    for name, (ceiling, goal) in rows.items():
        value = found.get(name)
        print("%-44s %9s %9d %9d" % (name, "-" if value is None else value, ceiling, goal))
        low = name.startswith("assertions")  # these are to rise
        if value is not None and (value < ceiling if low else value > ceiling):
            wrong.append("%s: %d, the %s is %d" % (name, value, "floor" if low else "ceiling", ceiling))
    if options.lower:
        for name, value in found.items():
            line = re.search(r"^%s *\|.*$" % re.escape(name), text, re.M).group(0)
            text = text.replace(line, "%-40s | %7d | %7d" % (name, value, rows[name][1]))
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    for line in wrong:
        print("budgets: " + line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
