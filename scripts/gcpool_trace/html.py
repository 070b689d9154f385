# SPDX-License-Identifier: MIT
"""A recording as a report in one HTML file, which a browser shows without a network: bytes
over time, the map of segments, lives of blocks, call sites, fragmentation, fences. Curves are
drawn by Dygraphs (Debian: libjs-dygraphs), which becomes part of the file."""

import bisect
import json
import os
import string

from . import chrome
from .recording import Wrong
from .summary import duration, size

HERE = os.path.dirname(os.path.abspath(__file__))
# Of the Debian package; what packaging/wheel puts into the wheel.
LIBRARIES = (
    "/usr/share/javascript/dygraphs/dygraph.min.js",
    os.path.join(HERE, "dygraph.min.js"),
)
SEGMENT, MAPPED, BLOCK = 0, 1, 2
POINTS, BLOCKS, FENCES, MOMENTS, SITES = 4000, 20000, 3000, 120, 40


def library_read(path):
    """(script, style) of Dygraphs."""
    places = [path] if path else [place for place in LIBRARIES if os.path.exists(place)]
    if not places:
        raise Wrong(
            "the report needs Dygraphs: install libjs-dygraphs, or say --library with the path of "
            "its dygraph.min.js"
        )
    with open(places[0], encoding="utf-8") as file:
        script = file.read()
    style = places[0].replace(".js", ".css")
    css = ""
    if os.path.exists(style):
        with open(style, encoding="utf-8") as file:
            css = file.read()
    # No word of where its source maps would be.
    lines = [line for line in script.splitlines() if not line.startswith("//# sourceMappingURL")]
    rules = [line for line in css.splitlines() if "sourceMappingURL" not in line]
    return "\n".join(lines), "\n".join(rules)


class Names:
    """Strings that many rows share, by number."""

    def __init__(self):
        self.list, self.numbers = [], {}

    def number(self, text):
        if text not in self.numbers:
            self.numbers[text] = len(self.list)
            self.list.append(text)
        return self.numbers[text]


def curve(recording, device):
    """[seconds, live, graph, pending, cached] at each point."""
    rows = []
    for point in chrome.thin(device.points, POINTS):
        row = [
            round(recording.seconds(point.time), 7),
            point.common,
            point.private,
            point.pending,
            point.cached,
        ]
        if rows and rows[-1][0] >= row[0]:
            row[0] = round(rows[-1][0] + 1e-7, 7)
        rows.append(row)
    end = recording.seconds(recording.end_ns)
    if rows and rows[-1][0] < end:
        rows.append([end, *rows[-1][1:]])
    return rows


def fragmentation(recording, history, device):
    """[seconds, free bytes, largest hole, holes] at some moments: what lies between the live
    blocks of the segments that there are."""
    first, last = recording.start_ns, recording.end_ns
    moments = [first + (last - first) * (i + 1) // MOMENTS for i in range(MOMENTS)]
    alive = [[] for _ in moments]
    for items in (history.blocks, history.segments):
        for item in items:
            if item.device != device.number:
                continue
            kind = BLOCK if items is history.blocks else SEGMENT if item.kind == "segment" else MAPPED
            low = bisect.bisect_left(moments, item.start)
            high = len(moments) if item.end is None else bisect.bisect_left(moments, item.end)
            for i in range(low, high):
                alive[i].append((item.addr, kind, item.size))
    rows = []
    for moment, items in zip(moments, alive):
        items.sort()
        rows.append([round(recording.seconds(moment), 7), *holes(items)])
    return rows


def holes(items):
    """(free bytes, largest hole, holes) of segments and blocks in the order of addresses. A
    hole may lie across mapped chunks, and not across segments."""
    free = largest = count = 0
    at = end = None
    for addr, kind, length in items:
        if kind == SEGMENT or (kind == MAPPED and addr != end):
            if at is not None and end > at:
                free, largest, count = free + end - at, max(largest, end - at), count + 1
            at, end = addr, addr + length
        elif kind == MAPPED:
            end = addr + length
        elif at is not None:
            if addr > at:
                free, largest, count = free + addr - at, max(largest, addr - at), count + 1
            at = max(at, addr + length)
    if at is not None and end > at:
        free, largest, count = free + end - at, max(largest, end - at), count + 1
    return free, largest, count


def blocks_rows(recording, history, symbols, names):
    """The blocks that take most bytes for most time; [addr, size, asked, start, end, site,
    graph, thread], end null if it was never freed."""
    end = recording.end_ns
    chosen = sorted(history.blocks, key=lambda b: -b.size * ((b.end or end) - b.start))[:BLOCKS]
    rows = []
    for block in sorted(chosen, key=lambda b: b.start):
        rows.append(
            [
                block.addr,
                block.size,
                block.requested,
                round(recording.seconds(block.start), 7),
                None if block.end is None else round(recording.seconds(block.end), 7),
                names.number(symbols.path(block.stack)),
                1 if block.graph else 0,
                block.thread,
                block.device,
            ]
        )
    return rows


def sites_rows(recording, history, symbols, names):
    """[site, bytes at the peak, blocks then, bytes never freed, allocations, bytes in all]"""
    rows = {}

    def add(blocks, column, count_column):
        for block in blocks:
            key = names.number(symbols.path(block.stack))
            row = rows.setdefault(key, [key, 0, 0, 0, 0, 0])
            row[column] += block.size
            if count_column:
                row[count_column] += 1

    add(history.at_peak(), 1, 2)
    add((block for block in history.blocks if block.end is None), 3, 0)
    add(history.blocks, 5, 4)
    order = sorted(rows.values(), key=lambda row: (-row[1], -row[5]))
    return order[:SITES]


def fences_rows(recording, history):
    """[seconds, bytes, blocks, ms to ready or null, how, device]"""
    fences = [fence for fence in history.fences if fence.recorded]
    step = -(-len(fences) // FENCES) or 1
    rows = []
    for fence in fences[::step]:
        wait = None if fence.done is None else (fence.done - fence.recorded) / 1e6
        rows.append(
            [
                round(recording.seconds(fence.recorded), 7),
                fence.bytes,
                fence.blocks,
                wait,
                fence.how,
                fence.device,
            ]
        )
    return rows


def facts(recording, history):
    device = history.main_device()
    counts = history.counts
    rows = [
        ("live at most", size(device.peak)),
        ("asked for at most", size(device.peak_requested)),
        ("reserved at most", size(device.peak_reserved)),
        ("live at the end", size(device.live)),
        ("allocations", f"{counts['allocations']:,}"),
        ("frees", f"{counts['frees']:,}"),
        ("captures", f"{len(history.captures):,}"),
        ("fences", f"{history.calls.get('cuCtxRecordEvent', (0,))[0]:,}"),
        ("barriers", f"{history.calls.get('cuCtxWaitEvent', (0,))[0]:,}"),
        ("failed for want of memory", f"{len(history.refused):,}"),
        ("time in driver calls", duration(sum(ns for _, ns, _ in history.calls.values()))),
        ("pinned at most", size(history.host_peak)),
    ]
    return rows


def data(recording, history, symbols):
    names = Names()
    devices = []
    for number in sorted(history.devices):
        device = history.devices[number]
        name = recording.devices.get(number, ("", 0))[0]
        devices.append(
            {
                "number": number,
                "name": name,
                "peak": device.peak,
                "peak_time": recording.seconds(device.peak_time) if device.peak else 0,
                "curve": curve(recording, device),
                "fragmentation": fragmentation(recording, history, device),
            }
        )
    segments = [
        [
            s.addr,
            s.size,
            round(recording.seconds(s.start), 7),
            None if s.end is None else round(recording.seconds(s.end), 7),
            s.device,
        ]
        for s in history.segments
    ]
    shown = {
        "program": recording.program,
        "pid": recording.pid,
        "host": recording.host,
        "seconds": recording.seconds(recording.end_ns),
        "notes": recording.notes,
        "facts": facts(recording, history),
        "devices": devices,
        "segments": segments,
        "blocks": blocks_rows(recording, history, symbols, names),
        "blocks_all": len(history.blocks),
        "sites": sites_rows(recording, history, symbols, names),
        "fences": fences_rows(recording, history),
        "threads": recording.threads,
    }
    shown["names"] = names.list
    return shown


def file_text(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def report(recording, history, symbols, library=None):
    script, style = library_read(library)
    page = string.Template(file_text("report.html"))
    # "</" would end the script in which the numbers stand.
    numbers = json.dumps(data(recording, history, symbols), separators=(",", ":")).replace("</", "<\\/")
    return page.substitute(
        style=style + "\n" + file_text("report.css"),
        library=script.replace("</script", "<\\/script"),
        data=numbers,
        code=file_text("report.js"),
    )
