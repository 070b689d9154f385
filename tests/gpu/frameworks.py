# SPDX-License-Identifier: MIT
"""Checks with what people run: PyTorch, CuPy, Thrust."""

import importlib.util
import json
import os
import sys

from bench import FAIL, INFO, SKIPPED, Row, median, verdict

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
