# SPDX-License-Identifier: MIT
"""What CUDA answers about memory of cudaMalloc, and what processes that share it see: the
transcripts of answers.cu, introspection.c, errors.c and two_processes.c, plain and with
each backend."""

import difflib

from bench import FAIL, INFO, SKIPPED, Row, verdict
from programs import ONE_DEVICE

BACKENDS = ("segments", "vmm")
SECTIONS = ("queries", "hints", "textures", "greens", "peers")
SCENARIOS = ("codes", "contexts", "held")


def compared(bench, name, command, differs=()):
    """A row for each backend."""
    plain = bench.run(command, timeout=200)
    if plain.code == ONE_DEVICE:
        return [Row(name, verdict=SKIPPED, details="one device only")]
    if plain.code != 0:
        return [Row(name, f"code {plain.code}", verdict=FAIL, details=plain.tail())]
    rows = []
    for backend in BACKENDS:
        pooled = bench.run(command, bench.library, {"GCPOOL_BACKEND": backend}, timeout=200)
        diff = list(difflib.unified_diff(plain.out.splitlines(), pooled.out.splitlines(),
                                         "plain", backend, "", "", 0))
        good = pooled.code == 0 and not diff
        said = INFO if not good and backend in differs else verdict(good)
        rows.append(Row(f"{name}, {backend}", f"{len(plain.out.splitlines())} lines",
                        "the same" if good else f"code {pooled.code}, {len(diff)} lines differ",
                        "the same lines", said,
                        "" if good else "\n".join(diff) + "\n" + pooled.err[-500:]))
    return rows


def answers(bench):
    return [row for section in SECTIONS for row in compared(
        bench, f"answers, {section}", [bench.program("answers"), section])]


def two_processes(bench):
    """The simulated device does not hold memory for another process. Ordinary segments are known
    to differ (docs/limits.md): the range of an import, and memory that is freed while another
    process has it open."""
    return [row for scenario in SCENARIOS if not (bench.sim and scenario == "held")
            for row in compared(bench, f"two processes, {scenario}",
                                [bench.program("two_processes-linked"), scenario], ("segments",))]
