# SPDX-License-Identifier: MIT
"""A recording as a report in one HTML file, which a browser shows without a network: bytes
over time, the map of segments, lives of blocks, call sites, fences. report.js draws it."""

import bisect
import collections
import json
import os
import string

from .summary import duration, size

HERE = os.path.dirname(os.path.abspath(__file__))
POINTS, BLOCKS, FENCES, SITES = 4000, 20000, 3000, 40
BINS = 500  # of time, for the choice of blocks


class Window:
    """What the report shows: from `first` to `last`, in ns, of a recording."""

    def __init__(self, recording, first, last):
        self.recording, self.first, self.last = recording, first, last

    def seconds(self, time):
        return None if time is None else round(self.recording.seconds(time), 7)

    def has(self, start, end):
        return start <= self.last and (end is None or end >= self.first)


def thin(points, most):
    """So many points at most: of each stretch of time the one with most live bytes, and the
    last one."""
    if len(points) <= most:
        return list(points)
    result, width = [], max(1, -(-2 * len(points) // most))
    for at in range(0, len(points), width):
        part = points[at : at + width]
        top = max(part, key=lambda point: (point.live, point.reserved))
        result += [top] if top is part[-1] else [top, part[-1]]
    return result


def curve(window, device):
    """[seconds, live, graph, pending, cached] at each point, and at both ends."""
    times = [point.time for point in device.points]
    low = max(0, bisect.bisect_right(times, window.first) - 1)
    high = bisect.bisect_right(times, window.last)
    points = thin(device.points[low:high], POINTS)
    rows = []
    for point in points:
        time = max(window.seconds(point.time), window.seconds(window.first))
        if rows and rows[-1][0] >= time:
            time = round(rows[-1][0] + 1e-7, 7)
        rows.append([time, point.common, point.private, point.pending, point.cached])
    end = window.seconds(window.last)
    if rows and rows[-1][0] < end:
        rows.append([end, *rows[-1][1:]])
    return rows


def blocks_chosen(window, history):
    """(blocks, how many there are): those that take most bytes for most time, and of each bin of
    time the largest that begin there, so that no time in which the program works looks idle."""
    first, last = window.first, window.last
    alive = [block for block in history.blocks if window.has(block.start, block.end)]
    if len(alive) <= BLOCKS:
        return alive, len(alive)

    def area(block):
        end = last if block.end is None else min(block.end, last)
        return block.size * (end - max(block.start, first))

    alive.sort(key=area, reverse=True)
    seen = collections.Counter()

    def place(block):
        """How many blocks of its bin take as much or more."""
        bin_ = (max(block.start, first) - first) * BINS // (last - first + 1)
        seen[bin_] += 1
        return seen[bin_]

    half = BLOCKS // 2
    chosen = alive[:half] + sorted(alive[half:], key=place)[: BLOCKS - half]
    return sorted(chosen, key=lambda block: block.start), len(alive)


def block_row(window, symbols, names, block):
    return [
        block.addr,
        block.size,
        block.requested,
        window.seconds(block.start),
        window.seconds(block.end),  # null: it was never freed
        names.setdefault(symbols.path(block.stack), len(names)),
        1 if block.graph else 0,
        block.thread,
        block.device,
    ]


def sites_rows(history, symbols, names):
    """[site, bytes at the peak, blocks then, bytes never freed, allocations, bytes in all]"""
    peak, left, every = (dict(history.by_site(blocks, symbols.path)) for blocks in (
        history.at_peak(), history.never_freed(), history.blocks))
    rows = [[names.setdefault(site, len(names)), *peak.get(site, (0, 0)), left.get(site, (0, 0))[0],
             count, total] for site, (total, count) in every.items()]
    return sorted(rows, key=lambda row: (-row[1], -row[5]))[:SITES]


def fences_rows(window, history):
    """[seconds, bytes, blocks, ms to ready or null, device]"""
    fences = [f for f in history.fences if f.recorded and window.has(f.recorded, f.recorded)]
    step = -(-len(fences) // FENCES) or 1
    return [
        [
            window.seconds(fence.recorded),
            fence.bytes,
            fence.blocks,
            None if fence.done is None else (fence.done - fence.recorded) / 1e6,
            fence.device,
        ]
        for fence in fences[::step]
    ]


def facts(history):
    counts, calls = history.counts, history.calls
    return [
        *((name, size(count)) for name, count in history.main_device().figures().items()),
        ("allocations", f"{counts['allocations']:,}"),
        ("frees", f"{counts['frees']:,}"),
        ("captures", f"{counts['captures']:,}"),
        ("fences", f"{calls.get('cuCtxRecordEvent', (0,))[0]:,}"),
        ("barriers", f"{calls.get('cuCtxWaitEvent', (0,))[0]:,}"),
        ("out of memory", f"{len(history.refused):,}"),
        ("time in driver calls", duration(history.driver_ns())),
        ("pinned at most", size(history.host_peak)),
    ]


def data(recording, history, symbols, window):
    names = {}  # strings that many rows share -> their numbers
    blocks, count = blocks_chosen(window, history)
    return {
        "program": recording.program,
        "pid": recording.pid,
        "host": recording.host,
        "seconds": recording.seconds(recording.end_ns),
        "window": [window.seconds(window.first), window.seconds(window.last)],
        "notes": recording.notes,
        "facts": facts(history),
        "devices": [
            {
                "number": number,
                "name": recording.devices.get(number, ("", 0))[0],
                "peak": device.peak,
                "curve": curve(window, device),
            }
            for number, device in sorted(history.devices.items())
        ],
        "segments": [
            [s.addr, s.size, window.seconds(s.start), window.seconds(s.end), s.device]
            for s in history.segments
            if window.has(s.start, s.end)
        ],
        "blocks": [block_row(window, symbols, names, block) for block in blocks],
        "blocks_all": count,
        "sites": sites_rows(history, symbols, names),
        "fences": fences_rows(window, history),
        "threads": recording.threads,
        "names": list(names),
    }


def file_text(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def script_data(value):
    """JSON in which nothing ends or begins a script, whatever the program was called."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: U+2028 is escaped
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def report(recording, history, symbols, first=None, last=None):
    """first, last: the seconds to show; all of them if not given."""
    start, end = recording.start_ns, recording.end_ns
    low = start if first is None else min(end, start + int(first * 1e9))
    high = end if last is None else min(end, start + int(last * 1e9))
    window = Window(recording, low, max(high, low + 1))
    return string.Template(file_text("report.html")).substitute(
        style=file_text("report.css"),
        data=script_data(data(recording, history, symbols, window)),
        code=file_text("report.js"),
    )
