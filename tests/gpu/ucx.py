# SPDX-License-Identifier: MIT
"""Whether UCX (the Python package libucx-cu13 or libucx-cu12 of PyPI) learns of each free
that goes to the library: it patches the code of the driver's functions, the library's
where those come first, and says at its level debug which."""

import importlib.util
import os
import re

import build
from bench import FAIL, SKIPPED, Row, verdict


def installed():
    """The folder of UCX, or None."""
    spec = importlib.util.find_spec("libucx")
    return list(spec.submodule_search_locations)[0] if spec else None


def program_build(bench, ucx, runtime):
    links = build.link_flags(bench.toolkit)
    command = ["gcc", *build.compile_flags(bench.toolkit), f"-I{ucx}/include",
               f"{bench.here}/ucx.c", "-o", bench.program(f"ucx-{runtime}"),
               f"-L{ucx}/lib", f"-Wl,-rpath,{ucx}/lib", "-lucm", "-lucs",
               *[flag for flag in links if flag.startswith(("-L", "-Wl"))],
               "-lcudart_static" if runtime == "static" else "-lcudart", "-lcuda", *links]
    return bench.run(command)


SUMS = r"cuda memory hooks mode (\w+): installed (\d+) on (\w+) API"
NAMES = r"installed \w+ hook for '(cu\w*Free\w*)'"


def words_of(run):
    """What the program says of each way to allocate, and UCX of its hooks."""
    lines = [line.split(": ")[1] for line in run.out.splitlines() if "missed" in line]
    hooks = [f"{count} hooks ({mode}, {api})"
             for mode, count, api in re.findall(SUMS, run.out + run.err)]
    names = " ".join(dict.fromkeys(re.findall(NAMES, run.out + run.err)))
    hooks += [f"of frees: {names}"] if names else []
    return "; ".join((lines or [f"code {run.code}"]) + (hooks or ["hooks not named"]))


def learns(bench):
    """Frees that UCX saw, plain and with the library."""
    what = "UCX learns of frees: runtime, driver, stream order"
    ucx = installed()
    if not ucx:
        return [Row(what, verdict=SKIPPED, details="no libucx here")]
    setting = {"UCX_MODULE_DIR": os.path.join(ucx, "lib", "ucx"), "UCX_MEM_LOG_LEVEL": "debug",
               "UCX_MEM_CUDA_HOOK_MODE": "bistro"}
    rows = []
    for runtime in ("shared", "static"):
        built = program_build(bench, ucx, runtime)
        if built.code:
            rows.append(Row(f"built: {what}, {runtime}", verdict=FAIL, details=built.tail()))
            continue
        command = [bench.program(f"ucx-{runtime}")]
        plain = bench.run(command, None, setting)
        for words, library, backend in (
                ("vmm", bench.library, "vmm"), ("segments", bench.library, "segments"),
                ("built with frame pointers", bench.variant("frames"), "vmm")):
            if not os.path.exists(library):
                rows.append(Row(f"{what}, {words}, {runtime}", "", "no such build", "", SKIPPED))
                continue
            pooled = bench.run(command, library, {**setting, "GCPOOL_BACKEND": backend})
            good = plain.code == pooled.code == 0
            rows.append(Row(f"{what}, {words}, {runtime}", words_of(plain), words_of(pooled),
                            "missed 0", verdict(good),
                            "" if good else plain.tail() + pooled.tail()))
    return rows
