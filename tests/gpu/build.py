# SPDX-License-Identifier: MIT
"""Builds the test programs upon NVIDIA's libraries, with gcc and nvcc alone: those of
tests/integration/programs, for a machine with a GPU."""

import concurrent.futures
import glob
import os
import shutil
import sys

STYLES = {
    "static": (["api_runtime.c", "driver.c"], ["-lcudart_static"], []),
    "shared": (["api_runtime.c", "driver.c"], ["-lcudart"], []),
    "linked": (["api_driver.c", "driver.c"], ["-lcuda"], ["-DGCPT_LINKED"]),
    "dlsym": (["api_driver.c", "driver.c"], [], [])}

SOURCES = os.path.join(os.path.dirname(__file__), "..", "integration")
sys.path.append(os.path.join(SOURCES, "preload"))
from found import programs_of  # noqa: E402


def find_toolkit():
    """The root of the CUDA Toolkit, or None."""
    nvcc = shutil.which("nvcc")
    candidates = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    candidates += [os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))] if nvcc else []
    candidates += ["/usr/local/cuda"]
    return next((root for root in candidates
                 if root and os.path.exists(os.path.join(root, "include", "cuda.h"))), None)


def library_directories(toolkit):
    places = [os.path.join(toolkit, name, stubs) for name in (
        "lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
        for stubs in ("", "stubs")]
    return [path.rstrip("/") for path in places if os.path.isdir(path)]


def compile_flags(toolkit):
    return ["-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-isystem", f"{toolkit}/include"]


def link_flags(toolkit):
    directories = library_directories(toolkit)
    flags = [f"-L{path}" for path in directories]
    flags += [f"-Wl,-rpath,{path}" for path in directories if not path.endswith("stubs")]
    return flags + ["-lpthread", "-ldl", "-lrt", "-lm"]


def embed_kernels(bench):
    source = os.path.join(bench.root, "tests", "integration", "programs")
    sys.path.insert(0, source)
    import embed

    target = os.path.join(bench.programs, "kernels_ptx.c")
    with open(os.path.join(source, "kernels.ptx")) as ptx, open(target, "w") as c:
        c.write(embed.embed(ptx.read()))
    return target


def build_one(bench, program, style, ptx):
    source = os.path.join(bench.root, "tests", "integration", "programs")
    files, libraries, defines = STYLES[style]
    files = [program + ".c", "kernels.c", "touch.c", "pool.c", "util.c", *files]
    command = ["gcc", *compile_flags(bench.toolkit), *defines]
    command += [os.path.join(source, name) for name in files] + [ptx]
    command += ["-o", bench.program(f"{program}-{style}")]
    flags = link_flags(bench.toolkit)
    return command + [f for f in flags if f.startswith(("-L", "-Wl"))] + libraries + flags


def nvcc(bench, source, name, *more, shared=False):
    """Builds one source for the GPU of this machine, with its own or the shared runtime."""
    compiler = shutil.which("nvcc") or os.path.join(bench.toolkit, "bin", "nvcc")
    command = [compiler, "-O2", "-std=c++17", "-arch=native", source, "-o", bench.program(name)]
    if shared:
        command += ["-cudart=shared", "-Xlinker",
                    f"-rpath={library_directories(bench.toolkit)[0]}"]
    return [*command, *more]


def build_extra(bench):
    """Commands for what is not in the table: name -> command."""
    links = link_flags(bench.toolkit)
    here = bench.here
    bench_source = os.path.join(bench.root, "tests", "bench")
    peers_cuda = os.path.join(bench_source, "peers_cuda.cu")
    return {
        "faults": nvcc(bench, f"{here}/faults.cu", "faults"),
        "faults-shared": nvcc(bench, f"{here}/faults.cu", "faults-shared", shared=True),
        "peers": nvcc(bench, peers_cuda, "peers", os.path.join(bench_source, "peers.cpp"),
                      os.path.join(bench_source, "peers_library.cpp"), "-ldl"),
        "peers-plain.so": nvcc(bench, peers_cuda, "peers-plain.so", "-shared", "-Xcompiler",
                               "-fPIC"),
        "answers": nvcc(bench, f"{here}/answers.cu", "answers",
                        *[f for f in links if f.startswith("-L")], "-lcuda"),
    }


def build_all(bench):
    """Builds everything; returns {name: what went wrong}."""
    os.makedirs(bench.programs, exist_ok=True)
    ptx = embed_kernels(bench)
    commands = build_extra(bench)
    for program, _, _, styles, *_ in programs_of(glob.glob(f"{SOURCES}/programs/*.c")):
        for style in set(styles.split()) & set(STYLES):
            commands[f"{program}-{style}"] = build_one(bench, program, style, ptx)
    failed = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {n: pool.submit(bench.run, c, None, None, 300) for n, c in commands.items()}
        for name, job in jobs.items():
            if job.result().code:
                failed[name] = job.result().tail()
    return failed
