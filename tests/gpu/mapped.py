# SPDX-License-Identifier: MIT
"""Checks of how memory is got from the driver: a stress whose blocks are so large that
mapped chunks move while work is pending; and the speed of the default beside that of
segments."""

import json

from bench import FAIL, INFO, OK, Row, median, number, verdict


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


# --- the speed of the default beside that of segments ---------------------------------

MORE = 1.03  # what the default may take
MORE_RUNS = 5


def in_turn(bench, command, before, settings):
    """What follows the words `before`, of alternating runs: {setting: [figures]}, or the run
    that went wrong. settings: {name: (library, its options)}."""
    found = {name: [] for name in settings}
    for _ in range(bench.scale(MORE_RUNS, 1) if not bench.sim else 1):
        for name, (library, options) in settings.items():
            run = bench.run(command, library, options, 60)
            if run.code:
                return run
            found[name].append(number(run.out, before))
    return found


def beside_row(bench, work, other, settings):
    """A row: the figure of the last of two settings, and that of the first, whose name is
    `other`. work: one of loops."""
    name, command, before, words = work
    name = f"beside {other}: {name}"
    found = in_turn(bench, command, before, settings)
    if not isinstance(found, dict):
        return Row(name, "", f"code {found.code}", "runs", FAIL, found.tail())
    others, own = found.values()
    # A ratio counts the other way round.
    good = (median(own) * MORE >= median(others) if before == "ratio"
            else median(own) <= median(others) * MORE)
    return Row(name, f"{other}: {words.format(median(others))}",
               f"{words.format(median(own))} ({words.format(min(own))} to "
               f"{words.format(max(own))})",
               f"at most 3 % slower than {other} ({words.format(min(others))} to "
               f"{words.format(max(others))})",
               OK if good and not bench.sim else INFO)


def loops(bench):
    """Loops over one size, throughput kept, and pairs on 1 and 16 threads: (name, command,
    the words before its figure, how that is written)."""
    for size in ("64k", "1m", "4m"):
        command = [bench.program("loop-static"), "--size", size, "--iterations",
                   bench.scale(10000, 3000) if not bench.sim else 200]
        yield f"malloc + kernel + free, {size}", command, "bytes:", "{:.0f} ns"
    for streams in (1, 4, 16):
        command = [bench.program("window-static"), "--streams", streams]
        command += ["--launches", bench.scale(4000, 1000) if not bench.sim else 50]
        yield f"window, {streams} streams", command, "ratio", "{:.3f}"
    for threads in (1, 16) if not bench.sim else ():
        for size, bytes in (("4 KiB", 4 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20)):
            command = [bench.program("mixed"), threads, 0.2, bytes]
            yield f"a pair, {size}, {threads} threads", command, "pair:", "{:.0f} ns"


def beside(bench):
    """The default beside segments."""
    settings = {"segments": (bench.library, {"GCPOOL_BACKEND": "segments"}),
                "default": (bench.library, {"GCPOOL_BACKEND": "auto"})}
    return [beside_row(bench, work, "segments", settings) for work in loops(bench)]


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
