# SPDX-License-Identifier: MIT
"""The conformance programs of tests/sim on this machine's driver: what they print
must be what their golden files say, which the simulated driver is held to as well.
scripts/gpu-check --record writes those files."""

import datetime
import difflib
import os
import subprocess
import sys

import build
import machine
from bench import FAIL, INFO, Row, verdict

PROGRAMS = ("legality", "captures", "graphs", "auto_free", "codes", "order", "memory",
            "conditional", "edited", "contexts", "fences", "sharing")
NOTE = """# Where the golden files come from

`scripts/gpu-check --record` writes `conform_*.golden`; `scripts/gpu-check --only
transcripts` compares.

| | |
|---|---|
| device, driver | {driver} |
| recorded | {date} |

A checksum that differs (`tests/tidy/golden.py`) is of a file that was changed by hand.

<!-- golden files -->

<!-- end of golden files -->
"""


def place(bench):
    return os.path.join(bench.root, "tests", "sim")


def golden(bench, name):
    return os.path.join(place(bench), f"conform_{name}.golden")


def program_build(bench, name):
    """Its path; None and what went wrong."""
    target = bench.program(f"conform-{name}")
    if bench.sim:
        return os.path.join(bench.programs, "..", "..", "sim", f"conform_{name}"), ""
    os.makedirs(bench.programs, exist_ok=True)
    links = build.link_flags(bench.toolkit)
    command = ["gcc", *build.compile_flags(bench.toolkit)]
    command += [os.path.join(place(bench), f"conform_{name}.c"), "-o", target]
    command += [*[f for f in links if f.startswith("-L")], "-lcuda", *links]
    done = bench.run(command)
    return (None, done.tail()) if done.code else (target, "")


def transcript(bench, name):
    """What it prints; None and what went wrong."""
    program, why = program_build(bench, name)
    if not program:
        return None, why
    ptx = os.path.join(bench.root, "tests", "integration", "programs", "kernels.ptx")
    extra = {"GCPSIM_QUIET": "1", "GCPSIM_SPEED": "1000"} if bench.sim else None
    done = bench.run([program, ptx], extra=extra, timeout=300)
    return (done.out, "") if done.code == 0 else (None, done.tail())


def check(bench):
    """A row for each program."""
    rows = []
    for name in PROGRAMS:
        said, why = transcript(bench, name)
        if not os.path.exists(golden(bench, name)):
            rows.append(Row(f"transcript, {name}", "", "", "no golden file yet: "
                            "scripts/gpu-check --record", INFO))
            continue
        with open(golden(bench, name)) as file:
            wanted = file.read()
        lines = [text.splitlines() for text in (wanted, said or "")]
        diff = list(difflib.unified_diff(*lines, "golden", "here", "", "", 0))
        rows.append(Row(f"transcript, {name}", f"{len(lines[1])} lines", "",
                        f"the {len(lines[0])} of the golden file",
                        verdict(said == wanted) if said is not None else FAIL,
                        "\n".join(diff) if said is not None else why))
    return rows


def driver_described():
    """The device and the driver's version, of nvidia-smi; "": there is none."""
    return machine.words_of(["nvidia-smi", "--query-gpu=name,driver_version",
                             "--format=csv,noheader"]).partition("\n")[0]


def record(bench):
    """Writes the golden files anew, and where they come from."""
    for name in PROGRAMS:
        said, why = transcript(bench, name)
        if said is None:
            sys.exit(f"{name} did not run, recording nothing more:\n{why}")
        with open(golden(bench, name), "w") as file:
            file.write(said)
    with open(os.path.join(place(bench), "golden.md"), "w") as file:
        file.write(NOTE.format(driver=driver_described() or "unknown",
                               date=datetime.date.today().isoformat()))
    subprocess.run([sys.executable, os.path.join(bench.root, "tests", "tidy", "golden.py"),
                    bench.root, "--write"], check=True)
