# SPDX-License-Identifier: MIT
"""What the tests of recordings and of the live view share: programs under the library on the
simulated device, and gcpool-trace on what they have recorded."""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
SCRIPTS = os.environ["GCPT_SCRIPTS"]
sys.path[:0] = [os.path.join(HERE, "..", "preload"), SCRIPTS]

import preload  # noqa: E402

from gcpool_trace.history import History  # noqa: E402
from gcpool_trace.recording import Recording  # noqa: E402
from gcpool_trace.symbols import Symbols  # noqa: E402


def program(name):
    return os.path.join(os.environ["GCPT_PROGRAMS"], name)


def tool(*words):
    """gcpool-trace: (exit code, output, errors)."""
    done = subprocess.run(
        [sys.executable, "-S", os.path.join(SCRIPTS, "gcpool-trace"), *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


class Recorded:
    """A program that was recorded: run, path, recording, history, and stats, the statistics of
    the same run."""

    def __init__(self, directory, command, extra=None, name="run"):
        self.path = os.path.join(directory, f"{name}.trace")
        stats = os.path.join(directory, f"{name}.json")
        self.run = preload.run(
            command,
            preload.library(),
            {
                "GCPOOL_TRACE": self.path,
                "GCPOOL_STATS": "json",
                "GCPOOL_STATS_FILE": stats,
                **(extra or {}),
            },
        )
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


def each(checks, tests):
    """Runs every test (a function of checks and a directory), each said by its name."""
    for test in tests:
        before = checks.wrong
        with tempfile.TemporaryDirectory() as directory:
            test(checks, directory)
        print(f"{'ok' if checks.wrong == before else 'WRONG'}: {test.__name__}")
    checks.end()
