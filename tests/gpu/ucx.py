# SPDX-License-Identifier: MIT
"""Whether UCX (the Python package libucx-cu13 or libucx-cu12 of PyPI) learns of each free
that goes to the library: it patches the code of the driver's functions, the library's
where those come first, and says which at its level diag."""

import importlib.util
import os

import build
from bench import FAIL, SKIPPED, Row, verdict


def installed():
    """The folder of UCX, or None."""
    spec = importlib.util.find_spec("libucx")
    return list(spec.submodule_search_locations)[0] if spec else None


def program_build(bench, ucx):
    links = build.link_flags(bench.toolkit)
    command = ["gcc", *build.compile_flags(bench.toolkit), f"-I{ucx}/include",
               f"{bench.here}/ucx.c", "-o", bench.program("ucx"), f"-L{ucx}/lib",
               f"-Wl,-rpath,{ucx}/lib", "-lucm", "-lucs", "-lcudart", "-lcuda", *links]
    return bench.run(command)


def learns(bench):
    """Frees that UCX saw, plain and with the library."""
    what = "UCX learns of frees: runtime, driver, stream order"
    ucx = installed()
    if not ucx:
        return [Row(what, verdict=SKIPPED, details="no libucx here")]
    built = program_build(bench, ucx)
    if built.code:
        return [Row(f"built: {what}", verdict=FAIL, details=built.tail())]
    setting = {"UCX_MODULE_DIR": os.path.join(ucx, "lib", "ucx"), "UCX_MEM_LOG_LEVEL": "diag",
               "UCX_MEM_CUDA_HOOK_MODE": "bistro"}
    rows = []
    for backend in ("vmm", "segments"):
        runs = [bench.run([bench.program("ucx")], library, {**setting, **extra})
                for library, extra in ((None, {}),
                                       (bench.library, {"GCPOOL_BACKEND": backend}))]
        words = ["; ".join(line.split(": ")[1] for line in run.out.splitlines()
                           if "missed" in line) or f"code {run.code}" for run in runs]
        good = all(run.code == 0 for run in runs)
        rows.append(Row(f"{what}, {backend}", *words, "missed 0", verdict(good),
                        "" if good else "".join(run.tail() for run in runs)))
    return rows
