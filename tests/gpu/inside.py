# SPDX-License-Identifier: MIT
"""Checks that mistakes of programs in pooled memory are found (faults.cu) by GCPOOL_DEBUG,
and that correct programs give no finding, with compute-sanitizer too. What observation
costs; programs that choose the library (examples/frameworks.py)."""

import os
import re
import shutil
import statistics
import sys
import tempfile

from bench import FAIL, INFO, SKIPPED, Row, judged, number

BACKENDS = ("segments", "vmm")
STYLES = ("faults", "faults-shared")
FAULTS = ("none", "overrun", "freed", "graph")
AT_ONCE = {"GCPOOL_TEST_WINDOW": "0", "GCPOOL_TEST_FENCE_BATCH": "1"}  # freed memory comes again


def errors_found(result):
    found = re.findall(r"ERROR SUMMARY: (\d+) error", result.out + result.err)
    return int(found[-1]) if found else None


def words_of(result):
    count = errors_found(result) if result else None
    return "not run" if not result else f"code {result.code}" if count is None else f"{count} errors"


def sanitizer(bench):
    """compute-sanitizer finds nothing wrong in correct programs with the library."""
    if not shutil.which("compute-sanitizer"):
        return [Row("compute-sanitizer", "", "", "", SKIPPED, "no compute-sanitizer here")]
    stress = ["--threads", 2, "--rounds", bench.scale(150, 60), "--max", "256k"]
    programs = {**dict.fromkeys(STYLES, ["none"]), "stress-static": stress, "stress-shared": stress}
    rows = []
    for backend in BACKENDS:
        for name, words in programs.items():
            done = bench.run(["compute-sanitizer", "--print-limit", 2, bench.program(name), *words],
                             bench.library, {"GCPOOL_BACKEND": backend}, 180)
            rows.append(judged(f"compute-sanitizer, {name}, {backend}", "", words_of(done),
                               "0 errors", errors_found(done) == 0, done))
    return rows


def lines_of(result):
    return [line.split("GCPOOL_DEBUG: ", 1)[1] for line in result.err.splitlines()
            if "GCPOOL_DEBUG: " in line]


def debug_row(bench, style, fault, backend):
    extra = {"GCPOOL_DEBUG": "poison,guard", "GCPOOL_BACKEND": backend,
             "GCPOOL_TRACE_STACKS": "4", **AT_ONCE}
    pooled = bench.run([bench.program(style), fault], bench.library, extra)
    lines = lines_of(pooled)
    start = {"overrun": "overrun of ", "freed": "use after free of "}.get(fault)
    good = pooled.code == 0 and (
        len(lines) == 1 and lines[0].startswith(start) if start else not lines)
    return judged(f"GCPOOL_DEBUG, {style}, {fault}, {backend}", "", f"{len(lines)} lines",
                  "1 line" if start else "0 lines", good, pooled)


def debug(bench):
    """GCPOOL_DEBUG says planted faults in one line each, and nothing of correct programs."""
    return [debug_row(bench, style, fault, backend)
            for style in STYLES for backend in BACKENDS for fault in FAULTS]


def debug_stress(bench):
    """The stress with GCPOOL_DEBUG: no wrong words, no line."""
    rows = []
    for backend in BACKENDS:
        command = [bench.program("stress-static"), "--rounds", bench.scale(600, 150), "--max", "256k"]
        pooled = bench.run(command, bench.library,
                           {"GCPOOL_DEBUG": "poison,guard", "GCPOOL_BACKEND": backend}, 200)
        lines = lines_of(pooled)
        good = pooled.code == 0 and not lines
        rows.append(judged(f"stress with GCPOOL_DEBUG, {backend}", "",
                           f"code {pooled.code}, {len(lines)} lines", "0 wrong words, 0 lines",
                           good, pooled))
    return rows


# --- what it costs -------------------------------------------------------------------

WAYS = {"off": {}, "GCPOOL_LIVE=1": {"GCPOOL_LIVE": "1"}, "GCPOOL_TRACE": {"GCPOOL_TRACE": "?"},
        "GCPOOL_DEBUG=leaks": {"GCPOOL_DEBUG": "leaks"}}


def pair_ns(bench, extra, place):
    """Nanoseconds of a pair, or None."""
    trace = os.path.join(place, "pair.trace")
    extra = {name: trace if value == "?" else value for name, value in extra.items()}
    command = [bench.program("loop-shared"), "--no-kernel", "--size", "64k"]
    result = bench.run([*command, "--iterations", 100000], bench.library, extra)
    if os.path.exists(trace):
        os.unlink(trace)
    return number(result.out, "bytes:") if result.code == 0 else None


def overhead(bench):
    """A pair of 64 KiB that hits, by what observes it: medians of runs in turn."""
    found = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as place:
        for _ in range(bench.scale(5, 3)):
            for way, extra in WAYS.items():
                ns = pair_ns(bench, extra, place)
                if ns is not None:
                    found[way].append(ns)
    return [Row(f"a pair, {way}", "", f"{statistics.median(values):.0f} ns", "",
                INFO, f"{len(values)} runs, {min(values):.0f} to {max(values):.0f}")
            if values else Row(f"a pair, {way}", "", "no figure", "a figure", FAIL)
            for way, values in found.items()]


# --- programs that choose the library ----------------------------------------------------


def chosen_frameworks(bench):
    """PyTorch, CuPy and RMM, as far as they are here, from one pool."""
    python_path = os.path.join(bench.root, "packaging", "python")
    result = bench.run([sys.executable, os.path.join(bench.root, "examples", "frameworks.py")],
                       bench.library, {"PYTHONPATH": python_path}, 200)
    words = "; ".join(line for line in result.out.splitlines() if ": " in line)
    return [judged("frameworks.py", "", words, "equal",
                   result.code == 0 and "pool: equal" in words, result)]
