#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""exports.py TWO_PROCESSES_PROGRAM

Mapped memory that another process opens, where a plain run says nothing: the simulated
driver gives the memory of a block that is open elsewhere to another allocation, which
CUDA does not; and CUDA takes some changed handles."""

import re
import sys

import preload

MAPPED = {"GCPOOL_BACKEND": "vmm"}


def played(checks, program, scenario, extra=None):
    result = preload.run([program, scenario], preload.library(), {**MAPPED, **(extra or {})})
    print(f"-- {scenario} {extra or ''}\n{result.out}{result.err}")
    checks.that(result.code == 0, f"{scenario}: exit code {result.code}")
    checks.clean(result, scenario)
    return result


def main():
    program = sys.argv[1]
    checks = preload.Checks()

    held = played(checks, program, "held")
    unknown = re.findall(r"\bp(?: \+ 4096)?(?:, NULL)?\) +(\d+)$", held.out, re.M)
    checks.equal("codes for a freed block that is open elsewhere", ["500"] * 2 + ["1"] * 5, unknown)

    forged = played(checks, program, "forged")
    refused = [line.split()[-1] for line in forged.out.splitlines() if ": refused" in line]
    checks.equal("changed handles that were refused", ["64"], refused)

    checks.end()


if __name__ == "__main__":
    main()
