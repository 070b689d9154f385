# SPDX-License-Identifier: MIT
"""Programs that people run, plain and with the library: equal results, time, memory. What each
does is in app.py. Where their packages are, the caller says (--site); none is fetched."""

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import glob
import importlib.machinery
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import machine
from bench import FAIL, SKIPPED, Row, verdict

EXACT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TOKENIZERS_PARALLELISM": "false",
         "XLA_FLAGS": "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0",
         "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclasses.dataclass
class Way:
    """A plain run, and a row for each run with the library: words that app.py is given, and the
    program's own settings, for all runs and for those with the library."""

    words: str = ""
    both: dict = dataclasses.field(default_factory=dict)
    pooled: dict = dataclasses.field(default_factory=lambda: {"": {}})
    preload: str = ""  # a library of the program, preloaded before ours
    prefix: tuple = ()  # a tool that runs it


@dataclasses.dataclass
class App:
    """Its function in app.py, the modules it needs, and its ways."""

    name: str
    modules: str
    ways: list = dataclasses.field(default_factory=lambda: [Way()])
    rounds: int = 2
    devices: int = 1


def cached(*words):
    """PyTorch as it is, and with its own cache off where the library is."""
    off = {"own cache off": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}
    return [Way(word, {}, {"": {}, **off}) for word in words]


APPS = [
    App("xgboost", "xgboost cupy"),
    App("catboost", "catboost", rounds=1),
    App("cupy", "cupy", [Way("its pool"), Way("no pool"), Way("async pool")]),
    App("tools", "cupy", [
        Way("Nsight Compute", prefix=("ncu", "--clock-control", "none", "--launch-count", "20",
                                      "--log-file", "/dev/null")),
        Way("memcheck", prefix=("compute-sanitizer", "--error-exitcode", "9",
                                "--log-file", "/dev/null"))], rounds=1),
    App("rmm", "rmm cupy", [Way("cuda"), Way("pool"), Way("async")]),
    App("cudf", "pylibcudf rmm", [Way("cuda"), Way("pool"), Way("async")]),
    App("faiss", "faiss", [Way("temporary memory"), Way("no temporary memory")]),
    App("openmm", "openmm"),
    App("warp", "warp", [Way("memory pools"), Way("no pools")]),
    App("warp_tests", "warp", rounds=0),
    App("taichi", "taichi dill"),
    App("numba", "numba numba_cuda"),
    App("jax", "jax jax_cuda13_plugin", [
        Way(name, {"XLA_PYTHON_CLIENT_ALLOCATOR": name})
        for name in ("default", "platform", "cuda_async")]),
    App("torch", "torch", cached("training", "captured")),
    App("shapes", "torch", cached("")),
    App("generate", "torch transformers", cached("")),
    App("train", "torch transformers bitsandbytes", cached("")),
    App("llama_cpp", "llama_cpp gguf"),
    App("vllm", "vllm", [*cached(""), Way("sleep"),
                         Way("slept from outside", pooled={"": {"GCPOOL_CONTROL": "1"}})]),
    App("hypre", "hypre"),
    App("devices", "torch", [*cached("collectives"), Way("handles")], rounds=0, devices=2),
    App("sharing", "torch", [Way("handles")], rounds=0),
    App("mpi", "mpi4py cupy", [Way("copies"), Way("IPC")]),
    App("mps", "cupy", rounds=0),
    App("onnxruntime", "onnxruntime onnx", [Way("arena"), Way("graph")]),
    App("memory_saver", "torch torch_memory_saver",
        [Way(preload="torch_memory_saver_hook_mode_preload_cu13*")]),
    App("checkpoint", "cupy pynvml", rounds=0),
]


class Gauge(threading.Thread):
    """The most device memory that a process held, by NVML; where NVML does not name processes,
    what the device had in use above what it had at the start."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.own, self.all, self.now, self.ended = pid, 0, 0, 0, threading.Event()

    def run(self):
        with contextlib.suppress(Exception):  # no NVML: no figure
            import pynvml
            pynvml.nvmlInit()
            device = pynvml.nvmlDeviceGetHandleByIndex(0)
            first = pynvml.nvmlDeviceGetMemoryInfo(device).used
            while not self.ended.wait(0.005):
                used = pynvml.nvmlDeviceGetMemoryInfo(device).used - first
                own = sum(one.usedGpuMemory or 0
                          for one in pynvml.nvmlDeviceGetComputeRunningProcesses(device)
                          if one.pid == self.pid)
                self.own, self.all = max(self.own, own), max(self.all, used)
                self.now = own or used

    def end(self):
        self.ended.set()
        self.join()
        return self.own or self.all


def environment(bench, way, library, more):
    """Plain or with the library: the packages that the caller gave, and NVIDIA's libraries."""
    path = [bench.site] if bench.site else []
    env = bench.environment(library, {**EXACT, **way.both, **more})
    found = [place for root in path + sys.path for place in glob.glob(f"{root}/nvidia/*/lib")]
    env["PYTHONPATH"] = ":".join(path + [env.get("PYTHONPATH", "")]).strip(":")
    env["LD_LIBRARY_PATH"] = ":".join([*found, env.get("LD_LIBRARY_PATH", "")]).strip(":")
    theirs = [name for root in path + sys.path if way.preload
              for name in glob.glob(f"{root}/{way.preload}")][:1]
    env["LD_PRELOAD"] = ":".join([*theirs, env.get("LD_PRELOAD", "")]).strip(":")
    return env


@contextlib.contextmanager
def turn():
    """One program at a time works on the GPU, also of several gpu-checks."""
    with open(os.path.join(tempfile.gettempdir(), "gpu-check.turn"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sleep(bench, process, gauge):
    """Lets a process sleep, whose next call wakes it; words for its row."""
    start, held = time.monotonic(), gauge.now
    asked = subprocess.run([os.path.join(bench.root, "scripts", "gcpool"), "ctl",
                            str(process.pid), "sleep"], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    time.sleep(0.5)
    words = f"{held >> 20} -> {gauge.now >> 20} MiB in {seconds:.2f} s"
    return words if asked.returncode == 0 else asked.stdout + asked.stderr


def play(bench, app, way, library=None, more=()):
    """One run: imports beside others, its work alone on the GPU. A dictionary, or a string that
    tells what went wrong. Where the program says "idle" the process sleeps, if it can."""
    command = [*way.prefix, sys.executable, "-P", os.path.join(bench.here, "app.py"), app.name,
               way.words, "--rounds", str(min(app.rounds, bench.scale(9, 1)))]
    limit = bench.scale(100, 60)
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            command, env=environment(bench, way, library, dict(more)), text=True, stderr=said,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tempfile.gettempdir(),
            start_new_session=True, bufsize=1)

        def guarded(work):
            guard = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
            guard.start()
            found = work()
            guard.cancel()
            return found

        guarded(lambda: next((line for line in process.stdout if line == "ready\n"), None))
        with turn():
            gauge = Gauge(process.pid)
            gauge.start()
            time.sleep(0.02)
            slept = []

            def work():
                process.stdin.write("go\n")
                for line in process.stdout:
                    if line != "idle\n":
                        yield line
                        continue
                    slept.extend([sleep(bench, process, gauge)] if library else [])
                    process.stdin.write("go\n")

            try:
                lines = guarded(lambda: list(work()))
            except BrokenPipeError:
                lines = process.stdout.readlines()
            process.communicate()
            memory = gauge.end()
        said.seek(0)
        told = "\n".join(said.read().strip().splitlines()[-12:])
    lines = [line[7:] for line in lines if line.startswith("result ")]
    if process.returncode or not lines:
        return f"exit code {process.returncode}\n{told}"
    return {**json.loads(lines[-1]), "memory": memory, "slept": slept, "said": told}


def compared(plain, pooled):
    """(equal, words, details). A result that differs from round to round on plain CUDA need
    only be close; each round is held against the same one of the other run."""
    bad, loose, words, details = [], [], [], []
    for name in plain["results"][0]:
        before, after = ([found[name] for found in run["results"]] for run in (plain, pooled))
        if before == after:
            words += [f"{name} {before[-1][0]}"] if not before[-1][1] else []
            continue
        unsteady = any(value != before[0] for value in before)
        near = all(abs(b[1] - a[1]) <= 0.02 * abs(b[1]) for b, a in zip(before, after))
        (loose if unsteady and near and before[0][1] else bad).append(name)
        details.append(f"{name}: {before} and {after}")
    words = [f"differ: {', '.join(bad)}"] if bad else [
        f"{', '.join(loose)}: plain runs differ as much"] if loose else ["equal", *words]
    return not bad, ", ".join(words), "\n".join(details)


def missing(bench, app, way):
    path = ([bench.site] if bench.site else []) + sys.path
    gone = [name for name in app.modules.split()
            if not importlib.machinery.PathFinder.find_spec(name, path)]
    gone += [tool for tool in way.prefix[:1] if not shutil.which(tool)]
    gone += [f"{app.devices} GPUs"] if len(machine.uuids_seen()) < app.devices else []
    return "not here: " + ", ".join(gone) if gone else ""


def figures(run):
    return min(run["times"][1:] or run["times"]), run["memory"] / (1 << 20)


def row(title, plain, pooled):
    if isinstance(plain, str):
        return Row(title, plain.splitlines()[0], "", "equal results", SKIPPED,
                   "does not run on plain CUDA: " + plain)
    title = f"{title}, {plain['version']}".rstrip(", ")
    seconds, held = figures(plain)
    words = f"{seconds:.3f} s, {held:.0f} MiB"
    if isinstance(pooled, str):
        return Row(title, words, pooled.splitlines()[0], "equal results", FAIL, pooled)
    ours, more = figures(pooled)
    equal, told, details = compared(plain, pooled)
    if pooled["slept"]:
        told += f", slept {len(pooled['slept'])} times: {pooled['slept'][0]}"
        equal = equal and all("->" in one for one in pooled["slept"])
    return Row(title, words, f"{ours:.3f} s ({ours / seconds:.2f}), {more:.0f} MiB "
               f"({more / max(held, 1):.2f}); {told}", "equal results", verdict(equal),
               details + "\n" + pooled["said"])


def run(app):
    """The check of one program. Two of its runs are under way: one works, one imports."""
    def check(bench):
        rows, jobs = [], []
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for way in app.ways:
                why = missing(bench, app, way)
                if why:
                    rows.append(Row(f"{app.name} {way.words}".strip(), verdict=SKIPPED,
                                    details=why))
                    continue
                plain = pool.submit(play, bench, app, way)
                jobs += [(" ".join([app.name, way.words, label]).replace("  ", " ").strip(), plain,
                          pool.submit(play, bench, app, way, bench.library, more))
                         for label, more in way.pooled.items()]
            return rows + [row(title, plain.result(), pooled.result())
                           for title, plain, pooled in jobs]
    return check
