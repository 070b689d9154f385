"""Checks with the programs of tests/programs: each function returns rows."""

import difflib

from bench import FAIL, INFO, OK, Row, median, number, verdict

STYLES = ("static", "shared", "linked", "dlsym")


def stress(bench):
    """Frees with work pending: no wrong words; without fences there must be."""
    rounds = bench.scale(3000, 600) if not bench.sim else 100
    rows = []
    for style in STYLES:
        command = [bench.program(f"stress-{style}"), "--rounds", rounds]
        command += ["--max", "256k"] if bench.sim else []
        plain, pooled = bench.pair(command) if style == "static" else (
            None, bench.run(command, bench.library))
        text = [f"{number(r.out, 'wrong words:'):.0f} wrong words" if r and r.code in (0, 1)
                else "not run" if not r else f"code {r.code}" for r in (plain, pooled)]
        good = pooled.code == 0 and (not plain or plain.code == 0)
        rows.append(Row(f"stress, {style}", *text, "0 wrong words", verdict(good),
                        "" if good else pooled.tail()))
    return rows


def stress_teeth(bench):
    """The same stress under the library without fences must go wrong."""
    rows = []
    rounds = bench.scale(3000, 600) if not bench.sim else 100
    for style in ("static", "shared"):
        wrong, tries, result = 0, 0, None
        while not wrong and tries < 5:
            tries += 1
            command = [bench.program(f"stress-{style}"), "--rounds", rounds]
            command += ["--max", "1m", "--work", 50000, "--seed", tries]
            result = bench.run(command, bench.nofence)
            wrong = number(result.out, "wrong words:") if result.code in (0, 1) else 0
        rows.append(Row(f"stress, {style}, test build without fences", "",
                        f"{wrong:.0f} wrong words", "> 0: the check has teeth",
                        verdict(wrong), "" if wrong else result.tail()))
    return rows


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


def errors(bench):
    return transcript(bench, "errors")


def pitch(bench):
    return transcript(bench, "pitch", styles=("static", "linked"))


def contexts(bench):
    return transcript(bench, "contexts", styles=("static", "shared", "linked"))


def solver(bench):
    return transcript(bench, "solver", styles=("static", "shared"), name="solver checksum")


def life(bench):
    rows = []
    for way in ("--fork", "--spawn", "--return", "--thread", "--atexit", "--quick"):
        name = f"process end {way[2:]}"
        rows += transcript(bench, "life", [way], ("static", "linked"), name)
    return rows


def captures(bench):
    """Calls during a capture after which the captured graph still computes."""
    rows = transcript(bench, "captures", ["--eager"], ("static",), "captures, relaxed mode")
    for style in ("static", "shared", "linked"):
        texts, details = [], ""
        for result in bench.pair([bench.program(f"captures-{style}")]):
            lines = [line for line in result.out.splitlines() if line]
            right = [line for line in lines if line.endswith("right")]
            wrong = [line for line in lines if line.endswith("WRONG")]
            texts.append(f"{len(right)} of {len(lines)} right, {len(wrong)} wrong")
            bad = [line for line in lines if line not in right]
            details = "\n".join(bad + ([result.tail()] if result.code else []))
        good = lines and not details
        rows.append(Row(f"captures in every mode, {style}", *texts, "all right",
                        verdict(good), details))
    return rows


def graphs(bench):
    """Captured temporaries stay private for as long as a graph can run."""
    full = bench.scale(10000, 1000) if not bench.sim else 30
    trials = [("static", "exec", full, 1), ("shared", None, full // 20, 1),
              ("static", None, full // 50, 3)]
    rows = []
    for style, only, rounds, threads in trials:
        command = [bench.program(f"graphs-{style}"), "--rounds", rounds, "--threads", threads]
        command += ["--only", only] if only else []
        command += ["--words", 4096] + (["--bystander"] if threads > 1 else [])
        plain, pooled = bench.pair(command)
        good = pooled.code == 0
        what = only or "all lives"
        rows.append(Row(f"graphs, {what}, {rounds} rounds, {threads} threads, {style}",
                        "refused" if plain.code == 2 else f"code {plain.code}",
                        pooled.out.split("threads: ")[-1].strip()
                        if pooled.code in (0, 1) else f"code {pooled.code}",
                        "0 wrong words, memory back", verdict(good),
                        "" if good else pooled.tail()))
    return rows


def loop(bench):
    """malloc + kernel + free, against the driver's own stream-ordered pool."""
    rows = []
    trials = [("static", "4m"), ("shared", "4m"), ("static", "512"), ("static", "256m")]
    for style, size in trials[: 3 if bench.sim else None]:
        command = [bench.program(f"loop-{style}"), "--size", size, "--iterations"]
        command += [bench.scale(20000, 4000) if not bench.sim else 200]
        plain = bench.run(command)
        pooled, driver = [], []
        for _ in range(3):
            pooled.append(number(bench.run(command, bench.library).out, "bytes:"))
            driver.append(number(bench.run(command + ["--async"]).out, "bytes:"))
        good = median(pooled) <= median(driver)
        rows.append(Row(
            f"malloc + kernel + free, {size}, {style}",
            f"{number(plain.out, 'bytes:') / 1000:.2f} us",
            f"{median(pooled) / 1000:.2f} us",
            f"<= cudaMallocAsync: {median(driver) / 1000:.2f} us", verdict(good)))
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
        rows.append(Row(f"out of memory, {len(a)} phases, {style}",
                        f"{sum(a) / 1024:.1f} GiB in {plain.seconds:.1f} s",
                        f"{sum(b) / 1024:.1f} GiB in {pooled.seconds:.1f} s; least {least:.4f}",
                        "each phase >= 0.995 of plain", verdict(good),
                        "" if good else plain.out + plain.err + pooled.out + pooled.err))
    return rows


def meminfo(bench):
    """cudaMemGetInfo counts the cache as free."""
    rows = []
    for style in ("static", "linked"):
        plain, pooled = bench.pair([bench.program(f"meminfo-{style}")])
        a, b = ([number(line, " free ") for line in r.out.splitlines() if " free " in line]
                for r in (plain, pooled))
        most = max((abs(y - x) / x for x, y in zip(a, b)), default=1)
        good = pooled.code == plain.code == 0 and len(a) == len(b) and most <= 0.05
        rows.append(Row(f"cudaMemGetInfo at {len(a)} moments, {style}", "",
                        f"differs by at most {most * 100:.2f} %", "<= 5 %", verdict(good),
                        "" if good else plain.out + pooled.out + pooled.err))
    return rows


def ipc(bench):
    """Two processes exchange a small block that is not the first of its segment."""
    rows = []
    for style in ("static", "shared", "linked"):
        for size in ("4096", "3m"):
            command = [bench.program(f"ipc-{style}"), "--size", size]
            plain, pooled = bench.pair(command)
            good = plain.code == pooled.code == 0
            rows.append(Row(f"IPC pair, {size}, {style}", f"code {plain.code}",
                            f"code {pooled.code}", "right data on both sides", verdict(good),
                            "" if good else plain.tail() + "\n" + pooled.tail()))
    command = [bench.program("ipc-static"), "--child-plain"]
    result = bench.run(command, bench.library)
    words = {0: "right data", 3: "refused"}.get(result.code, f"code {result.code}")
    rows.append(Row("IPC to a process without the library", "", words,
                    "right data, or refused with an error",
                    verdict(result.code in (0, 3)), result.tail()))
    return rows


def sanitizer(bench):
    """compute-sanitizer finds nothing in the stress under the library."""
    command = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"]
    rows = []
    for style in ("static", "shared"):
        stress_command = command + [bench.program(f"stress-{style}"), "--threads", 2]
        stress_command += ["--rounds", bench.scale(150, 60), "--max", "256k"]
        plain, pooled = bench.pair(stress_command, timeout=180)
        texts = [r.out.strip().splitlines()[-1].lstrip("= ") if r.out.strip() else r.tail()
                 for r in (plain, pooled)]
        good = pooled.code == 0
        rows.append(Row(f"compute-sanitizer memcheck, {style}", *texts, "no error",
                        FAIL if not good and plain.code == 0 else OK if good else INFO,
                        "" if good else pooled.tail()))
    return rows
