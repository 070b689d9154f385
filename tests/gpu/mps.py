# SPDX-License-Identifier: MIT
"""A memory limit of NVIDIA's Multi-Process Service, which a process is given from outside
(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT): with the library it gets what plain CUDA gets, and is
told the same. The service is started for the check, in a folder of its own, and stopped.
Settings of the device stay as they are."""

import os
import shutil
import subprocess
import tempfile

from bench import SKIPPED, Row, number, verdict

CONTROL, LIMIT_GIB = "nvidia-cuda-mps-control", 4


def control(setting, *words, said=""):
    """Whether the service's control program has done so."""
    try:
        return subprocess.run([CONTROL, *words], env={**os.environ, **setting}, input=said,
                              text=True, capture_output=True, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def values(result, before):
    return [number(line, before) for line in result.out.splitlines() if before in line]


def compare(bench, setting):
    rows = []
    for name, before, what in (("oom", "obtained", "MiB obtained in phases"),
                               ("meminfo", " free ", "KiB free at moments")):
        plain, pooled = bench.pair([bench.program(f"{name}-static")], setting)
        a, b = values(plain, before), values(pooled, before)
        ratios = [y / x for x, y in zip(a, b) if x]
        good = (plain.code == pooled.code == 0 and len(a) == len(b) > 0 and ratios
                and max(a) < LIMIT_GIB << (10 if name == "oom" else 20)
                and 0.995 <= min(ratios) and max(ratios) <= (1.005 if name == "oom" else 1.05))
        rows.append(Row(f"a limit of {LIMIT_GIB} GiB by MPS: {what}",
                        f"{min(a, default=0):.0f} to {max(a, default=0):.0f}",
                        f"{min(ratios, default=0):.4f} to {max(ratios, default=0):.4f} of plain",
                        "0.995 to 1.005 of plain" if name == "oom" else "0.995 to 1.05 of plain",
                        verdict(good), "" if good else plain.tail() + pooled.tail()))
    return rows


def limit(bench):
    what = f"a limit of {LIMIT_GIB} GiB by MPS"
    if not shutil.which(CONTROL):
        return [Row(what, verdict=SKIPPED, details=f"no {CONTROL} here")]
    with tempfile.TemporaryDirectory() as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = control(own, "-d")
        try:
            setting = {**own, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={LIMIT_GIB}G"}
            if not started or bench.run([bench.program("meminfo-static")], None, setting, 30).code:
                return [Row(what, verdict=SKIPPED, details="the service does not start here")]
            return compare(bench, setting)
        finally:
            control(own, said="quit -t 5\n")
