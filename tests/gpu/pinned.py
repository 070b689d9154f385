# SPDX-License-Identifier: MIT
"""Checks of pinned host memory: each function returns rows."""

from bench import FAIL, INFO, SKIPPED, Row, number, verdict
from frameworks import missing, script

SIZES = {"4k": ("4 KiB", 300), "1m": ("1 MiB", 100), "64m": ("64 MiB", 20)}
HIT_NS = 200     # a pair that calls no driver
FENCED = "64m"   # 8 MiB and more: each free closes its epoch (docs/memory.md)


def staging(bench):
    """Fills, copies and frees with the copy pending: no wrong words."""
    rounds = bench.scale(3000, 600) if not bench.sim else 60
    rows = []
    for style in ("static", "shared", "linked", "dlsym"):
        command = [bench.program(f"staging-{style}"), "--rounds", rounds]
        command += ["--max", "64k"] if bench.sim else []
        plain, pooled = bench.pair(command) if style == "static" else (
            None, bench.run(command, bench.library))
        text = [f"{number(r.out, 'wrong words:'):.0f} wrong words" if r and r.code in (0, 1)
                else "not run" if not r else f"code {r.code}" for r in (plain, pooled)]
        good = pooled.code == 0 and (not plain or plain.code == 0)
        rows.append(Row(f"pinned staging, {style}", *text, "0 wrong words", verdict(good),
                        "" if good else pooled.tail()))
    return rows


def staging_teeth(bench):
    """The same under the library without fences must go wrong."""
    rounds = bench.scale(3000, 600) if not bench.sim else 60
    wrong, tries, result = 0, 0, None
    while not wrong and tries < 5:
        tries += 1
        command = [bench.program("staging-static"), "--rounds", rounds]
        command += ["--max", "1m", "--work", 50000, "--seed", tries]
        result = bench.run(command, bench.variant("nofence"))
        wrong = number(result.out, "wrong words:") if result.code in (0, 1) else 0
    return [Row("pinned staging, test build without fences", "", f"{wrong:.0f} wrong words",
                "> 0: the check has teeth", verdict(wrong), "" if wrong else result.tail())]


def staging_graph(bench):
    """A capture that stages through pinned memory, replayed 1,000 times."""
    rows = []
    for mode, name in enumerate(("global", "thread-local", "relaxed")):
        command = [bench.program("staging_graph-static"), "--replays",
                   1000 if not bench.sim else 30, "--mode", mode]
        plain, pooled = bench.pair(command)
        good = pooled.code == 0
        rows.append(Row(f"pinned memory in a capture, {name}", f"code {plain.code}",
                        f"{number(pooled.out, 'wrong words:'):.0f} wrong words"
                        if pooled.code in (0, 1) else f"code {pooled.code}",
                        "0 wrong words", verdict(good), "" if good else pooled.tail()))
    return rows


def limit_of(bench, size):
    """What a pair may take: that of a hit; where each free closes its epoch, a fence and
    a question besides, as the driver alone takes for them."""
    if size != FENCED:
        return HIT_NS
    fence = bench.run([bench.program("staging-linked"), "--fence", 2000 if bench.sim else 100000])
    return HIT_NS + number(fence.out, "fence:")


def pairs(bench):
    """The time of an allocation and its free that hit."""
    rows = []
    for style in ("linked", "shared"):
        for size, (words, count) in SIZES.items():
            command = [bench.program(f"staging-{style}"), "--size", size, "--pairs"]
            plain = bench.run(command + [count])
            pooled = bench.run(command + [bench.scale(2000000, 300000) if not bench.sim
                                          else 2000], bench.library)
            if plain.code or pooled.code:
                rows.append(Row(f"pinned pair, {words}, {style}", verdict=FAIL,
                                details=plain.tail() + pooled.tail()))
                continue
            a, b = number(plain.out, "bytes:"), number(pooled.out, "bytes:")
            limit = limit_of(bench, size) if style == "linked" else 0
            wanted = f"at most {limit:.0f} ns" if limit else ""
            good = not limit or b <= limit or bench.sim
            rows.append(Row(f"pinned pair, {words}, {style}", f"{a / 1000:.1f} us",
                            f"{b:.0f} ns", wanted, verdict(good) if wanted else INFO))
    return rows


def torch_pinned(bench):
    """PyTorch batches through pinned memory without PyTorch's cache of it."""
    if missing("torch"):
        return [Row("PyTorch, pinned batches", verdict=SKIPPED, details="no torch here")]
    plain, pooled = bench.pair(script(bench, "torch_pinned.py", "raw"), timeout=300)
    own = bench.run(script(bench, "torch_pinned.py", "own"), timeout=300)
    if plain.code or pooled.code or own.code:
        return [Row("PyTorch, pinned batches of 12 MiB", verdict=FAIL,
                    details="\n".join(run.tail() for run in (plain, pooled, own)))]
    times = [number(run.out, "batch:") for run in (plain, pooled, own)]
    sums = {number(run.out, "sum:") for run in (plain, pooled, own)}
    return [Row("PyTorch, pinned batches of 12 MiB", f"{times[0]:.0f} us",
                f"{times[1]:.0f} us, same sums", f"its own cache: {times[2]:.0f} us",
                verdict(len(sums) == 1))]


def growth(bench):
    """Pinned blocks that come and go: alone, beside a kernel of another context, and beside
    a capture of another thread. Few different ones, so that what is pinned stays bounded."""
    plain, pooled = bench.pair([bench.program("pinned-growth")], timeout=60)
    lines = [dict(line.split(": ", 1) for line in run.out.splitlines() if " different" in line)
             for run in (plain, pooled)]
    if len(lines[1]) < 3:
        return [Row("pinned blocks that come and go", f"code {plain.code}",
                    f"code {pooled.code}", "runs", FAIL, plain.tail() + "\n" + pooled.tail())]
    rows = []
    for name, words in lines[1].items():
        different = int(words.split(", ")[-1].split()[0])
        good = number(words, "code ") == 0 and different <= 64
        rows.append(Row(f"pinned blocks that come and go, {name}",
                        lines[0].get(name, f"code {plain.code}").split(", ")[-1],
                        words.split(", ")[-1], "at most 64, no error", verdict(good),
                        "" if good else pooled.tail()))
    if "had ended" in pooled.out:
        rows.append(Row("pinned blocks that come and go", "", "the kernel had ended",
                        "it runs", FAIL))
    return rows
