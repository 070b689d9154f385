# SPDX-License-Identifier: MIT
"""Whether UCX (the Python package libucx-cu13 or libucx-cu12 of PyPI) learns of each free
that goes to the library: it patches the code of the driver's functions, the library's
where those come first, and says at its level debug which. And its own programs: ucx_info
finds the same devices, ucx_perftest sends memory of the device between two processes."""

import importlib.util
import os
import re
import subprocess
import time

import build
from bench import FAIL, INFO, SKIPPED, Row, verdict

SIZES, PORT = ("65536", "16777216"), 13437


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


def tool(ucx, name):
    """The path of a program of the package, which comes without leave to run it."""
    path = os.path.join(ucx, "bin", name)
    os.chmod(path, 0o755)
    return path


def perftest(bench, ucx, library, setting, size):
    """What the client says of a test between it and a server, both alike."""
    command = [tool(ucx, "ucx_perftest"), "-p", str(PORT)]
    with subprocess.Popen(command, env=bench.environment(library, setting),
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        time.sleep(2)
        done = bench.run([*command, "localhost", "-t", "tag_bw", "-m", "cuda", "-s", size,
                          "-n", "200", "-w", "20", "-f"], library, setting, 60)
        server.kill()
    return done


def bandwidth(result):
    """MB/s, of the last line that is numbers."""
    rows = [line.split() for line in result.out.splitlines()]
    found = [row for row in rows if len(row) >= 8 and all(re.fullmatch(r"[\d.]+", w) for w in row)]
    return float(found[-1][5]) if found and result.code == 0 else None


def told(value):
    return "fails" if value is None else f"{value:.0f} MB/s"


def tools(bench):
    """ucx_info and ucx_perftest under the library."""
    ucx = installed()
    if not ucx or not os.path.exists(os.path.join(ucx, "bin", "ucx_info")):
        return [Row("ucx_info, ucx_perftest", verdict=SKIPPED, details="no libucx here")]
    setting = {"UCX_MODULE_DIR": os.path.join(ucx, "lib", "ucx"),
               "LD_LIBRARY_PATH": os.path.join(ucx, "lib")}
    rows = []
    for backend in ("vmm", "segments"):
        pooled_setting = {**setting, "GCPOOL_BACKEND": backend}
        info = [tool(ucx, "ucx_info"), "-d"]
        a, b = (sorted(line for line in result.out.splitlines()
                       if "Transport" in line or "Device" in line)
                for result in (bench.run(info, None, setting),
                               bench.run(info, bench.library, pooled_setting)))
        rows.append(Row(f"ucx_info, {backend}", f"{len(a)} lines", f"{len(b)} lines",
                        "the same devices and transports, cuda among them",
                        verdict(a == b and any("cuda" in line for line in a))))
        for size in SIZES:
            plain = perftest(bench, ucx, None, setting, size)
            pooled = perftest(bench, ucx, bench.library, pooled_setting, size)
            good = bandwidth(pooled) is not None
            rows.append(Row(f"ucx_perftest, {size} bytes of the device, {backend}",
                            told(bandwidth(plain)), told(bandwidth(pooled)),
                            "runs where it does plain",
                            INFO if bandwidth(plain) is None else verdict(good),
                            "" if good else plain.tail() + pooled.tail()))
    return rows
