#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The first table of docs/benchmarks.md: what each group of GPU checks found when it ran
last, as tests/gpu/results.md and tests/gpu/bench.md have it, which scripts/gpu-check
writes.

usage: results.py ROOT [--write]
"""
import pathlib
import re
import sys

import section

MARKS = ("<!-- groups of checks: tests/gpu -->\n\n", "\n<!-- end of groups -->")


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def failed(text):
    """What failed, of the rows of a group: the check, what was found and what was wanted."""
    found = []
    for row in re.findall(r"^\|.*\| FAIL +\|$", text, re.M):
        check, _, library, wanted, _ = (cells(row) + [""] * 5)[:5]
        found.append(f"{check}: {library or 'no answer'}" + (f"; wanted {wanted}" if wanted else ""))
    return found


def group_row(name, text):
    commit = re.search(r"^- commit: (\S+)", text, re.M).group(1)
    date = re.search(r"^- date: (\S+)", text, re.M).group(1)
    count, wrong, remark = re.search(
        r"^- (\d+) checks, (\d+) failed, [\d.]+ s(?:, )?(.*)$", text, re.M).groups()
    words = failed(text)
    if len(words) != int(wrong):
        sys.exit(f"tests/gpu: {name}: {wrong} checks failed, and {len(words)} rows say so")
    return f"| {name} | {commit}, {date} | {count}, {wrong} | {'<br>'.join(words)} | {remark} |"


def table(root):
    rows = ["| group | commit, day | checks, failed | what failed | remark |", "|---|---|---|---|---|"]
    for name in ("results.md", "bench.md"):
        text = (root / "tests" / "gpu" / name).read_text(encoding="utf-8")
        groups = re.split(r"^## (\S+)\n", text, flags=re.M)[1:]
        rows += [group_row(group, body) for group, body in zip(groups[::2], groups[1::2])
                 if re.search(r"^- \d+ checks", body, re.M)]
    return "\n".join(rows) + "\n"


def main():
    root = pathlib.Path(sys.argv[1])
    return section.keep(root / "docs" / "benchmarks.md", MARKS, table(root),
                        "docs/benchmarks.md has not what the groups of checks in tests/gpu found:\n"
                        "run tests/tidy/results.py . --write")


if __name__ == "__main__":
    sys.exit(main())
