# SPDX-License-Identifier: MIT
"""Checks of stream-ordered memory (cudaMallocAsync): each function returns rows."""

from statistics import median

from bench import FAIL, INFO, SKIPPED, Row, number, verdict
from frameworks import missing, script

# threads, kind of streams, goal in ns (None: no worse than plain CUDA)
PAIRS = [
    (1, "apart", 60),
    (1, "legacy", None),
    (1, "blocking", None),
    (16, "apart", 2000),
    (16, "shared", 2000),
    (16, "blocking", None),
]


def figures(bench, command, words, extra=None):
    """The number behind `words`, plain and under the library; why not, else."""
    results = bench.pair(command, extra)
    broken = [r.tail() for r in results if r.code]
    if broken:
        return None, None, broken[0]
    return (*(number(r.out, words) for r in results), "")


def pairs(bench):
    """The time of an allocation and its free that hit: medians of three, in turn."""
    rows = []
    for threads, kind, goal in PAIRS:
        for style in ("async-shared", "async"):
            command = [bench.program(style), "pairs", threads, kind, 1 << 20]
            runs = [figures(bench, command, "ns a pair:") for _ in range(3)]
            why = next((run[2] for run in runs if run[2]), "")
            name = f"async pair, {threads} threads, {kind} stream, {style}"
            if why:
                rows.append(Row(name, verdict=FAIL, details=why))
                continue
            plain, pooled = (median(run[which] for run in runs) for which in (0, 1))
            most = goal if goal and style == "async-shared" else plain
            rows.append(Row(name, f"{plain:.0f} ns", f"{pooled:.0f} ns", f"<= {most:.0f} ns",
                            verdict(pooled <= most)))
    return rows


def step(bench):
    """Eight allocations, a kernel, eight frees and a synchronisation."""
    plain, pooled, why = figures(bench, [bench.program("async"), "step"], "us a step:")
    if why:
        return [Row("async step", verdict=FAIL, details=why)]
    return [Row("async step", f"{plain:.0f} us", f"{pooled:.0f} us", "<= 40 us",
                verdict(pooled <= 40))]


def throughput(bench):
    """Kernels of 20 us with memory of their own, against the same without."""
    rows = []
    for streams in (1, 4, 16):
        command = [bench.program("async"), "throughput", streams]
        plain, pooled, why = figures(bench, command, "kept:")
        name = f"async throughput kept, {streams} streams"
        if why:
            rows.append(Row(name, verdict=FAIL, details=why))
            continue
        rows.append(Row(name, f"{plain:.2f}", f"{pooled:.2f}", ">= plain - 0.03",
                        verdict(pooled >= plain - 0.03)))
    return rows


def stress(bench):
    """Threads that fill, check and free at once, tied by events alone: no wrong words;
    and some without fences, or the check has no teeth."""
    rows = []
    for seed in range(1, bench.scale(5, 2)):
        command = [bench.program("async"), "stress", bench.scale(20000, 4000), seed]
        for extra in ({}, {"GCPOOL_BACKEND": "segments"}):
            result = bench.run(command, bench.library, extra)
            wrong = f"{number(result.out, 'wrong words:'):.0f}" if result.code < 2 else "broken"
            rows.append(Row(f"async stress, seed {seed} {' '.join(extra.values())}", "",
                            f"{wrong} wrong words", "0 wrong words",
                            verdict(result.code == 0), "" if not result.code else result.tail()))
    result = bench.run([bench.program("async"), "stress", 20000, 1], bench.variant("nofence"))
    wrong = number(result.out, "wrong words:") if result.code < 2 else 0
    rows.append(Row("async stress, test build without fences", "", f"{wrong:.0f} wrong words",
                    "> 0: the check has teeth", verdict(wrong)))
    return rows


def sort(bench):
    """Thrust with par_nosync."""
    rows = []
    for words in ("own stream us:", "default stream us:"):
        plain, pooled, why = figures(bench, [bench.program("async-sort")], words)
        name = f"Thrust par_nosync, {words.split(' us')[0]}"
        if why:
            return [Row(name, verdict=FAIL, details=why)]
        rows.append(Row(name, f"{plain:.0f} us", f"{pooled:.0f} us", "sorted, no slower",
                        verdict(pooled <= plain * 1.05)))
    return rows


def frameworks(bench):
    """Frameworks whose allocator is cudaMallocAsync compute the same."""
    rows = []
    wanted = {"cupy": {}, "torch": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
              "jax": {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}}
    for name, extra in wanted.items():
        if missing(name):
            rows.append(Row(f"{name}, async allocator", verdict=SKIPPED,
                            details=f"no {name} here"))
            continue
        runs = bench.pair(script(bench, "async_frameworks.py", name), extra, 300)
        broken = [r.tail() for r in runs if r.code]
        if broken:
            rows.append(Row(f"{name}, async allocator", verdict=FAIL, details=broken[0]))
            continue
        values = [number(r.out, "result:") for r in runs]
        same = abs(values[0] - values[1]) <= 1e-6 * abs(values[0])
        rows.append(Row(f"{name}, async allocator",
                        *(f"{number(r.out, 'us a step:'):.0f} us" for r in runs),
                        "same result", verdict(same) if same else FAIL,
                        "" if same else f"{values[0]} and {values[1]}"))
    return rows or [Row("frameworks", verdict=INFO)]
