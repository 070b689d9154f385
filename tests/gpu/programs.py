# SPDX-License-Identifier: MIT
"""Checks with the programs of tests/integration/programs: each function returns rows."""

import difflib

from bench import INFO, SKIPPED, Row, judged, median, number, verdict

ONE_DEVICE = 77  # what a program ends with that wants two
STYLES = ("static", "shared", "linked", "dlsym")


def transcript(bench, program, arguments=(), styles=STYLES, name=None):
    """Output and exit code equal with and without the library."""
    rows = []
    for style in styles:
        plain, pooled = bench.pair([bench.program(f"{program}-{style}"), *arguments])
        a, b = plain.out.splitlines(), pooled.out.splitlines()
        diff = "\n".join(difflib.unified_diff(a, b, "plain", "with the library", "", "", 0))
        good = plain.code == pooled.code == 0 and a == b
        changed = sum(1 for line in diff.splitlines()[2:] if line.startswith("+"))
        rows.append(Row(f"{name or program}, {style}", f"{len(a)} lines, code {plain.code}",
                        f"{changed} differ, code {pooled.code}", "equal", verdict(good),
                        "" if good else "\n".join([diff, plain.err, pooled.err])))
    return rows


# Check: the programs, their arguments, and in which styles.
TRANSCRIPTS = {
    "errors": ([("errors", [])], STYLES),
    "pitch": ([("pitch", [])], ("static", "linked")),
    "contexts": ([("contexts", [])], ("static", "shared", "linked")),
    "introspection": ([("introspection", [])], STYLES),
    "solver": ([("solver", [])], ("static", "shared")),
    "life": ([("life", [way]) for way in ("--fork", "--spawn", "--return", "--thread", "--atexit",
                                          "--quick")], ("static", "linked")),
}


def transcripts(name):
    """A check that runs programs plain and with the library."""

    def run(bench):
        played, styles = TRANSCRIPTS[name]
        return [row for program, arguments in played for row in transcript(
            bench, program, arguments, styles, " ".join([program, *arguments]))]

    return run


# Programs that count wrong words: the words before the number, arguments, styles.
COUNTED = {
    "stress": ("stress", [], STYLES), "stress-async": ("stress", ["--async"], ("static", "shared")),
    "staging": ("staging", [], STYLES), "exchange": ("exchange", [], ("static", "linked")),
    "exchange-access": ("exchange", ["--access"], ("static", "linked")),
    "quota": ("quota", ["--total", "12g"], STYLES),
    "spill": ("sleep", "--blocks 300 --bytes 64m --rounds 3".split(), ("static", "linked")),
    "spill-stress": ("stress", ["--keep", 16], ("static", "linked"))}

# The first of these needs 1.2 times that; what is beyond is memory of the host.
SPILLS = {"GCPOOL_SPILL": "16G", "GCPOOL_BACKEND": "vmm", "GCPOOL_WAKE": "auto"}
EXTRA = {"quota": {"GCPOOL_QUOTA": "12G"}, "spill": {"GCPOOL_QUOTA": "16G", **SPILLS},
         "spill-stress": {"GCPOOL_QUOTA": "96M", **SPILLS}}


def counted(name):
    """A check that runs a program with the library: its exit code says whether all is right."""

    def run(bench):
        program, arguments, styles = COUNTED[name]
        rows = []
        for style in styles:
            command = [bench.program(f"{program}-{style}"), *arguments]
            if program in ("stress", "staging", "exchange"):
                command += ["--rounds", bench.scale(3000, 600) if not bench.sim else 60]
                command += ["--max", "64k"] if bench.sim else []
            if name == "spill-stress":
                command += ["--max", "48m"]
            result = bench.run(command, bench.library, EXTRA.get(name, {}), 300)
            if result.code == ONE_DEVICE:
                return [Row(name, verdict=SKIPPED, details="one device only")]
            rows.append(judged(f"{name}, {style}", "", result.last()[-80:], "nothing wrong",
                               result.code == 0, result))
        return rows

    return run


def teeth(program):
    """The same under the library without fences must go wrong."""

    def run(bench):
        rounds = bench.scale(3000, 600) if not bench.sim else 100
        wrong, tries, result = 0, 0, None
        while not wrong and tries < 5:
            tries += 1
            command = [bench.program(f"{program}-static"), "--rounds", rounds]
            command += ["--max", "1m", "--work", 50000, "--seed", tries]
            result = bench.run(command, bench.variant("nofence"))
            if result.code == ONE_DEVICE:
                return [Row(f"{program}-teeth", verdict=SKIPPED, details="one device only")]
            wrong = number(result.out, "wrong words:") if result.code in (0, 1) else 0
        return [judged(f"{program}, test build without fences", "", f"{wrong:.0f} wrong words",
                       "> 0: the check has teeth", wrong, result)]

    return run


def legality(result):
    """{(mode, thread): {call: (code, state, end, result, mode)}} of captures.c."""
    found = {}
    for line in result.out.splitlines():
        words = line.split()
        key = (words[0], " ".join(words[1:3]))
        found.setdefault(key, {})[" ".join(words[3:-5])] = tuple(words[-5:])
    return found


def captures(bench):
    """Calls during a capture after which the captured graph still computes."""
    rows = transcript(bench, "captures", ["--eager"], ("static",), "captures, relaxed mode")
    for style in STYLES:
        plain, pooled = bench.pair([bench.program(f"captures-{style}")])
        tables = [legality(result) for result in (plain, pooled)]
        right = [sum(cell == ("2" if call == "out of memory" else "0",
                              "active", "0", "right", "kept")  # works, and the capture too
                     for calls in table.values() for call, cell in calls.items())
                 for table in tables]
        count = [len(result.out.splitlines()) for result in (plain, pooled)]
        good = plain.code == pooled.code == 0 and count[0] == right[1] == count[1] == 60
        rows.append(Row(f"captures in every mode, {style}",
                        *[f"{r} of {c} work" for r, c in zip(right, count)], "60 of 60",
                        verdict(good), "" if good else pooled.out + pooled.err + plain.err))
    return rows


def graphs(bench):
    """Captured temporaries stay private for as long as a graph can run."""
    full = bench.scale(10000, 1000) if not bench.sim else 30
    many = ["--only", "destroyed", "--rounds", 1, "--replays", full]
    trials = [("static", "exec", ["--only", "exec", "--rounds", full]),
              ("static", "one graph", many), ("shared", "one graph", many),
              ("shared", "all lives", ["--rounds", full // 20 + 1]),
              ("static", "all lives, eager thread", ["--rounds", full // 50 + 1, "--eager-thread"]),
              ("static", "all lives, 3 threads, eager thread",
               ["--rounds", full // 50 + 1, "--threads", 3, "--eager-thread"])]
    rows = []
    for style, what, arguments in trials:
        command = [bench.program(f"graphs-{style}"), "--words", 4096, *arguments]
        plain, pooled = bench.pair(command, timeout=180)
        times = arguments[arguments.index("--rounds") + 1]
        times = f"{full} replays" if "--replays" in arguments else f"{times} rounds"
        rows.append(judged(f"graphs, {what}, {times}, {style}",
                           "refused" if plain.code == 2 else f"code {plain.code}",
                           pooled.out.split("threads: ")[-1].strip()
                           if pooled.code in (0, 1) else f"code {pooled.code}",
                           "0 wrong words, memory back", pooled.code == 0, pooled))
    return rows


def graphs_teeth(bench):
    """A graph's memory written by others must be noticed. (What is freed in a capture
    and shared may be unmapped between launches: such writes end with error 700.)"""
    command = [bench.program("graphs-static"), "--words", 4096, "--rounds", 20, "--leak"]
    result = bench.run(command, bench.library, {"GCPOOL_GRAPH_SHARE": "0"})
    wrong = number(result.out, "wrong words:") if result.code in (0, 1) else 0
    return [judged("graphs, eager work writes their memory on purpose", "",
                   f"{wrong:.0f} wrong words", "> 0: the check has teeth", wrong, result)]


# Size, and whether the driver's pool must be beaten: large blocks are reused less
# often than it reuses them, to keep streams apart.
LOOPS = [("static", "512", True), ("static", "64k", True), ("static", "1m", True),
         ("static", "4m", True), ("shared", "4m", True), ("static", "32m", False),
         ("static", "256m", False)]


def loop(bench):
    """malloc + kernel + free, against the driver's own stream-ordered pool."""
    rows = []
    for style, size, wanted in LOOPS if not bench.sim else LOOPS[:5]:
        command = [bench.program(f"loop-{style}"), "--size", size, "--iterations"]
        command += [bench.scale(10000, 3000) if not bench.sim else 200]
        plain = bench.run(command)
        pooled, driver = [], []
        for _ in range(bench.scale(7, 5) if not bench.sim else 2):  # in turn: the machine is noisy
            pooled.append(number(bench.run(command, bench.library).out, "bytes:"))
            driver.append(number(bench.run(command + ["--async"]).out, "bytes:"))
        good = median(pooled) <= median(driver)
        rows.append(Row(
            f"malloc + kernel + free, {size}, {style}",
            f"{number(plain.out, 'bytes:') / 1000:.2f} us",
            f"{median(pooled) / 1000:.2f} us ({min(pooled) / 1000:.2f} to"
            f" {max(pooled) / 1000:.2f})",
            f"{'<= ' if wanted else ''}cudaMallocAsync: {median(driver) / 1000:.2f} us"
            f" ({min(driver) / 1000:.2f} to {max(driver) / 1000:.2f})",
            verdict(good) if wanted and not bench.sim else INFO))
    return rows


def window(bench):
    """Throughput kept with malloc and free around each 20 us kernel."""
    rows = []
    for streams, wanted in ((1, 0.93), (4, 0.93), (16, None)):
        wanted = None if bench.sim else wanted  # no real time there
        command = [bench.program("window-static"), "--streams", streams]
        command += ["--launches", bench.scale(4000, 1000) if not bench.sim else 50]
        plain = bench.run(command + ["--trials", 3])
        ratios = [number(bench.run(command, bench.library).out, "ratio") for _ in range(3)]
        good = wanted is None or median(ratios) >= wanted
        rows.append(Row(f"window, {streams} streams of 20 us kernels",
                        f"{number(plain.out, 'ratio'):.3f}", f"{median(ratios):.3f}",
                        f">= {wanted}" if wanted else "", verdict(good) if wanted else INFO))
    return rows


def obtained(result):
    """Bytes (MiB) of each phase of oom."""
    return [number(line, "obtained") for line in result.out.splitlines() if "obtained" in line]


def oom(bench):
    """Fills the card in changing sizes: never less than plain CUDA."""
    rows = []
    for style in ("static", "shared"):
        plain, pooled = bench.pair([bench.program(f"oom-{style}")], timeout=240)
        a, b = obtained(plain), obtained(pooled)
        least = min((y / x for x, y in zip(a, b) if x), default=0)
        good = pooled.code == plain.code == 0 and len(a) == len(b) and least >= 0.995
        rows.append(judged(f"out of memory, {len(a)} phases, {style}",
                           f"{sum(a) / 1024:.1f} GiB in {plain.seconds:.1f} s",
                           f"{sum(b) / 1024:.1f} GiB in {pooled.seconds:.1f} s; least {least:.4f}",
                           "each phase >= 0.995 of plain", good, plain, pooled))
    return rows


def ipc(bench):
    """Two processes exchange a small block that is not the first of its segment."""
    rows = []
    for style in ("static", "shared", "linked"):
        for size in ("4096", "3m"):
            command = [bench.program(f"ipc-{style}"), "--size", size]
            plain, pooled = bench.pair(command)
            rows.append(judged(f"IPC pair, {size}, {style}", f"code {plain.code}",
                               f"code {pooled.code}", "right data on both sides",
                               plain.code == pooled.code == 0, plain, pooled))
    command = [bench.program("ipc-static"), "--child-plain"]
    result = bench.run(command, bench.library)
    words = {0: "right data", 3: "refused"}.get(result.code, f"code {result.code}")
    return rows + [judged("IPC to a process without the library", "", words,
                          "right data, or refused with an error", words != f"code {result.code}",
                          result)]
