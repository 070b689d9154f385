# SPDX-License-Identifier: MIT
"""What the tests of recordings and of the live view share: programs under the library on the
simulated device, and gcpool-trace on what they have recorded."""

import contextlib
import importlib.machinery
import importlib.util
import inspect
import io
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
SCRIPTS = os.environ["GCPT_SCRIPTS"]
sys.path[:0] = [os.path.join(HERE, "..", "preload"), SCRIPTS]

import preload  # noqa: E402

from gcpool_trace.history import History  # noqa: E402
from gcpool_trace.recording import (  # noqa: E402
    CHUNK, CHUNK_BYTES, CHUNK_SLOTS, EVENT, EVENTS, HEADER, HEADER_BYTES, KINDS, MAGIC, Module, Recording)
from gcpool_trace.symbols import Symbols  # noqa: E402


def program(name):
    return os.path.join(os.environ["GCPT_PROGRAMS"], name)


# As much as is needed to see something: programs do more by themselves.
ENOUGH = {"stress": "--rounds 250 --max 256k", "graphs": "--words 2000 --rounds 12",
          "solver": "--steps 20 --size 256k"}


def command(name):
    return [program(name), *ENOUGH.get(name.split("-")[0], "").split()]


def script(name):
    """One without .py, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(SCRIPTS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def said(main, *words):
    """(exit code, output, errors) of a script's main function, in this process: a start of
    Python takes longer than most of them."""
    out, err, before, code = io.TextIOWrapper(io.BytesIO()), io.StringIO(), sys.argv, 0
    sys.argv = ["", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, str):
            err.write(f"{code}\n")
            code = 1
    finally:
        sys.argv = before
    out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()


def tool(*words):
    """gcpool-trace."""
    return said(TOOL.main, *words)


TOOL = script("gcpool-trace")


class Recorded:
    """A program that was recorded: run, path, recording, history, and stats, the statistics of
    the same run."""

    def __init__(self, directory, command, extra=None, name="run"):
        self.path = os.path.join(directory, f"{name}.trace")
        stats = os.path.join(directory, f"{name}.json")
        extra = {"GCPOOL_STATS": "json", "GCPOOL_STATS_FILE": stats, **(extra or {})}
        self.run = preload.run(command, preload.library(), {"GCPOOL_TRACE": self.path, **extra})
        self.stats = None
        if os.path.exists(stats):
            with open(stats) as file:
                self.stats = json.load(file)
        self.recording = Recording(self.path)
        self.history = History(self.recording)

    def symbols(self):
        return Symbols(self.recording)

    def device(self):
        return self.history.main_device()


def forge(path, events, program="forged", sizes=(HEADER_BYTES, CHUNK_BYTES, EVENT.size, CHUNK_SLOTS, 0)):
    """Writes a recording of 1 s: events are (ns, kind, addr, bytes, arg, more)."""
    numbers = {name: number for number, name in KINDS.items()}
    chunks = -(-len(events) // CHUNK_SLOTS)
    header = HEADER.pack(MAGIC, 1, *sizes, 1, 4096, 1, 0, 0, 10**9, chunks, 0, 0)
    with open(path, "wb") as file:
        file.write((header + b"host".ljust(64, b"\0") + program.encode()).ljust(HEADER_BYTES, b"\0"))
        for chunk in range(chunks):
            raw = bytearray(CHUNK.pack(EVENTS, 0, chunk, 0))
            first = chunk * CHUNK_SLOTS
            part = events[first : first + CHUNK_SLOTS]
            for stamp, (time, kind, addr, size, arg, more) in enumerate(part, first + 1):
                raw += EVENT.pack(time, addr, size, arg, more, 0, 1, numbers[kind], 0, stamp)
            file.write(bytes(raw).ljust(CHUNK_BYTES, b"\0"))


def tests():
    """The functions of checks and a directory in the program that runs, as they stand there."""
    return [function for function in vars(sys.modules["__main__"]).values()
            if inspect.isfunction(function)
            and list(inspect.signature(function).parameters) == ["checks", "directory"]]


def each(checks, tests):
    """Runs every test (a function of checks and a directory), each said by its name."""
    for test in tests:
        before = checks.wrong
        with tempfile.TemporaryDirectory() as directory:
            test(checks, directory)
        print(f"{'ok' if checks.wrong == before else 'WRONG'}: {test.__name__}")
    checks.end()
