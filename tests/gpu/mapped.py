# SPDX-License-Identifier: MIT
"""Checks with mapped segments (GCPOOL_BACKEND=vmm): those of programs.py again, and
a stress whose blocks are so large that chunks move while work is pending."""

import json

import frameworks
import programs
from bench import Row, number, verdict


def mapped(check):
    """The same check, with the library's segments mapped by hand."""

    def run(bench):
        options = bench.options
        bench.options = {**options, "GCPOOL_BACKEND": "vmm"}
        try:
            rows = check(bench)
        finally:
            bench.options = options
        for row in rows:
            row.check = f"mapped: {row.check}"
        return rows

    return run


def remap(bench):
    """Chunks move while kernels run: no wrong word, and the GPU finds no fault."""
    rows = []
    for style in ("static", "linked"):
        command = [bench.program(f"stress-{style}"), "--rounds", bench.scale(2000, 500)]
        command += ["--max", "16m" if bench.sim else "48m", "--keep", 16]
        if bench.sim:
            command += ["--threads", 3, "--streams", 3, "--rounds", 300]
        result = bench.run(command, bench.library,
                           {"GCPOOL_BACKEND": "vmm", "GCPOOL_STATS": "json"})
        text = result.err[result.err.find("{"):]
        try:
            moved = sum(device["remaps"] for device in json.loads(text)["devices"])
        except (ValueError, KeyError):
            moved = 0
        words = (f"{number(result.out, 'wrong words:'):.0f} wrong words, {moved} moves"
                 if result.code in (0, 1) else f"code {result.code}")
        good = result.code == 0 and moved > 0
        rows.append(Row(f"mapped: stress with large blocks, {style}", "", words,
                        "0 wrong words, some moves", verdict(good),
                        "" if good else result.tail()))
    return rows


stress = mapped(programs.stress)
contexts = mapped(programs.contexts)
captures = mapped(programs.captures)
graphs = mapped(programs.graphs)
sharing = mapped(programs.sharing)
torch_train = mapped(frameworks.torch_train)
oom = mapped(programs.oom)
meminfo = mapped(programs.meminfo)
