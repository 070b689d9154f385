#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The live view: what `gcpool top` and `gcpool ctl` do. Reads the pages of shared memory that
processes with GCPOOL_LIVE=1 write (interpose/observe/live.h); only those of the same user."""

import argparse
import curses
import glob
import json
import mmap
import os
import pickle
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gcpool_trace.recording import Recording, Wrong  # noqa: E402
from gcpool_trace.history import History  # noqa: E402
from gcpool_trace.summary import duration, plain, size  # noqa: E402
from gcpool_trace.symbols import Symbols  # noqa: E402

MAGIC = b"GCPLIVE1"
VERSION = 2
PLACE = "/dev/shm"
HEAD = struct.Struct("<8s4I11Q4I2Q256s256s1024s2048s")
SEQUENCE = struct.calcsize("<8s4I3Q")
REQUEST = struct.calcsize("<8s4I11Q")
DEVICE = struct.Struct("<32s2Q64Q")
BLOCK = struct.Struct("<3Q2I")
KINDS = {"trim": 1, "stats": 2, "snapshot": 3}
ANSWER_S = 10


def text(raw):
    return raw.split(b"\0")[0].decode("utf-8", "replace")


def start_time(pid):
    """When the process began, in clock ticks; 0: there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] in "ZX" else int(words[19])


def prefix():
    """Of the names of pages: this user's, in this namespace of process numbers. Containers may
    share /dev/shm, and each has a process 1."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return f"{PLACE}/gcpool.{os.getuid()}.{namespace}."


class Page:
    """One process: pid, program, devices (number, name, memory, figures by name), updated (s
    since its last update), begun, pinned_held, pinned_allocated, handles_used, handles_kept, trace."""

    def __init__(self, path):
        about = os.lstat(path)
        if about.st_uid != os.getuid():
            raise Wrong(f"{path} is another user's")
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            self.map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self.path = path
        self.read()

    def copy(self):
        """The page as it was at one moment."""
        for _ in range(1000):
            (before,) = struct.unpack_from("<Q", self.map, SEQUENCE)
            raw = self.map[:]
            if before % 2 == 0 and struct.unpack_from("<Q", self.map, SEQUENCE)[0] == before:
                return raw
            time.sleep(0.0005)
        return raw

    def read(self):
        raw = self.copy()
        if len(raw) < HEAD.size or not raw.startswith(MAGIC):
            raise Wrong(f"{self.path} is no page of libgcpool")
        (
            _,
            version,
            _,
            self.pid,
            self.library,
            self.start_time,
            self.begun_realtime,
            self.begun_ns,
            self.sequence,
            updated,
            count,
            figures,
            self.pinned_held,
            self.pinned_allocated,
            self.handles_used,
            self.handles_kept,
            self.asked,
            self.done,
            _,
            self.result,
            _,
            self.answer,
            _,
            program,
            trace,
            names,
        ) = HEAD.unpack_from(raw)
        if version != VERSION:
            raise Wrong(f"{self.path} has version {version}, this gcpool reads {VERSION}")
        self.program, self.trace = text(program), text(trace)
        self.updated_ns = updated
        self.updated = max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - updated / 1e9)
        self.names = text(names).split()[:figures]
        self.devices = []
        for i in range(min(count, 16)):
            name, number, memory, *values = DEVICE.unpack_from(raw, HEAD.size + i * DEVICE.size)
            self.devices.append(
                {"number": number, "name": text(name), "memory": memory, **dict(zip(self.names, values))}
            )

    def lives(self):
        """Whether the process is there, and still the program that made the page: another
        program that it has executed does not map it."""
        if start_time(self.pid) != self.start_time:
            return False
        try:
            with open(f"/proc/{self.pid}/maps", encoding="utf-8", errors="replace") as file:
                return any(line.rstrip().endswith(self.path) for line in file)
        except OSError:
            return True  # not to be read: its start time is the same

    def total(self, name):
        return sum(device.get(name, 0) for device in self.devices)

    def as_json(self):
        return {
            "pid": self.pid,
            "program": self.program,
            "updated_seconds_ago": round(self.updated, 3),
            "library": f"{self.library // 10000}.{self.library // 100 % 100}.{self.library % 100}",
            "running_seconds": (
                round((self.updated_ns - self.begun_ns) / 1e9, 3) if self.updated_ns else 0
            ),
            "pinned_held_bytes": self.pinned_held,
            "pinned_allocated_bytes": self.pinned_allocated,
            "handles_used": self.handles_used,
            "handles_kept": self.handles_kept,
            "trace": self.trace,
            "devices": self.devices,
        }

    def ask(self, command, argument=0, reply=""):
        """Waits till the process has done it in one of its calls; None: it made none."""
        asked = struct.unpack_from("<I", self.map, REQUEST)[0] + 1 & 0xFFFFFFFF
        struct.pack_into("<I", self.map, REQUEST + 8, KINDS[command])
        struct.pack_into("<Q", self.map, REQUEST + 16, argument)
        struct.pack_into("<256s", self.map, REQUEST + 32, reply.encode())
        struct.pack_into("<I", self.map, REQUEST, asked)
        end = time.monotonic() + ANSWER_S
        while time.monotonic() < end and self.lives():
            _, done, _, result, _, answer = struct.unpack_from("<4I2Q", self.map, REQUEST)
            if done == asked:
                return result, answer
            time.sleep(0.005)
        # Not to be done later, when nothing waits for it.
        struct.pack_into("<I", self.map, REQUEST, asked - 1 & 0xFFFFFFFF)
        return None


def pages():
    """Of all living processes of this user; those of dead ones are taken away."""
    found = []
    for path in sorted(glob.glob(f"{prefix()}*")):
        try:
            page = Page(path)
        except (OSError, Wrong, ValueError, struct.error):
            continue
        if page.lives():
            found.append(page)
        elif start_time(page.pid) != page.start_time:
            try:
                os.unlink(path)
            except OSError:
                pass
    return found


def page_of(pid):
    path = f"{prefix()}{pid}"
    if not os.path.exists(path):
        raise Wrong(f"process {pid} has no live view: it needs GCPOOL_LIVE=1, and to be of this user")
    page = Page(path)
    if not page.lives():
        raise Wrong(f"process {pid} has ended, or runs another program now")
    return page


# --- top -------------------------------------------------------------------------------------

RATES = ("allocations", "frees", "fences", "barriers", "waits", "driver_calls")


class Rates:
    """What a second brings, from one look to the next."""

    def __init__(self):
        self.last = {}

    def of(self, page):
        now = {name: page.total(name) for name in RATES}
        before = self.last.get(page.pid)
        if before is None or page.updated_ns <= before[0]:
            self.last.setdefault(page.pid, (page.updated_ns, now, dict.fromkeys(RATES, 0.0)))
            return self.last[page.pid][2]
        seconds = (page.updated_ns - before[0]) / 1e9
        rates = {name: (now[name] - before[1][name]) / seconds for name in RATES}
        self.last[page.pid] = (page.updated_ns, now, rates)
        return rates


def rate(value):
    for unit in ("", "k", "M"):
        if value < 1000 or unit == "M":
            return f"{value:.0f}{unit}" if unit == "" else f"{value:.1f}{unit}"
        value /= 1000


COLUMNS = (
    ("PID", 8),
    ("LIVE", 10),
    ("PENDING", 10),
    ("CACHED", 10),
    ("GRAPH", 10),
    ("RESERVED", 10),
    ("ALLOC/S", 8),
    ("DRIVER/S", 8),
    ("AGE", 7),
)


def list_lines(found, rates):
    yield " ".join(name.rjust(width) for name, width in COLUMNS) + "  PROGRAM"
    for page in found:
        live, active = page.total("allocated_bytes"), page.total("active_bytes")
        reserved, private = page.total("reserved_bytes"), page.total("private_bytes")
        now = rates.of(page)
        cells = (
            str(page.pid),
            size(live),
            size(max(0, active - live)),
            size(max(0, reserved - active - private)),
            size(private),
            size(reserved),
            rate(now["allocations"]),
            rate(now["driver_calls"]),
            f"{page.updated:.1f}s",
        )
        words = [cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS)]
        yield " ".join(words) + "  " + page.program
    if not found:
        yield "no process of this user runs with GCPOOL_LIVE=1"


def bar(parts, whole, width):
    """parts: (letter, bytes)."""
    drawn = ""
    for letter, count in parts:
        drawn += letter * round(width * count / whole if whole else 0)
    return "[" + drawn[:width].ljust(width) + "]"


def device_lines(device, width):
    live, active = device["allocated_bytes"], device["active_bytes"]
    reserved = device["reserved_bytes"]
    private = device["private_bytes"]
    pending, cached = max(0, active - live), max(0, reserved - active - private)
    kept = max(0, reserved - active - cached)  # by graphs
    parts = (("#", live), ("+", pending), ("g", kept), (".", cached))
    hits, misses = device["hits"], device["misses"]
    share = 100 * hits / (hits + misses) if hits + misses else 0
    yield ""
    yield f"device {device['number']}  {device['name']}, {size(device['memory'])}"
    yield "  " + bar(parts, max(device["reserved_bytes_peak"], 1), width - 14)
    yield (
        f"  # live {size(live)} of at most {size(device['allocated_bytes_peak'])}   "
        f"+ pending {size(pending)}   g for graphs {size(kept)}   . cached {size(cached)}"
    )
    yield (
        f"  reserved {size(reserved)} in {device['segments']:,} segments, of graphs "
        f"{size(device['private_bytes'])}, mapped {size(device['mapped_bytes'])}   asked for "
        f"{size(device['requested_bytes'])}"
    )
    if device.get("lanes") or device.get("graph_remaps"):
        yield (
            f"  graphs share {size(device['lane_bytes'])} in {device['lanes']:,} lanes   mapped anew "
            f"{device['graph_remaps']:,}   to another lane {device['graph_moves']:,}   wait "
            f"{device['graph_waits']:,}"
        )
    yield f"  hits {hits:,} ({share:.2f}%)   misses {misses:,}   out of memory {device['ooms']:,}"
    yield (
        f"  fences {device['fences']:,}   barriers {device['barriers']:,}   waits "
        f"{device['waits']:,}   driver calls {device['driver_calls']:,} in "
        f"{duration(device['driver_ns'])}"
    )
    refused = [(device[f"reuse_{name}"], name) for name in ("order_unknown", "eager_work", "unknown_calls")]
    if any(count for count, _ in refused):
        yield "  in captures not reused at once: " + ", ".join(
            f"{name.replace('_', ' ')} {count:,}" for count, name in refused)


def one_lines(page, rates, width=100):
    now = rates.of(page)
    yield f"process {page.pid}   {page.program}"
    yield (
        f"updated {page.updated:.1f} s ago   pinned memory {size(page.pinned_held)} held, "
        f"{size(page.pinned_allocated)} taken"
    )
    if page.handles_used or page.handles_kept:
        yield f"library handles {page.handles_used:,} in use, {page.handles_kept:,} kept"
    for device in page.devices:
        yield from device_lines(device, width)
    yield ""
    yield "per second  " + "   ".join(f"{name.replace('_', ' ')} {rate(now[name])}" for name in RATES)


def sites_lines(page, most=10):
    """From the recording, if there is one with call stacks."""
    if not page.trace:
        return
    try:
        found = Recording(page.trace)
    except Wrong:
        return
    past, names = History(found), Symbols(found)
    live = [block for block in past.blocks if block.end is None]
    yield ""
    yield "largest call sites, as recorded"
    for stack, (total, count) in past.by_stack(live)[:most]:
        yield f"  {size(total):>10}  {count:>7,} blocks  {names.path(stack)}"


def lines_of(arguments, rates):
    if arguments.pid:
        page = page_of(arguments.pid)
        lines = [*one_lines(page, rates), *(sites_lines(page) if arguments.sites else ())]
    else:
        lines = list_lines(pages(), rates)
    return [plain(line) for line in lines]


def screen(arguments):
    def loop(window):
        curses.curs_set(0)
        window.timeout(max(1, int(arguments.interval * 1000)))  # 0: without a pause
        rates = Rates()
        while True:
            window.erase()
            height, width = window.getmaxyx()
            for row, line in enumerate([*lines_of(arguments, rates), "", "q: leave"][:height]):
                window.addnstr(row, 0, line, width - 1, curses.A_BOLD if row == 0 else 0)
            window.refresh()
            if window.getch() in (ord("q"), 27):
                return

    try:
        curses.wrapper(loop)
    except KeyboardInterrupt:
        pass


METRICS = (
    ("allocated_bytes", "gauge", "Bytes in blocks that the program holds."),
    ("active_bytes", "gauge",
     "The same, and freed ones that the device may still use, or another process."),
    ("reserved_bytes", "gauge", "Bytes taken from the driver."),
    ("private_bytes", "gauge", "Of these, in pools of graphs."),
    ("lane_bytes", "gauge", "Of private bytes, those that graphs share."),
    ("mapped_bytes", "gauge", "Of reserved bytes, in mapped segments."),
    ("segments", "gauge", "Allocations of the driver."),
    ("allocations", "counter", "Allocations of the program."),
    ("frees", "counter", "Frees of the program."),
    ("hits", "counter", "Allocations served without the driver."),
    ("misses", "counter", "Allocations that needed the driver."),
    ("ooms", "counter", "Allocations that failed for want of memory."),
    ("fences", "counter", "Fences recorded."),
    ("barriers", "counter", "Barriers set."),
    ("waits", "counter", "Times the host waited for the device."),
    ("driver_calls", "counter", "Calls of the library into the driver."),
)


def label(value):
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def prometheus(found):
    """Text for node_exporter's textfile collector."""
    lines = []
    for name, kind, words in METRICS:
        metric = f"gcpool_{name}" + ("_total" if kind == "counter" else "")
        lines += [f"# HELP {metric} {words}", f"# TYPE {metric} {kind}"]
        for page in found:
            for device in page.devices:
                labels = f'pid="{page.pid}",program="{label(page.program)}",device="{device["number"]}"'
                lines.append(f"{metric}{{{labels}}} {device.get(name, 0)}")
    lines += [
        "# HELP gcpool_pinned_bytes Pinned host memory that the program holds.",
        "# TYPE gcpool_pinned_bytes gauge",
    ]
    for page in found:
        lines.append(
            f'gcpool_pinned_bytes{{pid="{page.pid}",program="{label(page.program)}"}} {page.pinned_held}'
        )
    return "\n".join(lines) + "\n"


def replace(path, content):
    """The file is the old one or the new one, whole, whenever it is read."""
    directory = os.path.dirname(os.path.abspath(path))
    try:
        fd, new = tempfile.mkstemp(dir=directory, prefix=".gcpool.")
    except OSError as error:
        raise Wrong(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        os.chmod(new, 0o644)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def top(arguments):
    chosen = [page_of(arguments.pid)] if arguments.pid else None
    if arguments.prometheus:
        while True:
            replace(arguments.prometheus, prometheus(chosen or pages()).encode())
            if arguments.once:
                return
            time.sleep(arguments.interval)
    if arguments.json:
        found = [page.as_json() for page in chosen or pages()]
        print(json.dumps(found[0] if arguments.pid else found, indent=1))
    elif arguments.once or not sys.stdout.isatty():
        rates = Rates()
        lines_of(arguments, rates)
        time.sleep(min(arguments.interval, 0.3))  # rates need two looks
        print("\n".join(lines_of(arguments, rates)))
    else:
        screen(arguments)


# --- ctl -------------------------------------------------------------------------------------


def snapshot_of(raw, pid):
    """PyTorch's memory snapshot; neighbours are one segment."""
    segments = []
    blocks = sorted((block for block in BLOCK.iter_unpack(raw)), key=lambda b: (b[3], b[0]))
    for addr, length, requested, device, used in blocks:
        last = segments[-1] if segments else None
        if not last or last["device"] != device or last["address"] + last["total_size"] != addr:
            last = {
                "device": device,
                "address": addr,
                "total_size": 0,
                "allocated_size": 0,
                "active_size": 0,
                "requested_size": 0,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [],
            }
            segments.append(last)
        last["total_size"] += length
        if used:
            last["allocated_size"] += length
            last["active_size"] += length
            last["requested_size"] += requested
        last["blocks"].append(
            {
                "address": addr,
                "size": length,
                "requested_size": requested if used else 0,
                "state": "active_allocated" if used else "inactive",
                "frames": [],
            }
        )
    count = max((segment["device"] for segment in segments), default=0) + 1
    return {
        "segments": segments,
        "device_traces": [[] for _ in range(count)],
        "allocator_settings": {"allocator": "libgcpool", "pid": pid},
        "external_annotations": [],
    }


def bytes_of(word):
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    shift = units.get(word[-1:].upper(), 0)
    try:
        count = int(float(word[:-1] if shift else word) * (1 << shift))
        struct.pack("<Q", count)  # what a request has room for
        return count
    except (ValueError, OverflowError, struct.error):
        raise Wrong(f"'{word}' is no number of bytes, as 1G or 500M") from None


def ask(page, command, argument=0):
    """The answer, and what the process has written."""
    with tempfile.NamedTemporaryFile(prefix=f"gcpool.{page.pid}.", dir=PLACE) as reply:
        found = page.ask(command, argument, reply.name)
        if found is None:
            what = "no free" if command == "trim" else "no call"
            raise Wrong(
                f"process {page.pid} made {what} within {ANSWER_S} s, and was not asked after that"
            )
        if found[0]:
            raise Wrong(f"process {page.pid} could not: {os.strerror(found[0])}")
        reply.seek(0)
        return found[1], reply.read()


def control(arguments):
    page = page_of(arguments.pid)
    if arguments.command == "trim":
        given, _ = ask(page, "trim", bytes_of(arguments.argument or "0"))
        print(f"{size(given)} went back to the driver")
    elif arguments.command == "stats":
        if arguments.argument:
            raise Wrong(f"stats takes no word behind it, and there is {arguments.argument!r}")
        print(json.dumps(json.loads(ask(page, "stats")[1]), indent=1))
    else:
        if not arguments.argument:
            raise Wrong("snapshot needs a file to write, for PyTorch's memory_viz")
        replace(
            arguments.argument, pickle.dumps(snapshot_of(ask(page, "snapshot")[1], page.pid), protocol=4)
        )


# --- words -----------------------------------------------------------------------------------

INTERVAL_MAX_S = 86400  # far below what sleeping and curses have room for


def interval(word):
    """--interval. Written so that nan, which is neither below nor above, is refused."""
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= INTERVAL_MAX_S:
        raise argparse.ArgumentTypeError(
            f"{word!r} is no number of seconds above 0, and at most {INTERVAL_MAX_S}"
        )
    return seconds


def parser_make():
    parser = argparse.ArgumentParser(prog="gcpool", description="Processes that run with GCPOOL_LIVE=1.")
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("top", help="show them, or one of them")
    command.add_argument("pid", nargs="?", type=int, metavar="PID")
    command.add_argument(
        "--once", action="store_true", help="print once instead of filling the terminal"
    )
    command.add_argument("--json", action="store_true", help="print once, as JSON")
    command.add_argument(
        "--sites", action="store_true", help="and the largest call sites of the recording"
    )
    command.add_argument("--prometheus", metavar="FILE", help="write metrics there, again and again")
    command.add_argument(
        "--interval", type=interval, default=1.0, metavar="S", help="seconds between two looks"
    )
    command = commands.add_parser("ctl", help="ask one of them for something")
    command.add_argument("pid", type=int, metavar="PID")
    command.add_argument("command", choices=sorted(KINDS), metavar="trim|stats|snapshot")
    command.add_argument("argument", nargs="?", help="trim: bytes to keep; snapshot: the file")
    return parser


def main():
    arguments = parser_make().parse_args()
    try:
        top(arguments) if arguments.what == "top" else control(arguments)
    except BrokenPipeError:
        sys.stderr.close()
    except (Wrong, OSError, ValueError) as error:
        sys.exit(f"gcpool {arguments.what}: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
