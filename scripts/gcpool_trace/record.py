# SPDX-License-Identifier: MIT
"""What `gcpool record` does: runs a program with a recording, and writes the report of it."""

import argparse
import glob
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from gcpool_trace import html, perf_map  # noqa: E402
from gcpool_trace.history import History  # noqa: E402
from gcpool_trace.recording import Recording, Wrong, began, progress  # noqa: E402
from gcpool_trace.summary import plain  # noqa: E402
from gcpool_trace.symbols import Symbols  # noqa: E402

EPILOG = """\
Each process that allocates has a recording and a report of its own; both names are said at the
end. Call stacks name the functions of Python programs, too: CPython 3.12 or newer is asked for
that (PYTHONPERFSUPPORT=1), if stacks are.

The exit code is that of the program; 1: it is 0, but a report could not be written; 2: gcpool
was called wrongly.
"""


def report_name(word):
    if not word.endswith(".html"):
        raise argparse.ArgumentTypeError(f"{word!r} does not end in .html")
    if not os.access(os.path.dirname(os.path.abspath(word)), os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write into the directory of {word!r}")
    return os.path.abspath(word)


def arguments_read(words):
    parser = argparse.ArgumentParser(
        prog="gcpool record",
        description=__doc__.split(": ", 1)[1].capitalize(),
        epilog=EPILOG,
        usage="gcpool record [-o FILE] [--stacks N] [--size BYTES] [options of gcpool] [--] program ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-o", dest="output", type=report_name, default=report_name("gcpool.%p.html"), metavar="FILE",
        help="the report; %%p is the process id (gcpool.%%p.html); the recording lies beside it, as .trace",
    )
    parser.add_argument("--stacks", default="64", metavar="N", help="frames of call stacks (64; 0: none)")
    parser.add_argument("--size", metavar="BYTES", help="the recording grows to this (256M)")
    # What follows is the launcher's: its own options, the program, the program's arguments.
    own = 0
    while own < len(words) and words[own].startswith(("-o", "--stacks", "--size", "-h", "--help")):
        own += 1 if "=" in words[own] or (words[own].startswith("-o") and len(words[own]) > 2) else 2
    return parser.parse_args(words[:own]), words[own:]


def program_run(launcher, rest, environment):
    """The exit code as a shell has it."""
    process = subprocess.Popen([launcher, *rest], env=environment)
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends it to the program as well
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code if code >= 0 else 128 - code


def say(words):
    progress("")
    print(plain(f"gcpool: {words}"), file=sys.stderr)


def report_write(trace, report):
    """False, if it could not be."""
    try:
        found = Recording(trace)
        perf_map.keep(found)
        text = html.report(found, History(found), Symbols(found))
        with open(report, "w", encoding="utf-8") as file:
            file.write(text)
    except (Wrong, OSError) as error:
        say(f"no report of {trace}: {error}")
        return False
    say(f"report {os.path.relpath(report)}, recording {os.path.relpath(trace)}")
    return True


def main():
    launcher, words = sys.argv[1], sys.argv[2:]
    arguments, rest = arguments_read(words)
    stem = arguments.output[: -len(".html")]
    # Processes that the program starts have recordings of their own.
    pattern = (stem if "%p" in os.path.basename(stem) else stem + ".%p") + ".trace"
    environment = {**os.environ, "GCPOOL_TRACE": pattern, "GCPOOL_TRACE_STACKS": arguments.stacks}
    if arguments.size:
        environment["GCPOOL_TRACE_SIZE"] = arguments.size
    if arguments.stacks != "0":
        environment.setdefault("PYTHONPERFSUPPORT", "1")
    start = time.time_ns()
    code = program_run(launcher, rest, environment)
    name = re.escape(os.path.basename(pattern)).replace("%p", r"(\d+)", 1).replace("%p", r"\1")
    traces = []
    for trace in glob.iglob(os.path.join(glob.escape(os.path.dirname(pattern)), "*.trace")):
        found = re.fullmatch(name, os.path.basename(trace))
        if found and began(trace) >= start:
            traces.append((trace, found[1]))
    if not traces and code not in (2, 126, 127):
        say("no process allocated from the pool: there is no recording")
    good = True
    for trace, pid in sorted(traces):
        alone = len(traces) == 1 or "%p" in arguments.output
        report = arguments.output.replace("%p", pid) if alone else f"{stem}.{pid}.html"
        good = report_write(trace, report) and good
    sys.exit(code if code or good else 1)


if __name__ == "__main__":
    main()
