# SPDX-License-Identifier: MIT
"""From the addresses of call stacks to functions and lines: by addr2line, nm and readelf of binutils,
asked once for each module. Without them a frame is its module and offset. Code that is made at
run time has its names from perf_map.py: functions of a Python program with their files."""

import bisect
import collections
import os
import subprocess

from .perf_map import PerfMap
from .recording import progress

# Whose frames are between the program and the library: not what allocates.
RUNTIME = ("libcudart", "libcuda.so", "libgcpool", "ld-linux")
# Functions that hand an allocation on: what calls them is the call site.
HANDS_ON = (
    "cudaMalloc",
    "cuMemAlloc",
    "c10::cuda::CUDACachingAllocator",
    "c10::cuda::CUDAAllocator",
    "at::detail::empty_",
    "at::native::empty",
    "at::(anonymous namespace)::",
    "at::_ops::",
    "at::TensorIteratorBase",
    "rmm::mr::",
    "thrust::",
    "cub::",
)
# Steps of a dispatcher between two functions.
STEPS = ("c10::impl::", "c10::Dispatcher", "c10::OperatorHandle")
# What every thread begins with.
BEGINNINGS = ("_start", "__libc_start", "start_thread", "clone", "__clone", "thread_start")


# What lies between functions of a Python program, and between it and what it calls.
INTERPRETER = ("python3", "libpython", "libffi", "_ctypes.")
PYTHON = "py::"  # begins their names in a perf map


class Frame(collections.namedtuple("Frame", "function file line module")):
    """module: "py" of a function of a Python program, which has a file and no line."""

    __slots__ = ()

    def __str__(self):
        line = f":{self.line}" if self.line else ""
        where = f" at {os.path.basename(self.file)}{line}" if self.file else ""
        told = self.file or self.function.startswith(f"{self.module}+0x")
        module = f" ({self.module})" if self.module and not told else ""
        return short(self.function) + where + module


def short(name, most=90):
    """A C++ name without its parameters, cut if it is still long."""
    depth, kept = 0, ""
    for letter in name.replace("(anonymous namespace)", "{anonymous}"):
        if letter in "(<":
            depth += 1
        if depth == 0:
            kept += letter
        if letter in ")>" and depth:
            depth -= 1
    kept = kept.strip() or name
    return kept if len(kept) <= most else kept[: most - 3] + "..."


def asked(tool, *words, text=""):
    """The lines that a tool of binutils prints; none, if it is not here."""
    try:
        done = subprocess.run([tool, *words], input=text, text=True, capture_output=True, errors="replace")
    except FileNotFoundError:
        return []
    return done.stdout.splitlines()


def load_bias(path):
    """(offset, bytes, address) of each part of an ELF file that is loaded; [] if it is none."""
    parts = [line.split() for line in asked("readelf", "-lW", path) if line.lstrip().startswith("LOAD ")]
    return [(int(part[1], 16), int(part[4], 16), int(part[2], 16)) for part in parts]


def made_frame(name):
    """py::function:file, or what another runtime has written."""
    if not name.startswith(PYTHON):
        return Frame(name, "", 0, "")
    function, _, file = name[len(PYTHON) :].partition(":")
    return Frame(function, file, 0, "py")


class Symbols:
    """frames(recording, stack): the frames of a stack, innermost first."""

    def __init__(self, recording):
        self.recording = recording
        self.modules = sorted(recording.modules, key=lambda module: (module.start, module.time))
        self.starts = [module.start for module in self.modules]
        self.at = {}  # address -> the modules that have had it, by time
        self.known = {}  # (address, module) -> Frame
        self.places = {}  # stack -> (address, module) of each frame
        self.resolve()

    def module_of(self, address, time):
        """The module that had the address then."""
        if address not in self.at:
            first = bisect.bisect_right(self.starts, address - (1 << 32))
            last = bisect.bisect_right(self.starts, address)
            had = [module for module in self.modules[first:last] if address < module.end]
            self.at[address] = sorted(had, key=lambda module: module.time)
        had = self.at[address]
        until = [module for module in had if module.time <= time] or had[:1]
        return until[-1] if until else None

    def resolve(self):
        """All addresses of all stacks at once: each tool is started once for each module."""
        wanted, made = {}, PerfMap(self.recording)
        # The mappings were read before the first event of a stack, and again before any of a
        # stack with the same addresses in other libraries.
        times = {}
        for event in self.recording.events:
            times.setdefault(event.stack, event.time)
        for stack, frames in self.recording.stacks.items():
            time = times.get(stack, float("inf"))
            places = [(address, self.module_of(address - 1, time)) for address in frames]
            self.places[stack] = places
            for place in places:
                if place in self.known:
                    continue
                address, module = place
                row = made.row(address - 1)
                if row:
                    self.known[place] = made_frame(row[2])
                elif module:
                    offset = address - 1 - module.start + module.offset
                    wanted.setdefault(module.path, {})[place] = offset
                    name = f"{os.path.basename(module.path) or module.path}+0x{offset + 1:x}"
                    self.known[place] = Frame(name, "", 0, os.path.basename(module.path))
                else:
                    self.known[place] = Frame(f"0x{address:x}", "", 0, "")
        for number, (path, offsets) in enumerate(wanted.items()):
            progress(f"names of {number + 1} of {len(wanted)} files")
            # Others may have written the recording: nm loads plugins where a path begins as an
            # option does, and waits for a FIFO.
            if path.startswith("/") and os.path.isfile(path):
                self.module_resolve(path, offsets)
        progress("")

    def module_resolve(self, path, offsets):
        parts = load_bias(path)
        places = {}
        for place, offset in offsets.items():
            for at, length, base in parts:
                if at <= offset < at + length:
                    places[place] = base + offset - at
        self.lines_ask(path, places)
        unknown = {a: v for a, v in places.items() if "+0x" in self.known[a].function}
        if unknown:
            self.names_ask(path, unknown)

    def lines_ask(self, path, places):
        text = "\n".join(f"0x{value:x}" for value in places.values())
        lines = asked("addr2line", "-f", "-C", "-e", path, text=text)
        for place, function, where in zip(places, lines[::2], lines[1::2]):
            file, _, line = where.split(" (discriminator")[0].rpartition(":")
            # Without a line the function is the nearest that has a name, right or wrong.
            if "??" not in (function, file) and line.isdigit() and int(line):
                self.known[place] = Frame(function, file, int(line), self.known[place].module)

    def names_ask(self, path, places):
        """By the symbols of the file, and what it exports where it is stripped of them."""
        table = set()
        for exports in ([], ["-D"]):
            for line in asked("nm", *exports, "-S", "-C", "--defined-only", "--", path):
                words = line.split(" ", 3)
                if len(words) == 4 and words[2] in "TtWwiVv":
                    table.add((int(words[0], 16), int(words[1], 16), words[3].split("@")[0]))
        table = sorted(table)
        starts = [start for start, _, _ in table]
        for place, value in places.items():
            at = bisect.bisect_right(starts, value) - 1
            # Behind its end is some function that the file does not name.
            if at >= 0 and value < starts[at] + table[at][1]:
                self.known[place] = Frame(table[at][2], "", 0, self.known[place].module)

    def frames(self, stack):
        return [self.known[place] for place in self.places.get(stack, ())]

    def path(self, stack, depth=4):
        """The call site in the program with its callers: what tells one from another."""
        frames = self.program_frames(stack)
        return " < ".join(str(frame) for frame in frames[:depth]) or "(no call stack)"

    def program_frames(self, stack):
        """Without those of CUDA, of the beginning of a thread, and those that only hand an
        allocation on; all of them, if nothing else is left. Of a Python program its functions, and
        the innermost of what they have called."""
        frames = self.frames(stack)
        python = any(frame.module == "py" for frame in frames)
        hidden = RUNTIME + INTERPRETER if python else RUNTIME
        frames = [
            frame
            for frame in frames
            if not frame.module.startswith(hidden) and not frame.function.startswith(BEGINNINGS + STEPS)
        ]
        first = 0
        while first < len(frames) - 1 and frames[first].function.startswith(HANDS_ON):
            first += 1
        if python:
            return frames[first : first + 1] + [f for f in frames[first + 1 :] if f.module == "py"]
        return frames[first:]
