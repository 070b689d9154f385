# SPDX-License-Identifier: MIT
"""Checks with what people run: PyTorch, CuPy, Thrust."""

import importlib.util
import json
import os
import sys

from bench import FAIL, INFO, SKIPPED, Row, median, number, verdict

NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def script(bench, name, *arguments):
    return [sys.executable, os.path.join(bench.here, name), *arguments]


def missing(module):
    return importlib.util.find_spec(module) is None


def train(bench, library, extra):
    result = bench.run(
        script(bench, "torch_train.py", "--steps", bench.scale(60, 20)), library, extra
    )
    if result.code:
        return {"broken": result.tail()}
    return json.loads(result.out.strip().splitlines()[-1])


def spread(a, b):
    """Largest relative difference of two lists of losses."""
    return max((abs(x - y) / max(abs(x), 1e-9) for x, y in zip(a, b)), default=0)


def torch_train(bench):
    """PyTorch without its own cache trains to the same losses, as fast."""
    if missing("torch"):
        return [Row("PyTorch training", verdict=SKIPPED, details="no torch here")]
    plain = train(bench, None, NO_CACHING)
    own, pooled = [], []
    for _ in range(bench.scale(3, 1)):
        own.append(train(bench, None, {}))
        pooled.append(train(bench, bench.library, NO_CACHING))
    broken = [run["broken"] for run in [plain, *own, *pooled] if "broken" in run]
    if broken:
        return [Row("PyTorch training", verdict=FAIL, details=broken[0])]
    rows = []
    for model, figures in plain["models"].items():
        runs = [run["models"][model] for run in pooled]
        differ = max(spread(figures["losses"], run["losses"]) for run in runs)
        bitwise = all(figures["losses"] == run["losses"] for run in runs)
        rows.append(Row(f"PyTorch {model}: losses, caching off",
                        f"last {figures['losses'][-1]:.6f}",
                        f"last {runs[0]['losses'][-1]:.6f}, " +
                        ("equal in every bit" if bitwise else f"differ by {differ:.1e}"),
                        "the same", verdict(differ <= 1e-5)))
        step = median([run["step_us"] for run in runs])
        reference = median([run["models"][model]["step_us"] for run in own])
        limit = 1.05 if model == "MLP" else None
        rows.append(Row(f"PyTorch {model}: training step, caching off",
                        f"{figures['step_us']:.0f} us",
                        f"{step:.0f} us, {step / reference:.3f} of its own cache",
                        f"<= {limit} of its own cache: {reference:.0f} us" if limit
                        else f"its own cache: {reference:.0f} us",
                        verdict(step <= limit * reference) if limit else INFO))
    return rows


def torch_graph(bench):
    """PyTorch code that allocates, captured into graphs, its cache switched off."""
    if missing("torch"):
        return [Row("PyTorch graphs", verdict=SKIPPED, details="no torch here")]
    plain, pooled = bench.pair(script(bench, "torch_graph.py"), NO_CACHING)
    words = [result.out.strip().splitlines() for result in (plain, pooled)]
    return [Row("PyTorch captured: forward, callables, training step, caching off",
                f"{sum('equal' in line for line in words[0])} of 3",
                f"{sum('equal' in line for line in words[1])} of 3 equal to eager", "3 of 3",
                verdict(pooled.code == 0), "" if pooled.code == 0 else pooled.tail())]


def torch_raw(bench):
    """One small allocation, and an empty tensor, through PyTorch."""
    if missing("torch"):
        return [Row("PyTorch torch.empty", verdict=SKIPPED, details="no torch here")]
    command = script(bench, "torch_empty.py")
    runs = [bench.run(command, None, NO_CACHING), bench.run(command, bench.library, NO_CACHING),
            bench.run(command)]
    if any(run.code for run in runs):
        return [Row("PyTorch torch.empty", verdict=FAIL,
                    details="\n".join(run.tail() for run in runs))]
    plain, pooled, own = (number(run.out, "empty:") for run in runs)
    return [Row("PyTorch torch.empty, caching off", f"{plain:.2f} us", f"{pooled:.2f} us",
                f"its own cache: {own:.2f} us", INFO)]


def cupy(bench):
    """CuPy without its pool."""
    if missing("cupy"):
        return [Row("CuPy, set_allocator(None)", verdict=SKIPPED, details="no cupy here")]
    command = script(bench, "cupy_steps.py", "--steps", bench.scale(400, 100))
    plain, pooled = bench.pair(command)
    own = bench.run(command + ["--pool"])
    if plain.code or pooled.code or own.code:
        return [Row("CuPy, set_allocator(None)", f"code {plain.code}", f"code {pooled.code}",
                    "runs", FAIL, "\n".join(r.tail() for r in (plain, pooled, own)))]
    times = [number(run.out, "step:") for run in (plain, pooled, own)]
    sums = [run.out.split("checksum:")[1].split()[0] for run in (plain, pooled)]
    good = sums[0] == sums[1] and times[1] < times[0]
    return [Row("CuPy, set_allocator(None)", f"{times[0]:.0f} us a step",
                f"{times[1]:.0f} us, " + ("same sum" if sums[0] == sums[1] else "OTHER SUM"),
                f"same sum, faster; its own pool: {times[2]:.0f} us", verdict(good))]


def thrust(bench):
    """thrust::sort allocates its temporary storage in every call."""
    rows = []
    for name in ("sort", "sort-shared"):
        command = [bench.program(name)]
        plain, pooled = [], []
        for _ in range(3):
            a, b = bench.pair(command)
            if a.code or b.code:
                details = a.tail() + "\n" + b.tail()
                return [Row(f"thrust::{name}", verdict=FAIL, details=details)]
            plain.append(number(a.out, "sort:"))
            pooled.append(number(b.out, "sort:"))
        good = median(pooled) < median(plain)
        rows.append(Row(f"thrust::sort of 1 M ints, {'shared' if '-' in name else 'static'}",
                        f"{median(plain):.1f} us", f"{median(pooled):.1f} us",
                        "faster than plain", verdict(good)))
    return rows


def cupy_graph(bench):
    """CuPy code that allocates, captured, its pool switched off."""
    name = "CuPy captured, set_allocator(None)"
    if missing("cupy"):
        return [Row(name, verdict=SKIPPED, details="no cupy here")]
    plain, pooled = bench.pair(script(bench, "cupy_graph.py"))
    words = [(result.out.strip().splitlines() or ["nothing"])[-1][:80]
             for result in (plain, pooled)]
    return [Row(name, *words, "0 wrong words", verdict(pooled.code == 0),
                "" if pooled.code == 0 else pooled.tail())]


def sort_graph(bench):
    """Sorting with temporary storage from cudaMalloc, captured in GLOBAL mode.
    Whether Thrust can be captured at all is Thrust's affair: CUB must."""
    rows = []
    for name, title in (("cub", "cub::DeviceRadixSort"), ("thrust", "thrust::sort_by_key")):
        plain, pooled = bench.pair([bench.program("sort-graph"), name])
        words = [(result.out.strip().splitlines() or [f"code {result.code}"])[-1][:80]
                 for result in (plain, pooled)]
        bad = INFO if name == "thrust" and pooled.code == 2 else FAIL
        rows.append(Row(f"{title} captured in global mode", *words, "0 wrong",
                        verdict(True) if pooled.code == 0 else bad,
                        "" if pooled.code == 0 else pooled.tail()))
    return rows
