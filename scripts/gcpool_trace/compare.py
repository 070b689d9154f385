# SPDX-License-Identifier: MIT
"""Two recordings side by side: which call sites make the difference of their peaks. Call
sites are compared by the names of their functions, for addresses and lines may differ."""

from .summary import duration, plain, size


def site_key(symbols, stack):
    names = [frame.function for frame in symbols.program_frames(stack)]
    return " < ".join(name.split("+0x")[0] for name in names[:5]) or "(no call stack)"


def peaks(history, symbols):
    """call site -> (bytes, blocks) at the peak."""
    return dict(history.by_site(history.at_peak(), lambda stack: site_key(symbols, stack)))


def signed(change):
    return ("+" if change >= 0 else "-") + size(abs(change))


def changes(first, second):
    """(call site, first, second), by the size of the difference in bytes."""
    keys = set(first) | set(second)
    rows = [(key, first.get(key, (0, 0)), second.get(key, (0, 0))) for key in keys]
    return sorted(
        (row for row in rows if row[1] != row[2]), key=lambda row: (-abs(row[2][0] - row[1][0]), row[0])
    )


def text(one, two, most=15):
    """one and two: (recording, history, symbols)."""
    names = ("first", "second")
    lines = [f"{name:<7} {side[0].path}: {side[0].program}" for name, side in zip(names, (one, two))]
    rows = one[1].main_device().figures().items(), two[1].main_device().figures().values()
    lines += ["", f"{'':<20}{'first':>12}{'second':>12}{'change':>13}"]
    lines += [f"{name:<20}{size(x):>12}{size(y):>12}{signed(y - x):>13}" for (name, x), y in zip(*rows)]
    lines.append(
        f"{'allocations':<20}{one[1].counts['allocations']:>12,}{two[1].counts['allocations']:>12,}"
    )
    calls = [sum(count for count, _, _ in side[1].calls.values()) for side in (one, two)]
    lines.append(f"{'driver calls':<20}{calls[0]:>12,}{calls[1]:>12,}")
    lines.append(f"{'time in them':<20}{duration(one[1].driver_ns()):>12}{duration(two[1].driver_ns()):>12}")
    found = changes(peaks(one[1], one[2]), peaks(two[1], two[2]))
    lines += ["", "call sites behind the difference of the peak"]
    for key, before, after in found[:most]:
        lines.append(
            f"  {signed(after[0] - before[0]):>11}  {before[1]:>6,} -> {after[1]:<6,} blocks  {key}"
        )
    if not found:
        lines.append("  none: the same blocks of the same call sites")
    return "\n".join(plain(line) for line in lines) + "\n"
