# SPDX-License-Identifier: MIT
"""Checks of how long it takes to take memory from the device (growth.cu), in a fresh
process each: each function returns rows."""

from bench import FAIL, INFO, OK, Row, median, number, verdict

BLOCKS = (2, 4, 16, 32, 64)  # MiB
GIB_MS = 1.5
MODEL_BLOCKS = (4, 64)
MODEL_TIMES = 2  # of plain CUDA


def grown(bench, block, total, backend, times):
    """(ms of each run, MiB of each), or None and the run that went wrong. backend: None for
    plain CUDA."""
    found, bytes_taken = [], 0
    for _ in range(times):
        run = bench.run([bench.program("growth"), block, total],
                        bench.library if backend else None,
                        {"GCPOOL_BACKEND": backend} if backend else {}, 60)
        if run.code:
            return None, run
        found.append(number(run.out, "growth:"))
        bytes_taken = number(run.out, "MiB:")
    return found, bytes_taken


def said(found, rest):
    return f"{median(found):.2f} ms" if found else f"code {rest.code}"


def gib(bench):
    """1 GiB in blocks of one size."""
    rows = []
    for block in BLOCKS:
        plain, segments, mapped = (grown(bench, block, 1024, backend, times)
                                   for backend, times in ((None, 1), ("segments", 1),
                                                          ("auto", bench.scale(3, 1))))
        good = bool(mapped[0]) and median(mapped[0]) <= GIB_MS
        rows.append(Row(f"1 GiB in blocks of {block} MiB", said(*plain),
                        f"{said(*mapped)}; segments {said(*segments)}", f"<= {GIB_MS} ms",
                        FAIL if not mapped[0] else OK if good else INFO,
                        "" if mapped[0] else mapped[1].tail()))
    return rows


def model(bench):
    """100 GiB, or 70 % of the device, as a program takes it that loads a model."""
    rows = []
    for block in MODEL_BLOCKS:
        runs = {backend: grown(bench, block, 0, backend, 1 if backend == "segments" else
                                bench.scale(2, 1))
                for backend in (None, "auto", "segments")}
        plain, mapped = runs[None][0], runs["auto"][0]
        good = plain and mapped and median(mapped) <= MODEL_TIMES * median(plain)
        size = f"{runs['auto'][1] / 1024:.0f} GiB" if mapped else "most of the device"
        rows.append(Row(f"{size} in blocks of {block} MiB", said(*runs[None]),
                        f"{said(*runs['auto'])}; segments {said(*runs['segments'])}",
                        f"<= {MODEL_TIMES} of plain", verdict(good),
                        "" if mapped else runs["auto"][1].tail()))
    return rows
