# SPDX-License-Identifier: MIT
"""What machine this is, and the report of a run in Markdown."""

import ctypes
import datetime
import os
import platform
import subprocess
import uuid


def words_of(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def uuids_seen():
    """The devices that CUDA shows to this process (CUDA_VISIBLE_DEVICES), in its order."""
    try:
        cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return []
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    found = []
    for number in range(count.value):
        device, name = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if not cuda.cuDeviceGet(ctypes.byref(device), number) and \
                not cuda.cuDeviceGetUuid(ctypes.byref(name), device):
            found.append("GPU-" + str(uuid.UUID(bytes=bytes(name))))
    return found


def devices():
    """Name, driver and memory of each device that CUDA shows."""
    listed = words_of(["nvidia-smi", "--query-gpu=uuid,name,driver_version,memory.total",
                       "--format=csv,noheader"])
    known = dict(line.split(", ", 1) for line in listed.splitlines() if ", " in line)
    return "; ".join(known.get(name, name) for name in uuids_seen()) or "none found"


WRITTEN = ("tests/gpu/results/checks.md", "tests/gpu/results/peers.md")  # by gpu-check


def commit_of(root):
    """The commit, and whether the checkout differs from it in more than results. A copy without
    its own history is what GCPOOL_COMMIT says."""
    if os.environ.get("GCPOOL_COMMIT"):
        return os.environ["GCPOOL_COMMIT"]
    git = ["git", "-C", root]
    commit = words_of([*git, "describe", "--always", "--exclude", "*"])
    changed = words_of([*git, "status", "--porcelain", "--untracked-files=no", "--", ".",
                        *[f":!{name}" for name in WRITTEN]])
    return (commit or "unknown") + ("-dirty" if changed and "-dirty" not in commit else "")


def describe(root, sim):
    return {
        "device": "simulated" if sim else devices(), "date": datetime.date.today().isoformat(),
        "commit": commit_of(root),
        "CUDA": words_of(["nvcc", "--version"]).split("release ")[-1].split(",")[0] or "?",
        "system": f"{platform.libc_ver()[1]} glibc, {os.cpu_count()} cores"}


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


def section(name, command, facts, rows, seconds):
    """What one group of checks found. Ends with an empty line."""
    bad = [row for row in rows if row.verdict == "FAIL"]
    skipped = sum(row.verdict == "skipped" for row in rows)
    text = [f"## {name}", "", f"- `{command}`"]
    text += [f"- {what}: {value}" for what, value in facts.items()]
    text += [f"- {len(rows)} checks, {len(bad)} failed, {seconds:.0f} s"
             + (f", {skipped} skipped" if skipped else ""), "", table(rows), ""] if rows else [""]
    for row in rows:
        if row.details.strip() and row.verdict != "ok":
            text += [f"### {row.check}: {row.verdict}", "", "```", row.details.strip()[:6000],
                     "```", ""]
    text += [row.appendix + "\n" for row in rows if row.appendix]
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
