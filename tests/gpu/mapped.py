# SPDX-License-Identifier: MIT
"""A stress whose blocks are so large that mapped chunks move while work is pending."""

import json

from bench import judged, number


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
        rows.append(judged(f"mapped: stress with large blocks, {style}", "", words,
                           "0 wrong words, some moves", result.code == 0 and moved > 0, result))
    return rows
