# SPDX-License-Identifier: MIT
"""Speed of the library beside an earlier build of it (scripts/gpu-check --against
NAME=LIBRARY), which runs with ordinary segments; in turn, in one run."""

from bench import FAIL, INFO, OK, SKIPPED, Row, median
from frameworks import NO_CACHING, missing, script
from mapped import MORE, beside_row, loops
from tables import NAMES, alternate

SEGMENTS = {"GCPOOL_BACKEND": "segments"}
DEFAULT = "default"


def pairs(bench):
    """Loops, throughput kept, and pairs."""
    earlier, library = bench.against
    settings = {earlier: (library, SEGMENTS),
                DEFAULT: (bench.library, {"GCPOOL_BACKEND": "auto"})}
    works = list(loops(bench))
    for threads in (1, 16) if not bench.sim else ():
        works.append((f"512 B to 8 MiB, 64 live, {threads} threads",
                      [bench.program("mixed"), threads, 1], "pair:", "{:.0f} ns"))
    return [beside_row(bench, work, earlier, settings) for work in works]


def frameworks(bench):
    """A step of PyTorch and of CuPy with their caches off."""
    earlier, library = bench.against
    rows, part = [], str(bench.scale(0.4, 0.2))
    # CuPy's runs are short, and two times as long on some cores as on others.
    for module, program, off, rounds in (("torch", "torch_steps.py", NO_CACHING, 3),
                                         ("cupy", "cupy_shapes.py", {}, 11)):
        if missing(module):
            rows.append(Row(f"{module} beside {earlier}", verdict=SKIPPED,
                            details=f"no {module} here"))
            continue
        settings = {earlier: (library, {**off, **SEGMENTS}), DEFAULT: (bench.library, off)}
        runs, wrong = alternate(bench, lambda name: script(bench, program, "--part", part),
                                settings, rounds)
        if not runs:
            rows.append(Row(f"{module} beside {earlier}", verdict=FAIL, details=wrong))
            continue
        for work in runs[DEFAULT][0]:
            others, own = ([run[work]["step_ms"] for run in runs[name]] for name in settings)
            good = median(own) <= median(others) * MORE
            rows.append(Row(f"{NAMES[work]}, beside {earlier}",
                            f"{earlier}: {median(others):.2f} ms",
                            f"{median(own):.2f} ms ({min(own):.2f} to {max(own):.2f})",
                            f"at most 3 % slower than {earlier} ({min(others):.2f} to "
                            f"{max(others):.2f})", OK if good else INFO))
    return rows
