# SPDX-License-Identifier: MIT
"""What the checks of scripts/gpu-check share: running programs plain and under
the library, and the rows of the one table."""

import dataclasses
import os
import signal
import statistics
import subprocess
import time

OK, FAIL, SKIPPED, INFO = "ok", "FAIL", "skipped", "info"


@dataclasses.dataclass
class Row:
    """A line of the table. `details` is printed below it when it is needed, and
    `appendix`, Markdown of its own, at the end of the report."""

    check: str
    plain: str = ""
    pooled: str = ""
    wanted: str = ""
    verdict: str = INFO
    details: str = ""
    appendix: str = ""


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str
    seconds: float

    def tail(self):
        return "\n".join((self.out + self.err).strip().splitlines()[-15:])

    def last(self):
        return (self.out.strip().splitlines() or ["nothing"])[-1]


class Bench:
    """Where things are, and how to run them."""

    def __init__(self, root, library, variants, programs, quick=False, sim=False):
        self.root, self.library = root, library
        self.variants = variants  # folder of the builds that only tests use
        self.programs, self.quick, self.sim = programs, quick, sim
        self.here = os.path.join(root, "tests", "gpu")
        self.toolkit = None  # set by build.find_toolkit
        self.library_path = []
        self.options = {}  # GCPOOL_ variables of every run under the library

    def program(self, name):
        return os.path.join(self.programs, name)

    def variant(self, name):
        """The library built for a test (tests/integration/preload/meson.build says how)."""
        return os.path.join(self.variants, f"libgcpool-{name}.so")

    def scale(self, full, quick):
        return quick if self.quick else full

    def environment(self, library, extra):
        env = {k: v for k, v in os.environ.items() if not k.startswith("GCPOOL_")}
        if library:
            env["LD_PRELOAD"] = library
            env.update(self.options)
        else:
            env.pop("LD_PRELOAD", None)
        if self.library_path:
            path = self.library_path + [env.get("LD_LIBRARY_PATH", "")]
            env["LD_LIBRARY_PATH"] = ":".join(path).strip(":")
        env.update(extra or {})
        return env

    def run(self, command, library=None, extra=None, timeout=120):
        """Never raises: what cannot be run gives code 127, what hangs 124."""
        start = time.monotonic()
        command = [str(word) for word in command]
        try:
            process = subprocess.Popen(
                command, env=self.environment(library, extra), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, errors="replace", cwd=self.root,
                start_new_session=True)
        except OSError as error:
            return Result(127, "", f"{command[0]}: {error}", 0)
        try:
            out, err = process.communicate(timeout=timeout)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            code, err = 124, err + f"\nstopped after {timeout} s"
        return Result(code, out, err, time.monotonic() - start)

    def pair(self, command, extra=None, timeout=120):
        """The same plain and under the library."""
        return [self.run(command, library, extra, timeout) for library in (None, self.library)]


def number(text, before):
    """The number that follows the words `before` in `text`."""
    if before not in text:
        raise ValueError(f"no '{before}' in the output: {text[-500:]!r}")
    return float(text.split(before, 1)[1].split()[0].rstrip(".,;:"))


def median(values):
    return statistics.median(values)


def verdict(good):
    return OK if good else FAIL


def judged(check, plain, pooled, wanted, good, *runs):
    """A row; what these runs said stands below it if it is not good."""
    return Row(check, plain, pooled, wanted, verdict(good),
               "" if good else "\n".join(run.tail() for run in runs))
