#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tables of docs/benchmarks.md that GPU checks give: what each group found when it
ran last, and the rows of some groups. tests/gpu/results.md and tests/gpu/bench.md have
them, which scripts/gpu-check writes. How many commits have changed the library since is
what the list of ages.py on that page says: that one is renewed first.

usage: results.py ROOT [--write]
"""
import pathlib
import re
import sys

import ages
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


def ages_of(path):
    """{commit: how many commits have changed the library since}, as the page's list says."""
    text = path.read_text(encoding="utf-8").partition(ages.START)[2].partition(ages.END)[0]
    return dict(re.findall(r"^\| ([0-9a-f]{7,12}) \| (\d+) \|", text, re.M))


def group_row(name, text, known):
    commit = re.search(r"^- commit: (\S+)", text, re.M).group(1)
    date = re.search(r"^- date: (\S+)", text, re.M).group(1)
    count, wrong, remark = re.search(
        r"^- (\d+) checks, (\d+) failed, [\d.]+ s(?:, )?(.*)$", text, re.M).groups()
    since = int(known.get(commit, 0))
    remark = "; ".join(([f"{since} library commits since"] if since else [])
                       + ([remark] if remark else []))
    words = failed(text)
    if len(words) != int(wrong):
        sys.exit(f"tests/gpu: {name}: {wrong} checks failed, and {len(words)} rows say so")
    return f"| {name} | {commit}, {date} | {count}, {wrong} | {'<br>'.join(words)} | {remark} |"


def groups_of(root):
    """Name and text of each group that has run."""
    found = []
    for name in ("results.md", "bench.md"):
        text = (root / "tests" / "gpu" / name).read_text(encoding="utf-8")
        groups = re.split(r"^## (\S+)\n", text, flags=re.M)[1:]
        found += [(group, body) for group, body in zip(groups[::2], groups[1::2])
                  if re.search(r"^- \d+ checks", body, re.M)]
    return found


def table(groups, known):
    rows = ["| group | commit, day | checks, failed | what failed | remark |", "|---|---|---|---|---|"]
    return "\n".join(rows + [group_row(group, body, known) for group, body in groups]) + "\n"


def heading(name, text):
    """Where the rows come from."""
    commit = re.search(r"^- commit: (\S+)", text, re.M).group(1)
    date = re.search(r"^- date: (\S+)", text, re.M).group(1)
    remark = re.search(r"^- \d+ checks, \d+ failed, [\d.]+ s(.*)$", text, re.M).group(1)
    return f"`scripts/gpu-check --only {name}`, commit {commit}, {date}{remark}:\n\n"


def table_after(text, first):
    """The cells of the table whose heading begins with the cell `first`."""
    rows = text.split(f"| {first} ", 1)[1].split("\n\n", 1)[0].split("\n")[2:]
    return [cells(row) for row in rows if row.startswith("|")]


def checks_with_times(name, text):
    """The checks that tell a time, as they are."""
    rows = ["| | plain CUDA | with the library | wanted, or to compare |", "|---|---|---|---|"]
    rows += [f"| {' | '.join(row[:4])} |" for row in table_after(text, "check")
             if re.search(r"\d (us|ns|ms)\b|^[01]\.\d+$", row[2])]
    return heading(name, text) + "\n".join(rows) + "\n"


def beside_earlier(name, text):
    """An earlier build, and this one."""
    command = re.search(r"^- `(scripts/gpu-check .*)`$", text, re.M).group(1)
    rows = ["| | earlier build | default | at most 3 % slower |", "|---|---|---|---|"]
    rows += [f"| {check} | {earlier} | {own} | {'yes' if verdict == 'ok' else 'no'} |"
             for check, earlier, own, _, verdict in table_after(text, "check")]
    return heading(name, text).replace(f"scripts/gpu-check --only {name}", command) + \
        "\n".join(rows) + "\n"


def thousands(number):
    return f"{int(number):,}"


def side_by_side(name, text):
    """Allocators by sizes: the first and the last number of threads."""
    times, sizes = {}, []
    for size, allocator, one, *_, many, _ in table_after(text, "sizes"):
        if size not in sizes:
            sizes.append(size)
        pair = [re.match(r"\d+", cell) for cell in (one, many)]
        times.setdefault(allocator, {})[size] = " / ".join(
            thousands(found.group()) if found else "" for found in pair)
    rows = [f"| | {' | '.join(sizes)} |", "|---" * (len(sizes) + 1) + "|"]
    rows += [f"| {allocator} | {' | '.join(row.get(size, '') for size in sizes)} |"
             for allocator, row in times.items()]
    return heading(name, text) + "\n".join(rows) + "\n"


def caches(name, text):
    """Frameworks: each work with each cache, and the memory in use on the device."""
    rows = ["| | cache | a step | of its own cache's | MiB, device |", "|---|---|---|---|---|"]
    rows += [f"| {work} | {cache} | {step} ms | {share} | {thousands(device)} |"
             for work, cache, step, share, device, *_ in table_after(text, "work")]
    return heading(name, text) + "\n".join(rows) + "\n"


def told_by_readme(root, texts):
    """Numbers of README's first table that no group has found."""
    known = " ".join(texts.values()).replace(",", "")
    rows = (root / "README.md").read_text(encoding="utf-8").split("| plain CUDA |", 1)[1]
    rows = [cells(row)[1:] for row in rows.split("\n\n", 1)[0].split("\n")[2:]]
    numbers = re.findall(r"\d[\d,.]*\d", " ".join(" ".join(row) for row in rows))
    return [n for n in numbers if not re.search(rf"(?<![\d.]){n.replace(',', '')}(?![\d])", known)]


ROWS = {"speed": checks_with_times, "pinned": checks_with_times, "peers": side_by_side,
        "frameworks": caches, "against": beside_earlier}


def main():
    root = pathlib.Path(sys.argv[1])
    groups = groups_of(root)
    complaint = ("docs/benchmarks.md has not what the groups of checks in tests/gpu found:\n"
                 "run tests/tidy/results.py . --write")
    path, texts = root / "docs" / "benchmarks.md", dict(groups)
    wrong = section.keep(path, MARKS, table(groups, ages_of(path)), complaint)
    for name, made in ROWS.items():
        marks = (f"<!-- rows of {name} -->\n\n", f"\n<!-- end of {name} -->")
        wrong |= section.keep(path, marks, made(name, texts[name]), complaint)
    unknown = told_by_readme(root, texts)
    if unknown:
        print(f"README.md: no group of checks has found {', '.join(unknown)}")
    return wrong or bool(unknown)


if __name__ == "__main__":
    sys.exit(main())
