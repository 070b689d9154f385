# SPDX-License-Identifier: MIT
"""Facts to print below the table: what scripts/gpu-check saw, with no verdict."""

import os


def probe(bench):
    return bench.run([bench.program("probe")]).out


def captures_given_up(bench):
    result = bench.run([bench.program("probe-capture")])
    return result.out + (f"ended with code {result.code}" if result.code else "")


def spied(bench):
    """The driver calls of the runtime, as a preloaded library sees them."""
    text = ""
    for program, arguments in (("loop", ["--iterations", "5", "--warm", "0"]),
                               ("contexts", ["--devices", "1"])):
        for style in ("static", "shared"):
            command = [bench.program(f"{program}-{style}"), *arguments]
            result = bench.run(command, bench.program("spy.so"))
            lines = [line for line in result.out.splitlines() if line.startswith("spy:")]
            lines = [line for line in lines if not line.endswith(" 0 times")]
            text += f"{os.path.basename(command[0])} {' '.join(arguments)}:\n"
            text += "".join(f"  {line}\n" for line in lines)
    return text


def statistics(bench):
    """The library's own statistics of one run."""
    result = bench.run([bench.program("stress-static"), "--rounds", 300], bench.library,
                       {"GCPOOL_STATS": "text"})
    return result.out + result.err


PROBES = {"facts": probe, "captures given up": captures_given_up,
          "driver calls of the runtime": spied,
          "statistics": statistics}
