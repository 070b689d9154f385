# SPDX-License-Identifier: MIT
"""python -m gcpool [SCRIPT [ARGUMENTS]] - runs the script, if there is one, and prints
what libgcpool did in this process, which has to be started with gcpool."""

import os
import runpy
import sys

import gcpool

DEVICES_MAX = 64


def line_of(name, value):
    """One figure: a number, a gauge (current, peak, ...) or calls (count, ns)."""
    if isinstance(value, list):
        return None
    if isinstance(value, dict):
        value = ", ".join("%s %d" % (word.replace("_", " "), number)
                          for word, number in value.items())
    return "  %-24s %s" % (name, value)


def section_print(title, stats):
    print(title)
    for name, value in stats.items():
        line = line_of(name, value)
        if line:
            print(line)


def statistics_print():
    if not gcpool.loaded():
        print("gcpool: libgcpool is not in this process; start it with: gcpool %s -m gcpool "
              "[script]" % os.path.basename(sys.executable), file=sys.stderr)
        return 1
    print("libgcpool %s, %s" % (gcpool.version(),
                                "active" if gcpool.active() else "not active"))
    nothing = True
    for device in range(DEVICES_MAX):
        stats = gcpool.statistics(device)
        if stats:
            nothing = False
            section_print("device %d" % device, stats)
    host = gcpool.host_statistics()
    if host:
        section_print("pinned memory", host)
    if nothing and not host:
        print("nothing was allocated in this process")
    return 0


def script_run():
    """Many scripts end with sys.exit: what they give it is our exit code, too."""
    code = None
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    result = statistics_print()
    return code or result


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if len(sys.argv) > 1:
        sys.argv.pop(0)
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        return script_run()
    return statistics_print()


if __name__ == "__main__":
    sys.exit(main())
