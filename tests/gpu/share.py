# SPDX-License-Identifier: MIT
"""Checks that graphs which never run at the same time share the memory of their
temporaries (GCPOOL_GRAPH_SHARE=1), and that graphs which do run so stay apart."""

from bench import INFO, Row, judged, number, verdict

SHARE = {"GCPOOL_GRAPH_SHARE": "1", "GCPOOL_BACKEND": "auto"}  # mapped memory is shared
ALONE = {"GCPOOL_GRAPH_SHARE": "0", "GCPOOL_BACKEND": "auto"}


def play(bench, words, extra=None, library=None, timeout=100):
    command = [bench.program("graph_scratch-static"), "--play", *words]
    return bench.run(command, library or bench.library, {**SHARE, **(extra or {})}, timeout)


def found(result, before):
    """The number behind these words, or None."""
    return number(result.out, before) if before in result.out else None


def said(value, unit):
    return f"{value:.1f} {unit}" if value is not None else "no answer"


def held_row(bench, name, words, bound):
    alone, shared = (play(bench, ["held", *words], extra) for extra in (ALONE, SHARE))
    values = [found(result, "held:") for result in (alone, shared)]
    after = found(shared, "after a trim:")
    good = shared.code == 0 and after is not None and max(values[1], after) <= bound
    return judged(f"held by {name}", f"{said(values[0], 'MiB')}, each its own",
                  f"{said(values[1], 'MiB')}, {said(after, 'MiB')} after a trim",
                  f"<= {bound:.0f} MiB, 0 wrong words", good, shared)


def held(bench):
    """Graphs that are launched one after the other hold the largest one's memory."""
    size = 64 if bench.sim else bench.scale(1024, 256)
    count = bench.scale(1000, 200)
    return [
        held_row(bench, f"16 graphs with {size} MiB of temporaries",
                 ["--graphs", 16, "--bytes", f"{size}m"], size * 1.05),
        held_row(bench, f"{count} graphs with 512 B of temporaries",
                 ["--graphs", count, "--bytes", 512], 4),
        held_row(bench, f"16 graphs with {size} MiB that the program keeps",
                 ["--graphs", 16, "--bytes", f"{size}m", "--form", "kept"], size * 1.05),
        held_row(bench, f"16 graphs with {size // 4} MiB, and what is made of them",
                 ["--graphs", 16, "--bytes", f"{size // 4}m", "--form", "all"], size // 4 * 1.05),
    ]


ORDERS = {
    "one stream": ["--order", "one"], "streams in turn": ["--order", "turn"],
    "threads at the same time": ["--order", "threads"],
    "threads, each on all streams": ["--order", "threads", "--every-stream"]}


def launched(bench, what, orders, words, part=1):
    rows, count = [], (2000 if bench.sim else bench.scale(1_000_000, 50_000)) // part
    for name in orders:
        result = play(bench, ["stress", *ORDERS[name], *words, "--graphs", 8, "--bytes", "4m",
                              "--spin", 1000, "--launches", count], timeout=200)
        wrong = found(result, "wrong words:")
        text = f"{wrong:.0f} wrong words" if wrong is not None else f"code {result.code}"
        rows.append(judged(f"{count:,} launches of {what}, {name}", "", text, "0 wrong words",
                           result.code == 0, result))
    return rows


def stress(bench):
    """Launches of sharing graphs in every order, with every word checked."""
    return launched(bench, "sharing graphs", ORDERS, [])


def made(bench):
    """Launches of what is made of sharing graphs that the program keeps: second executables,
    those of clones and parents, and updated ones."""
    return launched(bench, "what is made of sharing graphs", list(ORDERS)[:2], ["--form", "all"], 5)


def teeth(bench):
    """The same without the launch guard must go wrong: graphs long enough to overlap before each
    has memory of its own."""
    result = play(bench, ["stress", "--order", "turn", "--graphs", 8, "--bytes", "4m", "--spin",
                          200_000, "--launches", 2000], library=bench.variant("noguard"))
    wrong = found(result, "wrong words:") or 0
    return [judged("stress without the launch guard", "", f"{wrong:.0f} wrong words",
                   "> 0: the check has teeth", wrong, result)]


def launch(bench):
    """Host time of a launch into the same stream: the fastest of processes in turn (a process has
    one of two speeds, whatever is shared)."""
    words = ["launch", "--graphs", 4, "--nodes", 6, "--bytes", "1m", "--spin", 0]
    values, lanes = [[], []], [0, 0]
    for _ in range(1 if bench.sim else 12):
        for kind, extra in enumerate((ALONE, SHARE)):
            result = play(bench, words, extra)
            values[kind].append(found(result, "launch:") or float("inf"))
            lanes[kind] = found(result, "lanes:")
    times = [min(kind) for kind in values]
    shared = lanes == [0, 1]
    good = shared and times[1] <= times[0] + 100
    return [Row("launch into the same stream", *[said(value, "ns") for value in times],
                "+ 30 ns (fails above + 100), in one lane",
                INFO if bench.sim and shared else verdict(good))]


def trim(bench):
    """Memory of idle graphs goes back, and comes again at the next launch: the median of
    several processes, and the least and the most."""
    size = 64 if bench.sim else 1024
    totals, good = [], True
    for _ in range(bench.scale(7, 1)):
        result = play(bench, ["trim", "--graphs", 1, "--bytes", f"{size}m"])
        trims, launches, given = (
            found(result, before) for before in ("trim:", "next launch:", "given back:"))
        if result.code or given is None or given < size * 0.99:
            good = False
            break
        totals.append((trims + launches, trims, launches))
    totals.sort()
    middle = totals[len(totals) // 2] if good else (0, None, None)
    return [judged(f"trim, and the next launch, {size} MiB", "",
                   f"{said(middle[1], 'ms')}, {said(middle[2], 'ms')}; "
                   f"{said(given, 'MiB')} back; together {totals[0][0]:.2f} to "
                   f"{totals[-1][0]:.2f} ms in {len(totals)} runs" if good else "fails",
                   "<= 2 ms together", good and (bench.sim or middle[0] <= 2), result)]
