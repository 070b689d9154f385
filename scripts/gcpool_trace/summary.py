# SPDX-License-Identifier: MIT
"""A recording in words."""

import collections


def size(count):
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024


def plain(line):
    """Without what a terminal obeys: programs, files and functions may have any name."""
    return "".join("?" if letter < " " or "\x7f" <= letter < "\xa0" else letter for letter in line)


def duration(ns):
    for unit, most in (("ns", 1e3), ("us", 1e6), ("ms", 1e9)):
        if ns < most:
            return f"{ns / (most / 1e3):.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def sites_lines(history, symbols, blocks, most):
    """Call sites with their bytes and blocks, largest first; the rest as one."""
    order = history.by_site(blocks, symbols.path)
    lines = [f"  {size(total):>10}  {count:>7,} blocks  {path}" for path, (total, count) in order[:most]]
    rest = order[most:]
    if rest:
        total = sum(total for _, (total, _) in rest)
        lines.append(f"  {size(total):>10}  at {len(rest)} more call sites")
    return lines or ["  none"]


def head(recording, history):
    yield f"program   {recording.program}"
    yield f"process   {recording.pid} on {recording.host}, {len(recording.threads)} threads"
    yield f"recorded  {recording.seconds(recording.end_ns):.3f} s, {len(recording.events):,} events"
    for note in recording.notes:
        yield f"note      {note}"
    for number in sorted(recording.devices):
        name, total = recording.devices[number]
        yield f"device {number}  {name}, {size(total)}"
    counts = history.counts
    yield (
        f"calls     {counts['allocations']:,} allocations, {counts['frees']:,} frees; pinned "
        f"{counts['pinned allocations']:,} and {counts['pinned frees']:,}"
    )


def device_lines(recording, device):
    at = f", most live at {recording.seconds(device.peak_time):.3f} s" if device.peak else ""
    yield f"device {device.number}{at}"
    for name, count in device.figures().items():
        yield f"  {name:<20}{size(count):>12}"


def fence_lines(history):
    fences = [fence for fence in history.fences if fence.recorded]
    if not fences:
        return
    done = [fence for fence in fences if fence.done]
    yield (
        f"fences    {len(fences):,} recorded behind {size(sum(f.bytes for f in fences))} of freed memory in "
        f"{sum(f.blocks for f in fences):,} blocks"
    )
    if done:
        mean = sum(f.done - f.recorded for f in done) / len(done)
        how = collections.Counter(fence.how for fence in done)
        said = ", ".join(f"{count:,} {name}" for name, count in sorted(how.items()))
        yield f"          from fence to ready {duration(mean)} on average: {said}"


def wrong_lines(recording, history, symbols, event):
    """A free of what is freed already, or of no block: with the stacks of the block that was
    there last, or that it lies in."""
    yield ""
    before = [b for b in history.blocks if b.addr == event.addr and b.end and b.end <= event.time]
    inside = [b for b in history.alive_at(event.time) if b.addr < event.addr < b.addr + b.size]
    what = "freed already" if before else "the middle of a block" if inside else "no block"
    yield f"wrong free at {recording.seconds(event.time):.3f} s: 0x{event.addr:x} is {what}"
    yield f"  by         {symbols.path(event.stack, 8)}"
    for block in before[-1:]:
        yield f"  freed      {symbols.path(block.end_stack, 8)}"
        yield f"  allocated  {symbols.path(block.stack, 8)}"
    for block in inside[-1:]:
        yield f"  block      0x{block.addr:x}, {size(block.requested)} asked for"
        yield f"  allocated  {symbols.path(block.stack, 8)}"


def text(recording, history, symbols, most=10):
    lines = list(head(recording, history))
    for number in sorted(history.devices):
        lines += ["", *device_lines(recording, history.devices[number])]
    if history.host_peak:
        lines += ["", f"pinned memory held at most {size(history.host_peak)}"]
    lines += ["", *fence_lines(history)]
    if history.calls:
        lines += ["", "calls of the library into the driver"]
    for name, (count, total, longest) in sorted(history.calls.items(), key=lambda item: -item[1][1]):
        lines.append(f"  {count:>9,}  {duration(total):>8}  longest {duration(longest):>8}  {name}")
    if history.counts["captures"]:
        lines += ["", f"captures  {history.counts['captures']:,}"]
    for event in history.refused[:most]:
        lines.append(
            f"out of memory at {recording.seconds(event.time):.3f} s: {size(event.bytes)} for "
            f"{symbols.path(event.stack)}"
        )
    for event in history.wrong[:most]:
        lines += wrong_lines(recording, history, symbols, event)
    lines += [
        "",
        "live at the peak, by call site",
        *sites_lines(history, symbols, history.at_peak(), most),
    ]
    lines += ["", "never freed, by call site"]
    lines += sites_lines(history, symbols, history.never_freed(), most)
    return "\n".join(plain(line) for line in lines) + "\n"
