# SPDX-License-Identifier: MIT
"""What machine this is, and the report of a run in Markdown."""

import datetime
import os
import platform
import subprocess


def words_of(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def describe(root, sim):
    gpus = words_of(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                     "--format=csv,noheader"])
    commit = os.environ.get("GCPOOL_COMMIT") or words_of(
        ["git", "-C", root, "describe", "--always", "--dirty", "--exclude", "*"])
    return {
        "device": "simulated" if sim else gpus.replace("\n", "; ") or "none found",
        "date": datetime.date.today().isoformat(),
        "commit": commit or "unknown",
        "CUDA": words_of(["nvcc", "--version"]).split("release ")[-1].split(",")[0] or "?",
        "system": f"{platform.libc_ver()[1]} glibc, {os.cpu_count()} cores",
    }


COLUMNS = ("check", "plain", "with library", "wanted", "verdict")


def cells(row):
    return [row.check, row.plain, row.pooled, row.wanted, row.verdict]


def table(rows):
    """The table as text, columns aligned."""
    lines = [list(COLUMNS)] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    text = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(text)


def section(name, command, facts, rows, probes, seconds):
    """What one group of checks found. Ends with an empty line."""
    bad = [row for row in rows if row.verdict == "FAIL"]
    text = [f"## {name}", "", f"- `{command}`"]
    text += [f"- {what}: {value}" for what, value in facts.items()]
    text += [f"- {len(rows)} checks, {len(bad)} failed, {seconds:.0f} s", "", table(rows), ""] \
        if rows else [""]
    for row in rows:
        if row.details.strip() and row.verdict != "ok":
            text += [f"### {row.check}: {row.verdict}", "", "```", row.details.strip()[:6000],
                     "```", ""]
    text += [row.appendix + "\n" for row in rows if row.appendix]
    for what, words in probes.items():
        if words.strip():
            text += [f"### {what}", "", "```", words.strip()[:20000], "```", ""]
    return "\n".join(text)


def sections_of(text, names):
    """{name: text} of a report that was written before."""
    found, name = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            name = line[3:]
        if name in names:
            found[name] = found.get(name, "") + line + "\n"
    return found


def merge(path, title, names, fresh):
    """Writes the report, with what it had of groups that did not run now."""
    old = {}
    if os.path.exists(path):
        with open(path) as file:
            old = sections_of(file.read(), names)
    old.update(fresh)
    with open(path, "w") as file:
        file.write("\n".join([f"# {title}\n"] + [old[name].rstrip() + "\n" for name in names
                                                  if name in old]))
