# SPDX-License-Identifier: MIT
"""Checks that want two GPUs, or two processes of PyTorch: each function returns rows; with
one GPU the first are left out."""

import answers
import programs
from bench import FAIL, INFO, SKIPPED, Row, number, verdict
from frameworks import NO_CACHING, missing, script

STYLES = ("static", "shared", "linked")
ONE_DEVICE = 77  # what the programs end with


def cross_device_wait(bench):
    """Work of one device is not held back behind another's."""
    rows = []
    for style in STYLES:
        for bytes in ("4k", "1m", "3m"):
            command = [bench.program(f"cross_device_wait-{style}"), "--block", bytes]
            command += ["--ns", bench.scale(3000000000, 1500000000)]
            plain, pooled = bench.pair(command) if style == "static" else (
                None, bench.run(command, bench.library))
            if pooled.code == ONE_DEVICE:
                return [Row("kernels of two devices that wait for each other",
                            verdict=SKIPPED, details="one device only")]
            text = ["" if not r else r.out.split("was ")[-1].strip() if r.code in (0, 1)
                    else f"code {r.code}" for r in (plain, pooled)]
            rows.append(Row(f"work beside another device's, blocks of {bytes}, {style}", *text,
                            "not held back", verdict(pooled.code == 0),
                            "" if pooled.code == 0 else pooled.tail()))
    return rows


def staging(bench):
    """Pinned memory of one device that another copies from."""
    rows = []
    for style in STYLES:
        command = [bench.program(f"staging_devices-{style}"), "--rounds", bench.scale(300, 50)]
        result = bench.run(command, bench.library)
        if result.code == ONE_DEVICE:
            return [Row("pinned memory used by two devices", verdict=SKIPPED,
                        details="one device only")]
        rows.append(Row(f"pinned memory used by two devices, {style}", "",
                        result.out.split("rounds: ")[-1].strip() or f"code {result.code}",
                        "wrong words: 0", verdict(result.code == 0),
                        "" if result.code == 0 else result.tail()))
    return rows


def torch_loader(bench):
    """PyTorch loads through pinned memory, beside captures and another device's kernel."""
    what = "PyTorch, loaders beside captures and the other GPU's kernel"
    if missing("torch"):
        return [Row(what, verdict=SKIPPED, details="no torch here")]
    runs = bench.pair(script(bench, "torch_loader.py", bench.scale(8, 5)), timeout=120)
    if any(run.code == ONE_DEVICE for run in runs):
        return [Row(what, verdict=SKIPPED, details="one device only")]
    if any("pinned blocks:" not in run.out for run in runs):
        return [Row(what, verdict=FAIL, details="\n".join(run.tail() for run in runs))]
    text = [f"{number(run.out, 'pinned blocks:'):.0f} blocks, "
            f"{number(run.out, 'raw:'):.0f} us a batch" for run in runs]
    text[1] += f", {number(runs[1].out, 'pinned MiB:'):.0f} MiB at most"
    return [Row(what, *text, "sums right, it still runs, at most two windows and 32 MiB",
                verdict(runs[1].code == 0), "" if runs[1].code == 0 else runs[1].tail())]


def contexts(bench):
    rows = programs.contexts(bench)
    for row in rows:
        row.check = f"all devices: {row.check}"
    return rows


BACKENDS = ("auto", "segments")
ACCESS = ("no peer access", "access one way", "access the other way", "access both ways")


def copies(bench):
    """What copies between devices give, what they wait for, and what waits for them: as on
    plain CUDA."""
    rows = []
    for access, words in enumerate(ACCESS):
        for section in ("codes", "graphs", "order", "barriers"):
            rows += answers.compared(bench, f"copies, {section}, {words}",
                                     [bench.program("copies"), section, str(access)],
                                     backends=BACKENDS)
    return rows


def copies_freed(bench):
    """Memory is freed beside such copies. On plain CUDA some of these end with error 719, so
    what the library does counts."""
    rows = []
    for access, words in enumerate(ACCESS):
        for backend in BACKENDS:
            result = bench.run([bench.program("copies"), "frees", str(access)], bench.library,
                               {"GCPOOL_BACKEND": backend}, timeout=100)
            if result.code == ONE_DEVICE:
                return [Row("frees beside copies", verdict=SKIPPED, details="one device only")]
            text = result.out.strip().split("\n")[-1] if result.out else f"code {result.code}"
            rows.append(Row(f"frees beside copies, {words}, {backend}", "", text, "wrong words: 0",
                            verdict(result.code == 0), "" if result.code == 0 else result.tail()))
    return rows


def reduced(bench):
    """Kernels that read the other process's memory on the other device, through CUDA IPC."""
    rows = []
    plain = bench.run([bench.program("reduce")], timeout=100)
    if plain.code == ONE_DEVICE:
        return [Row("sums over two processes", verdict=SKIPPED, details="one device only")]
    for backend in BACKENDS:
        result = bench.run([bench.program("reduce")], bench.library,
                           {"GCPOOL_BACKEND": backend}, timeout=100)
        text = ["; ".join(run.out.split("\n")[:2]) or f"code {run.code}" for run in (plain, result)]
        rows.append(Row(f"sums over two processes, {backend}", *text, "wrong words: 0",
                        verdict(result.code == 0), "" if result.code == 0 else result.tail()))
    return rows


def torch_pair(bench, name, arguments, plain_arguments, environment, title):
    """A script of PyTorch without a cache of its own, plain and with each backend."""
    off = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", **environment}
    plain = bench.run(script(bench, name, *plain_arguments), None, off, timeout=120)
    if plain.code == ONE_DEVICE:
        return [Row(title, verdict=SKIPPED, details="one device only")]
    rows = []
    for backend in BACKENDS:
        result = bench.run(script(bench, name, *arguments), bench.library,
                           {**off, "GCPOOL_BACKEND": backend}, timeout=120)
        text = ["; ".join(line for line in run.out.split("\n") if " of " in line)
                or f"code {run.code}" for run in (plain, result)]
        rows.append(Row(f"{title}, {backend}", *text, "all", verdict(result.code == 0),
                        "" if result.code == 0 else result.tail()))
    return rows


def torch_nccl(bench):
    if missing("torch"):
        return [Row("PyTorch, NCCL", verdict=SKIPPED, details="no torch here")]
    rows = []
    for value in ("0", "1"):
        rows += torch_pair(bench, "torch_nccl.py", [], ["eager"], {"NCCL_CUMEM_ENABLE": value},
                           f"PyTorch, NCCL eagerly and in a capture, NCCL_CUMEM_ENABLE={value}")
    return rows


def torch_two(bench):
    if missing("torch"):
        return [Row("PyTorch, two devices", verdict=SKIPPED, details="no torch here")]
    return torch_pair(bench, "torch_two.py", [], [], {}, "PyTorch, tensors between two devices")


def torch_share(bench):
    """Tensors that another process gets; without PyTorch's cache each is a block of the
    library. Where plain PyTorch cannot hand such ones over, those of its cache, whose segments
    are the library's blocks."""
    if missing("torch"):
        return [Row("PyTorch, tensors to another process", verdict=SKIPPED,
                    details="no torch here")]
    ways = (("caching off", NO_CACHING), ("its own cache", {}))
    for name, environment in ways:
        plain = bench.run(script(bench, "torch_share.py"), None, environment, timeout=60)
        if plain.code == 0:
            break
    rows = []
    for backend in BACKENDS:
        pooled = bench.run(script(bench, "torch_share.py"), bench.library,
                           {**environment, "GCPOOL_BACKEND": backend}, timeout=60)
        text = [(run.out.strip().splitlines() or [f"code {run.code}"])[-1]
                for run in (plain, pooled)]
        rows.append(Row(f"PyTorch, tensors to another process, {name}, {backend}", *text, "all",
                        verdict(pooled.code == 0) if plain.code == 0 else INFO,
                        "" if pooled.code == 0 else pooled.tail()))
    return rows
