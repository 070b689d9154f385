# SPDX-License-Identifier: MIT
"""Checks where device memory is short (short.cu), with segments and mapped: what plain
CUDA serves is served, without a wait that it does not have."""

from bench import INFO, Row, number, verdict

BACKENDS = ("segments", "vmm")


def play(bench, name, words, before, extra=None, promised=BACKENDS, timeout=200):
    """A row for each backend; where nothing is promised, its figure alone."""
    command = [bench.program("short"), *words]
    plain = bench.run(command, timeout=timeout)
    rows = []
    for backend in BACKENDS:
        pooled = bench.run(command, bench.library,
                           {"GCPOOL_BACKEND": backend, **(extra or {})}, timeout)
        text = [f"{number(r.out, before):.0f}" if r.code in (0, 1) and before in r.out
                else f"code {r.code}" for r in (plain, pooled)]
        good = plain.code == pooled.code == 0
        rows.append(Row(f"{name}, {backend}", *text, f"{before} 0",
                        verdict(good) if backend in promised else INFO,
                        "" if good else pooled.tail()))
    return rows


def waits(bench):
    """Allocations beside a kernel that ends only at the host's next step."""
    return play(bench, "allocations beside a kernel that waits", ["waits"], "hangs:")


def fits(bench):
    """Random large allocations that fit on a nearly full device."""
    return play(bench, "large allocations that fit", ["fits", bench.scale(2000, 400)],
                "failed:", promised=("vmm",))


def two(bench):
    """An idle process gives back (GCPOOL_THREAD), and another one gets it."""
    return play(bench, "memory of an idle process", ["two", 8], "failed:",
                {"GCPOOL_THREAD": "1", "GCPOOL_DECAY": "2000"})
