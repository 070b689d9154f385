# SPDX-License-Identifier: MIT
"""The two tables that compare the library with what people use instead: allocators
side by side, and frameworks with their own caches. Each is a row of verdicts and,
as its appendix, the table in Markdown."""

import importlib.util
import json
import os
import re
import sys
import time

import build
from bench import FAIL, SKIPPED, Row, median, number, verdict
from frameworks import NO_CACHING, missing, script

# --- allocators --------------------------------------------------------------------


def package(name):
    """Where a Python package is installed, or None. Does not import it."""
    spec = importlib.util.find_spec(name)
    return list(spec.submodule_search_locations)[0] if spec and \
        spec.submodule_search_locations else None


def shared_object(bench, name, standard, includes, libraries, places):
    source = os.path.join(bench.root, "tests", "bench", name.replace("-", "_") + ".cpp")
    command = ["g++", f"-std={standard}", "-O2", "-fPIC", "-shared", "-w", source]
    command += [f"-I{path}" for path in includes]
    command += ["-isystem", f"{bench.toolkit}/include", "-Wl,--no-as-needed"]
    command += [f"-L{path}" for path in places] + [f"-Wl,-rpath,{path}" for path in places]
    return command + [f"-l{lib}" for lib in libraries] + ["-o", bench.program(name + ".so")]


def torch_build(bench):
    root = package("torch")
    if not root:
        return None
    include = os.path.join(root, "include")
    return shared_object(bench, "peers-torch", "c++17",
                         [include, os.path.join(include, "torch", "csrc", "api", "include")],
                         ["c10_cuda", "c10"], [os.path.join(root, "lib")])


def rmm_build(bench):
    root, logger = package("librmm"), package("rapids_logger")
    if not root or not logger:
        return None
    include = os.path.join(root, "include")
    return shared_object(bench, "peers-rmm", "c++20",
                         [include, os.path.join(include, "rapids"),
                          os.path.join(logger, "include")],
                         ["rapids_logger", "rmm", "cudart_static", "rt", "dl", "pthread"],
                         [os.path.join(root, "lib64"), os.path.join(logger, "lib64"),
                          *build.library_directories(bench.toolkit)])


def others_build(bench):
    """The shared objects of allocators that are installed, and words for the rest."""
    found, words = [], []
    for name, command in (("PyTorch", torch_build(bench)), ("RMM", rmm_build(bench))):
        if not command:
            words += [f"{name}: not installed here"]
            continue
        result = bench.run(command, timeout=120)
        if result.code:
            words += [f"{name}: could not be built: {result.tail()}"]
        else:
            found += [command[-1]]
    return found, words


def nanoseconds(cell, rounds):
    """Of "14368 (32.7 us)": a malloc and its free, or a whole round."""
    round_us = re.search(r"\(([0-9.]+) us\)", cell)
    return float(round_us[1]) * 1000 if rounds and round_us else float(cell.split()[0])


def cells_of(text, rounds=False):
    """{(sizes, allocator): [ns on each number of threads]}. rounds: of a whole round, with
    its kernel, where there are some."""
    found = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.strip("| ").split("|")]
        if len(words) >= 5 and words[2].split()[0].replace("-", "").isdigit():
            found[words[0], words[1]] = [nanoseconds(word, rounds) for word in words[2:5]]
    return found


# The driver API is what a static cudart calls: its row is the same without cudart's own cost.
PROMISES = [("1 MiB", "libgcpool, shared cudart", 0, 40),
            ("1 MiB", "libgcpool, driver API", 0, 80),
            ("1 MiB", "libgcpool, shared cudart", 2, 80),
            ("1 MiB, freed by another thread", "libgcpool, shared cudart", 2, 80)]
THREADS = ("1 thread", "4 threads", "16 threads")
MARGIN = 1.1  # rounds that a kernel takes most of differ by a tenth in one run


def beside_the_best(found):
    """For each table of sizes, the library over the best other allocator on each number of
    threads. With kernels in flight, of whole rounds: what an allocator waits for elsewhere
    is in them, too."""
    rows = []
    for sizes in dict.fromkeys(what for what, _ in found):
        ours = found.get((sizes, "libgcpool, shared cudart"))
        others = [ns for (what, name), ns in found.items()
                  if what == sizes and not name.startswith("libgcpool")]
        if not ours or not others:
            continue
        best = [min(column) for column in zip(*others)]
        ratios = [a / b for a, b in zip(ours, best)]
        rows.append(Row(f"{sizes}: the library over the best other, {', '.join(THREADS)}",
                        ", ".join(f"{ns:.0f} ns" for ns in best),
                        ", ".join(f"{ratio:.3g}" for ratio in ratios),
                        f"at most {MARGIN}", verdict(max(ratios) <= MARGIN)))
    return rows


def peers_rows(bench, found):
    rows = []
    for sizes, allocator, column, most in PROMISES:
        if (sizes, allocator) not in found:
            continue
        ours = found[sizes, allocator][column]
        others = {name: ns[column] for (what, name), ns in found.items()
                  if what == sizes and not name.startswith("libgcpool")}
        best = min(others, key=others.get)
        rows.append(Row(f"malloc + free, {sizes}, {THREADS[column]}, {allocator.split(', ')[1]}",
                        f"{others['cudaMalloc']:.0f} ns", f"{ours:.0f} ns",
                        f"<= {most} ns; best other: {best}, {others[best]:.0f} ns",
                        verdict(ours <= most)))
    return rows


def peers_alone(bench, found):
    """A process that knows nothing of peers must see what the table says."""
    command = [bench.program("loop-shared"), "--no-kernel", "--size", "1m"]
    runs = [number(bench.run(command + ["--iterations", 1000000], bench.library).out, "bytes:")
            for _ in range(3)]
    ours = found.get(("1 MiB", "libgcpool, shared cudart"), [0])[0]
    return Row("malloc + free, 1 MiB: a program of its own under LD_PRELOAD", "",
               f"{median(runs):.0f} ns", f"the table's, {ours:.0f} ns, within 20 ns", verdict(
                   abs(median(runs) - ours) <= 20))


def peers(bench):
    """Allocators side by side, in one process."""
    others, words = others_build(bench)
    command = [bench.program("peers"), bench.program("peers-plain.so")]
    command += (["--quick"] if bench.quick else []) + others
    result = bench.run(command, bench.library, timeout=240)
    found = cells_of(result.out)
    if result.code not in (0, 1) or not found:
        return [Row("allocators side by side", "", f"code {result.code}", "runs", FAIL,
                    result.tail())]
    rows = [Row("allocators side by side: which program is served by which", "",
                "as it should be" if result.code == 0 else "MIXED UP",
                "only the library's rows by the library", verdict(result.code == 0),
                result.tail())]
    rows += peers_rows(bench, found) + [peers_alone(bench, found)]
    rows += beside_the_best(cells_of(result.out, rounds=True))
    text = ["Nanoseconds for a malloc and its free on each thread. With kernels in flight each"
            " round is malloc, a kernel of about 10 us on the block, free, each thread with a"
            " stream of its own; in brackets the time of a whole round. Mixed sizes: 512 bytes"
            " to 8 MiB, each power of two as often. CUB: bins of powers of two, unbounded."
            " RMM: from 64 MiB.", "", *[f"{word}.\n" for word in words], result.out.strip()]
    rows[0].appendix = "\n".join(text)
    return rows


# --- frameworks --------------------------------------------------------------------

TORCH = {
    "its own cache": (False, {}),
    "its own, expandable segments":
        (False, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "off, libgcpool": (True, NO_CACHING),
    "off, libgcpool, segments": (True, {**NO_CACHING, "GCPOOL_BACKEND": "segments"}),
}
CUPY = {
    "its own pool": (False, {}),
    "off, libgcpool": (True, {}),
}
NAMES = {
    "gpt": "PyTorch: transformer training, 64 to 512 tokens",
    "conv": "PyTorch: convolution training, 8 to 48 images",
    "generate": "PyTorch: generation of 48 tokens, 1 to 16 prompts",
    "elementwise": "CuPy: elementwise, 4 Ki to 1 Mi floats",
    "reduction": "CuPy: reductions and sort",
    "fft": "CuPy: Fourier transforms, 1 to 64 x 4096",
}


def backend_known(bench):
    with open(bench.library, "rb") as file:
        return b"GCPOOL_BACKEND" in file.read()


def alternate(bench, command_of, settings, rounds=3):
    """{setting: [result of each round]}, A B C A B C; or what went wrong. settings: {name:
    (whether with the library, or with which, and its options)}."""
    runs = {name: [] for name in settings}
    for _ in range(bench.scale(rounds, 1)):
        for name, (pooled, extra) in settings.items():
            extra = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", **extra}
            library = pooled if isinstance(pooled, str) else bench.library if pooled else None
            start = time.monotonic()
            result = bench.run(command_of(name), library, extra)
            if result.code:
                return None, f"{name}: {result.tail()}"
            print(f"  {name}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
            runs[name].append(json.loads(result.out.strip().splitlines()[-1]))
    return runs, ""


def difference(a, b):
    """Largest relative difference of two lists of results."""
    return max((abs(x - y) / max(abs(x), 1e-9) for x, y in zip(a, b)), default=0)


def mib(values):
    return f"{median(values) / (1 << 20):.0f}"


def framework_rows(work, runs):
    """A row of verdicts, and the lines of the table for one piece of work."""
    first = next(iter(runs))
    own = [run[work] for run in runs[first]]
    reference = median([run["step_ms"] for run in own])
    noise = max(difference(own[0]["results"], run["results"]) for run in own)
    rows, lines = [], []
    for name, all_work in runs.items():
        found = [run[work] for run in all_work]
        times = [run["step_ms"] for run in found]
        differ = max(difference(own[0]["results"], run["results"]) for run in found)
        same = "equal in every bit" if not differ else f"differ by {differ:.1e}"
        lines.append(f"| {NAMES[work]} | {name} | {median(times):.2f} ({min(times):.2f} to "
                     f"{max(times):.2f}) | {median(times) / reference:.3f} | "
                     f"{mib([run['device'] for run in found])} | "
                     f"{mib([run['reserved'] for run in found])} | {same} |")
        if "libgcpool" in name:
            rows.append(Row(f"{NAMES[work]}: {name}",
                            f"{reference:.2f} ms with {first}",
                            f"{median(times):.2f} ms, results {same}", "the same results",
                            verdict(differ <= max(2 * noise, 1e-5 if noise else 0))))
    return rows, lines


def frameworks(bench):
    """PyTorch and CuPy with their caches off, against their own caches."""
    rows, lines, part = [], [], str(bench.scale(1, 0.4))
    torch = {name: value for name, value in TORCH.items()
             if "segments" not in name or backend_known(bench)}
    for module, program, settings in (("torch", "torch_steps.py", torch),
                                      ("cupy", "cupy_shapes.py", CUPY)):
        if missing(module):
            rows.append(Row(f"{module}: own cache against the library", verdict=SKIPPED,
                            details=f"no {module} here"))
            continue
        runs, wrong = alternate(
            bench, lambda name: script(bench, program, "--part", part, *(
                ["--pool"] if name == "its own pool" else [])), settings)
        if not runs:
            rows.append(Row(f"{module}: own cache against the library", verdict=FAIL,
                            details=wrong))
            continue
        for work in next(iter(runs.values()))[0]:
            more, table = framework_rows(work, runs)
            rows, lines = rows + more, lines + table
    text = ["Milliseconds for a step, median of alternating runs (least to most). Memory: MiB that"
            " the device had in use beyond the start of the work (NVML, after each step), and"
            " the most that the allocator held.", "",
            "| work | cache | ms for a step | of its own | MiB, device | MiB, allocator | results |",
            "|---|---|---|---|---|---|---|", *lines]
    if lines:
        rows[0].appendix = "\n".join(text)
    return rows


