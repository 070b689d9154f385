# SPDX-License-Identifier: MIT
"""The table that compares the library with what people use instead: rows of verdicts and,
as their appendix, the table in Markdown."""

import importlib.util
import os
import re

from bench import FAIL, Row, verdict

# --- allocators --------------------------------------------------------------------


def torch_build(bench):
    """The shared object of PyTorch's allocator, in a list; empty, and why it is not here."""
    spec = importlib.util.find_spec("torch")
    if not spec:
        return [], "PyTorch: not installed here"
    root = os.path.dirname(spec.origin)
    include, place = os.path.join(root, "include"), os.path.join(root, "lib")
    command = ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-w",
               os.path.join(bench.root, "tests", "bench", "peers_torch.cpp"), f"-I{include}",
               f"-I{include}/torch/csrc/api/include", "-isystem", f"{bench.toolkit}/include",
               "-Wl,--no-as-needed", f"-L{place}", f"-Wl,-rpath,{place}", "-lc10_cuda", "-lc10",
               "-o", bench.program("peers-torch.so")]
    result = bench.run(command, timeout=120)
    if result.code:
        return [], f"PyTorch: could not be built: {result.tail()}"
    return command[-1:], ""


def nanoseconds(cell):
    """Of "14368 (32.7 us)": the whole round; of "14368": a malloc and its free."""
    round_us = re.search(r"\(([0-9.]+) us\)", cell)
    return float(round_us[1]) * 1000 if round_us else float(cell.split()[0])


def cells_of(text):
    """{(sizes, allocator): [ns on each number of threads]}."""
    found = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.strip("| ").split("|")]
        if len(words) >= 5 and words[2].split()[0].replace("-", "").isdigit():
            found[words[0], words[1]] = [nanoseconds(word) for word in words[2:5]]
    return found


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


def peers(bench):
    """Allocators side by side, in one process."""
    others, words = torch_build(bench)
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
    rows += beside_the_best(found)
    text = ["Nanoseconds for a malloc and its free on each thread. With kernels in flight each"
            " round is malloc, a kernel of about 10 us on the block, free, each thread with a"
            " stream of its own; in brackets the time of a whole round. Mixed sizes: 512 bytes"
            " to 8 MiB, each power of two as often.",
            "", *([words + ".\n"] if words else []), result.out.strip()]
    rows[0].appendix = "\n".join(text)
    return rows
