# SPDX-License-Identifier: MIT
"""Library handles, plain and pooled (gcpool --handles): what they cost, whether they
come back as new, how many there are, and whether what is computed through them is right.

A group of scripts/gpu-check. The libraries are PyTorch's, if it is here, else the CUDA Toolkit's."""

import glob
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile

import build
from bench import FAIL, SKIPPED, Row, judged, verdict

# In the order of creation: the first one does the work.
LIBRARIES = {
    "cublas": "libcublas.so.1[23]", "cudnn": "libcudnn.so.9",
    "cusolverDn": "libcusolver.so.1[12]", "cusolverSp": "libcusolver.so.1[12]"}
PAIR_US = 2


def libraries(toolkit):
    """[KIND=PATH] of what is here: in PyTorch's wheels, then in the toolkit."""
    places = [f"{root}/nvidia/**/lib" for root in sys.path] + build.library_directories(toolkit)
    found = {kind: [path for place in places
                    for path in sorted(glob.glob(f"{place}/{pattern}", recursive=True))]
             for kind, pattern in LIBRARIES.items()}
    return [f"{kind}={paths[0]}" for kind, paths in found.items() if paths]


def program_build(bench):
    """The program, or a Row that says why there is none."""
    interpose = os.path.join(bench.root, "interpose")
    program = bench.program("handles")
    command = ["gcc", *build.compile_flags(bench.toolkit), f"{bench.here}/handles.c",
               f"{interpose}/handles/handles_table.c", f"{interpose}/base/elfwalk.c", "-o", program,
               *build.link_flags(bench.toolkit), "-lcuda"]
    os.makedirs(bench.programs, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True)
    return program if done.returncode == 0 else Row("built: handles", verdict=FAIL,
                                                    details=done.stderr)


class Runs:
    """The program's runs, and what the library says of each."""

    def __init__(self, bench):
        self.bench = bench
        self.program = program_build(bench)
        self.libraries = libraries(bench.toolkit)

    def run(self, what, pooled, command=None, extra=None):
        command = command or [self.program, what, *self.libraries]
        if not pooled:
            return self.bench.run(command, timeout=240), {}
        with tempfile.TemporaryDirectory() as place:
            stats = os.path.join(place, "stats")
            place = os.path.dirname(self.bench.library)
            both = f"{self.bench.library}:{os.path.join(place, 'libgcpool-handles.so')}"
            result = self.bench.run(command, both, {
                "GCPOOL_STATS": "json", "GCPOOL_STATS_FILE": stats, **(extra or {})},
                timeout=240)
            try:
                with open(stats) as file:
                    rows = next(json.loads(line)["handles"] for line in file if '"handles"' in line)
            except (OSError, StopIteration, ValueError):
                rows = []
        return result, {row["kind"]: row for row in rows}

    def kinds(self):
        return [word.split("=")[0] for word in self.libraries]


def pairs(runs):
    plain, pooled = runs.run("pairs", False)[0], runs.run("pairs", True)[0]
    if plain.code or pooled.code:
        return [judged("pairs", "", "", "", False, plain, pooled)]
    before, after = (dict(re.findall(r"^pair (\w+): ([\d.]+) us", run.out, re.M))
                     for run in (plain, pooled))
    return [judged(f"{kind}: create and destroy, warm", f"{before[kind]} us", f"{after[kind]} us",
                   f"at most {PAIR_US} us", float(after[kind]) <= PAIR_US, plain, pooled)
            for kind in runs.kinds()]


def roundtrip(runs):
    rows = []
    pooled, counts = runs.run("roundtrip", True)
    plain = runs.run("roundtrip", False)[0]
    for kind in runs.kinds():
        said = re.findall(rf"^roundtrip {kind}: (.*)$", pooled.out, re.M)
        same = any("the same handle" in line for line in said)
        rows.append(judged(f"{kind}: set, destroy, create: as new", "", "; ".join(said),
                           "the same handle, as new", pooled.code == 0 and same, plain, pooled))
    reused = {kind: counts.get(kind, {}).get("reused", 0) for kind in runs.kinds()}
    rows.append(Row("statistics count reuse", "", str(reused), "each at least 1",
                    verdict(all(reused.values()))))
    plain, pooled = runs.run("workspace", False)[0], runs.run("workspace", True)[0]
    return rows + [judged("cublas: the last owner's workspace", plain.out.strip(),
                          pooled.out.strip(), "0 by the next owner",
                          plain.code == pooled.code == 0, plain, pooled)]


def stress(runs):
    plain, (pooled, counts) = runs.run("stress", False)[0], runs.run("stress", True)
    made = counts.get("cublas", {})
    return [judged("cublas: products of 8 threads, a handle each", plain.out.strip(),
                   f"{pooled.out.strip()}; {made.get('created')} created, peak {made.get('peak')}",
                   "all words right, created <= peak", plain.code == pooled.code == 0
                   and 0 < made.get("created", 0) <= made.get("peak", 0), plain, pooled)]


def pytorch(runs):
    if importlib.util.find_spec("torch") is None:
        return [Row("PyTorch, threads that come and go", verdict=SKIPPED, details="no torch")]
    command = [sys.executable, os.path.join(runs.bench.here, "torch_handles.py")]
    plain, (pooled, counts) = runs.run("", False, command), runs.run("", True, command)
    plain = plain[0]
    kinds = ", ".join(f"{kind} {row['created']}+{row['reused']}" for kind, row in counts.items())
    return [judged("PyTorch, threads that come and go", plain.out.strip(),
                   f"{pooled.out.strip()}; created+reused: {kinds}", "the same bits, handles seen",
                   plain.code == 0 and plain.out == pooled.out and "cublas" in counts,
                   plain, pooled)]


def check(bench):
    runs = Runs(bench)
    if isinstance(runs.program, Row):
        return [runs.program]
    if not any(word.startswith("cublas=") for word in runs.libraries):
        return [Row("handles", verdict=SKIPPED, details="no cuBLAS here")]
    return pairs(runs) + roundtrip(runs) + stress(runs) + pytorch(runs)
