# SPDX-License-Identifier: MIT
"""Checks of how memory is got from the driver: a stress whose blocks are so large that
mapped chunks move while work is pending; and the speed of blocks of mixed sizes."""

import json

from bench import Row, median, number, verdict


def mixed(bench):
    """Threads with blocks of all sizes: mapped memory against segments, in turn."""
    rows = []
    for threads in (1, 4, 16):
        times = {"vmm": [], "segments": []}
        failed = 0
        for _ in range(bench.scale(5, 3)):
            for backend, found in times.items():
                result = bench.run([bench.program("mixed"), threads, 1], bench.library,
                                   {"GCPOOL_BACKEND": backend})
                failed += result.code != 0
                found.append(number(result.out, "pair:"))
        mapped, segments = (median(found) / 1000 for found in times.values())
        rows.append(Row(f"free and malloc, 512 B to 8 MiB, 64 live, {threads} threads",
                        f"segments: {segments:.2f} us", f"{mapped:.2f} us",
                        "<= 1.5 of segments",
                        verdict(not failed and mapped <= 1.5 * segments)))
    return rows


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
