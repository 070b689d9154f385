#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The live view: what `gcpool top` and `gcpool ctl` do. Reads the pages of shared memory that
processes with GCPOOL_LIVE=1 write (interpose/observe/live.h): those of the same user, and for
root those of all users. What another user's page says is shown, and never obeyed."""

import argparse
import collections
import fcntl
import glob
import json
import os
import pickle
import pwd
import re
import shutil
import stat
import struct
import sys
import tempfile
import textwrap
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gcpool_trace.recording import Wrong, seconds_of, text  # noqa: E402
from gcpool_trace import snapshot  # noqa: E402
from gcpool_trace.summary import duration, plain, size  # noqa: E402

MAGIC = b"GCPLIVE1"
VERSION = 8
PLACE = "/dev/shm"
HEAD = struct.Struct("<8s6I7Q1024s1024x")
REQUEST = struct.calcsize("<8s2I")
SEQUENCE = struct.calcsize("<8s6I3Q")
PAGE = 1 << 17
BLOCK = struct.Struct("<3Q2I")
KINDS = {"trim": 1, "stats": 2, "snapshot": 3, "quota": 4, "sleep": 5, "wake": 6}
ANSWER_S = 10
COPY_S = 600  # and more is no sleep, or no wake


def start_time(pid):
    """When the process began, in clock ticks; 0: there is none, or its last thread has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if words[0] == "X" or words[0] == "Z" and int(words[17]) <= 1 else int(words[19])


def place_open(path, uid):
    """A descriptor of the directory of that user's pages, in which no other user makes files."""
    place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    about = os.fstat(place)
    if about.st_uid == uid and not about.st_mode & 0o077:
        return place
    os.close(place)
    raise Wrong(f"{path} is not a directory of its user alone")


def namespace():
    """Of process numbers. Containers may share /dev/shm, and each has a process 1."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def real_user(pid):
    """The user id with which the process was started; None: there is none."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return int(re.search(r"^Uid:\s+(\d+)", file.read(), re.M).group(1))
    except (OSError, AttributeError):
        return None


def user_name(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def gpu_numbers():
    """PCI address -> number of the GPU on this machine, as nvidia-smi counts. A process counts
    those that it may see."""
    try:
        found = sorted(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return {}
    return {pci_key(pci): number for number, pci in enumerate(found)}


def pci_key(pci):
    domain, _, rest = pci.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


PLURAL = {"segment": "segments", "lane": "lanes"}


def counted(value):
    """A figure of a report. Anything may stand in the page of another user."""
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise TypeError(f"{value!r} is no figure")
    return value


def figures_of(device, numbers):
    """One level of the report's, with the names that `top` uses."""
    number, pci = counted(device["device"]), str(device.get("pci", ""))
    figures = {
        "number": number,
        "gpu": numbers.get(pci_key(pci), number),
        "name": device.get("name", ""),
        "uuid": str(device.get("uuid", "")),
        "pci": pci,
        "memory": counted(device.get("memory_bytes", 0)),
        "allocations": counted(device["allocation"]["allocated"]),
        "frees": counted(device["allocation"]["freed"]),
    }
    for name, value in device.items():
        if not re.fullmatch("[a-z_]+", name):
            continue  # such names would be orders to a reader of metrics
        if isinstance(value, dict) and "current" in value:
            figures[PLURAL.get(name, name)] = counted(value["current"])
            figures[name + "_peak"] = counted(value["peak"])
        elif isinstance(value, int):
            figures[name] = counted(value)
    calls = device["driver_calls"].values()
    figures["driver_calls"] = sum(counted(call["count"]) for call in calls)
    figures["driver_ns"] = sum(counted(call["ns"]) for call in calls)
    return figures


class Page:
    """One process: uid, and what FIELDS names; each device has number, gpu, name, uuid, pci, memory,
    and figures by name. Read and written as a file: what is mapped could be made shorter by its
    owner meanwhile, which is a signal."""

    NAME = re.compile(r".*/gcpool\.(\d+)/(\d+)\.(\d+)")
    FIELDS = ("pid", "user", "program", "updated_seconds_ago", "library", "running_seconds",
              "asleep_bytes", "pinned_held_bytes", "pinned_allocated_bytes", "trace", "devices")
    place = fd = -1

    def __init__(self, path):
        name = self.NAME.fullmatch(path)
        if not name:
            raise Wrong(f"{path} is no page")
        self.uid = int(name.group(1))
        if os.geteuid() not in (0, self.uid):
            raise Wrong(f"{path} is another user's")
        self.path, self.user = path, user_name(self.uid)
        self.place = place_open(os.path.dirname(path), self.uid)
        self.fd = self.open("", os.O_RDWR)
        self.pid = int(name.group(3))
        # First: a process that was killed while it wrote has left what cannot be read.
        began, made = start_time(self.pid), self.words("<8sI36xQ", 0)
        if not began or made[:2] == (MAGIC, VERSION) and made[2] != began:
            self.remove()
            self.remove(".reply")
            raise Wrong(f"process {self.pid} has ended")
        self.read()

    def __del__(self):
        for fd in (self.place, self.fd):
            if fd >= 0:
                os.close(fd)

    def open(self, ending, flags):
        """A descriptor of the page, or of the file beside it with that ending."""
        name = os.path.basename(self.path) + ending
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=self.place)
        about = os.fstat(fd)
        if about.st_uid == self.uid and stat.S_ISREG(about.st_mode):
            return fd
        os.close(fd)
        raise Wrong(f"{self.path}{ending} is not its user's, or no file")

    def remove(self, ending=""):
        try:
            os.unlink(os.path.basename(self.path) + ending, dir_fd=self.place)
        except OSError:
            pass

    def link(self, path):
        """<page>.to leads there; the bit that says so in a request (live.h)."""
        self.remove(".to")
        os.symlink(os.path.abspath(path), os.path.basename(self.path) + ".to", dir_fd=self.place)
        return 1 << 63

    def words(self, form, at):
        raw = os.pread(self.fd, struct.calcsize(form), at)
        return struct.unpack(form, raw)

    def put(self, form, at, value):
        os.pwrite(self.fd, struct.pack(form, value), at)

    def copy(self):
        """The page as it was at one moment."""
        for _ in range(1000):
            (before,) = self.words("<Q", SEQUENCE)
            raw = os.pread(self.fd, PAGE, 0)
            if before % 2 == 0 and self.words("<Q", SEQUENCE)[0] == before:
                return raw
            time.sleep(0.0005)
        return raw

    def read(self):
        raw = self.copy()
        if len(raw) < HEAD.size or not raw.startswith(MAGIC):
            raise Wrong(f"{self.path} is no page of libgcpool")
        _, version, *_, self.start_time, _, self.updated_ns, length, _, trace = HEAD.unpack_from(raw)
        if version != VERSION:
            raise Wrong(f"{self.path} has version {version}, this gcpool reads {VERSION}")
        self.trace = text(trace)
        ago = time.clock_gettime(time.CLOCK_MONOTONIC) - self.updated_ns / 1e9
        self.updated_seconds_ago = max(0.0, round(ago, 3))
        try:
            self.take(json.loads(raw[HEAD.size : HEAD.size + length]) if length else {})
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
            raise Wrong(f"{self.path} has no report") from None

    def take(self, report):
        self.program = " ".join(report.get("arguments", ()))
        self.library, self.running_seconds = report.get("version", ""), report.get("seconds", 0)
        host = report.get("host", {})
        self.pinned_held_bytes = counted(host.get("active_bytes", {}).get("current", 0))
        self.pinned_allocated_bytes = counted(host.get("allocated_bytes", {}).get("current", 0))
        self.asleep_bytes = counted(report["asleep_bytes"]) if "asleep_bytes" in report else None
        # A page that was not written yet says nothing of options.
        self.control = report.get("options", {"GCPOOL_CONTROL": "1"}).get("GCPOOL_CONTROL") == "1"
        numbers = gpu_numbers()
        self.devices = [figures_of(device, numbers) for device in report.get("devices", ())]
        for device in self.devices:
            parts_of(device)  # it has these figures
        json.dumps(report, ensure_ascii=False).encode()  # and all text can be written

    def base_name(self):
        """Of the program, without its arguments."""
        return os.path.basename(self.program.split(" ")[0]) or "?"

    def short_name(self):
        """With the script, where the program is an interpreter."""
        words = self.program.split()
        if len(words) > 1 and re.match(r"python|perl|ruby|bash$|sh$", self.base_name()):
            return " ".join([self.base_name(), *map(os.path.basename, words[1:2])])
        return self.base_name()

    def lives(self):
        """Whether the process is there, and still the program that made the page: another
        program that it has executed does not map it."""
        if start_time(self.pid) != self.start_time or real_user(self.pid) != self.uid:
            return False
        # The first thread may have ended, and has no mappings then.
        for path in glob.glob(f"/proc/{self.pid}/task/*/maps"):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    lines = file.readlines()
            except OSError:
                return True  # not to be read: its start time is the same
            if lines:
                return any(line.rstrip().endswith(self.path) for line in lines)
        return True

    def total(self, name):
        return sum(device.get(name, 0) for device in self.devices)

    def ask(self, command, argument, seconds):
        """Waits till the process has done it: 0 or an errno, and the answer."""
        fcntl.flock(self.fd, fcntl.LOCK_EX)  # till it is closed: other processes ask, too (help.c)
        asked = self.words("<I", REQUEST)[0] + 1 & 0xFFFFFFFF
        self.put("<I", REQUEST + 8, KINDS[command])
        self.put("<Q", REQUEST + 16, argument)
        self.put("<I", REQUEST, asked)
        end = time.monotonic() + seconds
        lives = True
        while time.monotonic() < end and lives:
            lives = self.lives()  # it may have ended by what it was asked for
            _, done, _, result, _, answer = self.words("<4I2Q", REQUEST)
            if done == asked:
                return result, answer
            time.sleep(0.005)
        # Not to be done later, when nothing waits for it.
        self.put("<I", REQUEST, asked - 1 & 0xFFFFFFFF)
        raise Wrong(f"process {self.pid} does not answer within {seconds} s, and is not asked again")


def paths(pid="*[0-9]"):
    """Of pages: this user's, for root all users'."""
    user = os.geteuid() or "*"
    own = f"{PLACE}/gcpool.{user}"
    if user != "*" and os.path.lexists(own):
        os.close(place_open(own, user))
    return sorted(glob.glob(f"{own}/{namespace()}.{pid}"))


def pages():
    """Of all living processes; those of dead ones are taken away."""
    found = []
    for path in paths():
        try:
            page = Page(path)
        except (OSError, Wrong, ValueError, struct.error):
            continue
        if page.lives():
            found.append(page)
    return found


def page_of(pid):
    found = paths(pid)
    if not found:
        raise Wrong(f"process {pid} has no live view: it needs GCPOOL_LIVE=1, and to be of this user")
    for page in map(Page, found):
        if page.lives():
            return page
    raise Wrong(f"process {pid} has ended, or runs another program now")


# --- top -------------------------------------------------------------------------------------

RATES = ("allocations", "frees", "fences", "barriers", "waits", "driver_calls")


class Rates:
    """What a second brings, from one look to the next."""

    def __init__(self):
        self.last = {}

    def of(self, page, device):
        key = (page.pid, page.start_time, device["number"])
        now = {name: device.get(name, 0) for name in RATES}
        last = self.last.get(key, (page.updated_ns, now, dict.fromkeys(RATES, 0.0)))
        seconds = (page.updated_ns - last[0]) / 1e9
        if seconds > 0:
            rates = {name: (now[name] - last[1][name]) / seconds for name in RATES}
            last = page.updated_ns, now, rates
        self.last[key] = last
        return last[2]


def short(value, step=1000, units=("", "k", "M", "G", "T")):
    """A number in at most five columns."""
    for unit in units:
        if value < step or unit == units[-1]:
            break
        value /= step
    return f"{value:.1f}{unit}" if unit and round(value, 1) < 10 else f"{value:.0f}{unit}"


def memory(value):
    """Bytes: 14M."""
    return short(value, 1024, ("", "K", "M", "G", "T"))


def parts_of(device):
    """Bytes: live, pending, of graphs, cached; together they are what is reserved."""
    live, active = device["allocated_bytes"], device["active_bytes"]
    reserved, private = device["reserved_bytes"], device["private_bytes"]
    cached = max(0, reserved - active - private)
    return live, max(0, active - live), max(0, reserved - active - cached), cached


class Row:
    """A device of a process, as `top` lists it."""

    def __init__(self, page, device, rates):
        self.page, self.device, self.rates = page, device, rates.of(page, device)
        self.used, self.pending, self.graphs, self.cached = parts_of(device)


# Name, width (negative: to the left), cell. A terminal shows as many as it has room for.
COLUMNS = (
    ("PID", 7, lambda row: str(row.page.pid)),
    ("USER", -8, lambda row: row.page.user),
    ("GPU", 3, lambda row: str(row.device["gpu"])),
    ("USED", 6, lambda row: memory(row.used)),
    ("CACHED", 6, lambda row: memory(row.cached)),
    ("RESERVED", 8, lambda row: memory(row.device["reserved_bytes"])),
    ("ALLOC/S", 7, lambda row: short(row.rates["allocations"])),
    ("PROGRAM", -24, lambda row: "(asleep) " * (row.page.asleep_bytes is not None) + row.page.short_name()),
    ("PENDING", 7, lambda row: memory(row.pending)),
    ("GRAPHS", 6, lambda row: memory(row.graphs)),
    ("DRIVER/S", 8, lambda row: short(row.rates["driver_calls"])),
    ("AGE", 5, lambda row: f"{row.page.updated_seconds_ago:.1f}s"),
    ("PCI", -12, lambda row: row.device["pci"]),
    ("UUID", -40, lambda row: row.device["uuid"]),
)


def columns_for(width):
    for column in COLUMNS:
        width -= abs(column[1]) + 1
        if width >= -1:
            yield column


def cells_of(columns, cells):
    return " ".join(cell.rjust(width) if width > 0 else cell[:-width].ljust(-width)
                    for cell, (_, width, _) in zip(cells, columns))


def list_lines(rows, width):
    columns = list(columns_for(width))
    yield cells_of(columns, [name for name, _, _ in columns])
    for row in rows:
        yield cells_of(columns, [cell(row) for _, _, cell in columns])
    if not rows:
        of = "" if os.geteuid() == 0 else " of this user"
        yield f"no process{of} runs with GCPOOL_LIVE=1"


def bar(parts, whole, width):
    """parts: (letter, name, bytes)."""
    drawn = ""
    for letter, _, count in parts:
        drawn += letter * round(width * count / whole if whole else 0)
    return "[" + drawn[:width].ljust(width) + "]"


def flow(width, *parts):
    """Lines of parts, each of them whole."""
    kept = "   ".join(part.replace(" ", "\xa0") for part in parts if part)
    lines = textwrap.wrap(kept, width, initial_indent="  ", subsequent_indent="  ",
                          break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def counts_of(device):
    """The figures that the report has of a device, and sums of its calls of the driver."""
    about = ("number", "gpu", "memory", "device", "memory_bytes")
    return {name: value for name, value in device.items() if isinstance(value, int) and name not in about}


def figure(name, value):
    shown = size if "_bytes" in name else duration if name.endswith("_ns") else "{:,}".format
    return f"{name.replace('_ns', ' time').replace('_', ' ')} {shown(value)}"


def device_lines(device, width, now):
    parts = list(zip("#+g.", ("live", "pending", "for graphs", "cached"), parts_of(device)))
    yield ""
    yield f"GPU {device['gpu']}  {device['name']}, {size(device['memory'])}" + (
        f" (device {device['number']} of the process)" if device["gpu"] != device["number"] else "")
    yield from flow(width, device["uuid"], device["pci"])
    yield "  " + bar(parts, max(device["reserved_bytes_peak"], 1), min(width, 100) - 4)
    yield from flow(width, *(f"{letter} {name} {size(count)}" for letter, name, count in parts))
    yield from flow(width, *(figure(*item) for item in counts_of(device).items() if item[1]))
    yield from flow(width, "per second:",
                    *(f"{name.replace('_', ' ')} {short(now[name])}" for name in RATES))


def one_lines(page, rates, width=100):
    yield f"process {page.pid} of {page.user}   {page.program}"
    yield (f"updated {page.updated_seconds_ago:.1f} s ago   pinned memory "
           f"{size(page.pinned_held_bytes)} held, {size(page.pinned_allocated_bytes)} taken")
    if page.asleep_bytes is not None:
        yield f"asleep: the host keeps {size(page.asleep_bytes)}"
    for device in page.devices:
        yield from device_lines(device, width, rates.of(page, device))


def lines_of(found, arguments, rates, width):
    if arguments.pid:
        lines = one_lines(found[0], rates, width)
    else:
        rows = [Row(page, device, rates) for page in found for device in page.devices]
        lines = list_lines(sorted(rows, key=lambda row: row.page.pid), width)
    return [plain(line) for line in lines]


GAUGE = re.compile(r".*_(bytes|peak)|allocation|segments|lanes")  # all else are counters


def label(value):
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def prometheus(found):
    """Text for node_exporter's textfile collector."""
    rows = collections.defaultdict(list)
    for page in found:
        process = f'pid="{page.pid}",program="{label(page.base_name())}"'
        rows["pinned_bytes"].append(f"{{{process}}} {page.pinned_held_bytes}")
        for device in page.devices:
            labels = f'{process},device="{device["gpu"]}",uuid="{label(device["uuid"])}"'
            for name, value in counts_of(device).items():
                rows[name].append(f"{{{labels}}} {value}")
    lines = []
    for name, values in rows.items():
        gauge = GAUGE.fullmatch(name)
        metric = f"gcpool_{name}" + ("" if gauge else "_total")
        lines += [f"# TYPE {metric} {'gauge' if gauge else 'counter'}", *(metric + value for value in values)]
    return "".join(line + "\n" for line in lines)


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
        os.chmod(new, 0o640)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def top(arguments):
    def look():
        return [page_of(arguments.pid)] if arguments.pid else pages()

    if arguments.json:
        shown = [{name: getattr(page, name) for name in page.FIELDS} for page in look()]
        print(json.dumps(shown[0] if arguments.pid else shown, indent=1))
        return
    rates, once = Rates(), arguments.once or not (arguments.prometheus or sys.stdout.isatty())
    if not arguments.prometheus:
        lines_of(look(), arguments, rates, 120)
        time.sleep(min(arguments.interval, 0.3))  # rates need two looks
    while True:
        if arguments.prometheus:
            replace(arguments.prometheus, prometheus(look()).encode())
        else:
            width, height = shutil.get_terminal_size((120, 24))
            lines = lines_of(look(), arguments, rates, width)
            # The terminal cuts what is too wide for it.
            print("\n".join(lines) if once else
                  "\x1b[H\x1b[2J\x1b[?7l" + "\n".join(lines[:height - 1]) + "\x1b[?7h", flush=True)
        if once:
            return
        time.sleep(arguments.interval)


# --- ctl -------------------------------------------------------------------------------------


def snapshot_of(raw, pid):
    """PyTorch's memory snapshot; neighbours are one segment."""
    joined, before = [], None
    for addr, length, requested, device, used in sorted(
            BLOCK.iter_unpack(raw), key=lambda block: (block[3], block[0])):
        if before != (device, addr):
            joined.append((device, []))
        joined[-1][1].append(
            snapshot.block(addr, length, requested, "active_allocated") if used
            else snapshot.block(addr, length))
        before = device, addr + length
    count = max((device for device, _ in joined), default=0) + 1
    return snapshot.whole([snapshot.segment(*one) for one in joined], [[] for _ in range(count)],
                          pid=pid)


def bytes_of(word):
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    shift = units.get(word[-1:].upper(), 0)
    try:
        count = int(float(word[:-1] if shift else word) * (1 << shift))
        struct.pack("<Q", count)  # what a request has room for
        return count
    except (ValueError, OverflowError, struct.error):
        raise Wrong(f"'{word}' is no number of bytes, as 1G or 500M") from None


def limit_of(word):
    """As GCPOOL_QUOTA is written; for the library as pool.h says."""
    if word in ("none", "unlimited"):
        return (1 << 64) - 1
    percent = word.endswith("%")
    count = bytes_of(word[:-1] if percent else word)
    if not 0 < count <= (100 if percent else 16 << 40):
        raise Wrong(f"a quota is 1 to 16T, 1% to 100%, or none, and not '{word}'")
    return (1 << 63) + 100 * count if percent else count


def ask(page, command, argument=0, seconds=ANSWER_S):
    """The answer, and what the process has written."""
    page.remove(".reply")
    try:
        result, answer = page.ask(command, argument, seconds)
        written = b""
        if result or command not in ("trim", "quota"):
            try:
                with os.fdopen(page.open(".reply", os.O_RDONLY), "rb") as file:
                    written = file.read()
            except FileNotFoundError:
                if not result:
                    raise
        if result:
            raise Wrong(f"process {page.pid} could not: {written.decode() or os.strerror(result)}")
        return answer, written
    finally:
        page.remove(".reply")
        page.remove(".to")


def control(arguments):
    page = page_of(arguments.pid)
    if arguments.to is not None and arguments.command != "sleep":
        raise Wrong("--to is of sleep alone")
    if arguments.command == "trim":
        print(f"{size(ask(page, 'trim', bytes_of(arguments.argument or '0'))[0])} went back to the driver")
    elif arguments.command == "quota":
        ask(page, "quota", limit_of(arguments.argument or ""))
        print(f"the quota is {arguments.argument}")
    elif arguments.command in ("sleep", "wake"):
        if not page.control:
            raise Wrong(f"process {page.pid} was started without GCPOOL_CONTROL=1")
        seconds = interval(arguments.argument or "10")
        place = 0 if arguments.to is None else page.link(arguments.to)
        _, said = ask(page, arguments.command, place | int(seconds * 1000), seconds + COPY_S)
        print(f"process {page.pid}: {said.decode()}")
    elif arguments.command == "stats":
        if arguments.argument:
            raise Wrong(f"stats takes no word behind it, and there is {arguments.argument!r}")
        print(json.dumps(json.loads(ask(page, "stats")[1]), indent=1))
    else:
        if not arguments.argument:
            raise Wrong("snapshot needs a file to write, for PyTorch's memory_viz")
        replace(arguments.argument, pickle.dumps(snapshot_of(ask(page, "snapshot")[1], page.pid), protocol=4))


# --- words -----------------------------------------------------------------------------------

def interval(word):
    """--interval, far below what sleeping has room for."""
    return seconds_of(word, 0.01, 86400)


def parser_make():
    parser = argparse.ArgumentParser(prog="gcpool", description="Processes that run with GCPOOL_LIVE=1.")
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("top", help="show them, or one of them")
    command.add_argument("pid", nargs="?", type=int, metavar="PID")
    command.add_argument("--once", action="store_true", help="print once instead of filling the terminal")
    command.add_argument("--json", action="store_true", help="print once, as JSON")
    command.add_argument("--prometheus", metavar="FILE", help="write metrics there, again and again")
    command.add_argument("--interval", type=interval, default=1.0, metavar="S",
                         help="seconds between two looks")
    command = commands.add_parser("ctl", help="ask one of them for something")
    command.add_argument("pid", type=int, metavar="PID")
    command.add_argument("command", choices=sorted(KINDS), metavar="|".join(KINDS))
    command.add_argument(
        "argument", nargs="?", help="trim: bytes to keep; snapshot: a file; quota: as --as; sleep: seconds")
    command.add_argument("--to", metavar="DIR", help="sleep: into a file there, not into memory")
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
