#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""staging_devices.py STAGING_DEVICES_PROGRAM

Pinned memory of one device, used by another: no hazard and no wrong word with the
library, in schedules in which the second device lags behind. The test build without
fences must show hazards."""

import os
import sys

import preload

SCHEDULES = [
    {"GCPSIM_DEVICES": "2", "GCPSIM_SPEED": "never"},
    {"GCPSIM_DEVICES": "2", "GCPSIM_SEED": "1"},
    {"GCPSIM_DEVICES": "2", "GCPSIM_SPEED": "2000", "GCPOOL_TEST_HOST_FENCE_BATCH": "1"},
]


def main():
    checks = preload.Checks()
    command = [sys.argv[1], "--rounds", "20", "--words", "1000"]
    for schedule in SCHEDULES:
        result = preload.run(command, preload.library(), schedule)
        checks.that(result.code == 0, f"{schedule}: {result.code} {result.out}{result.err}")
        checks.clean(result, str(schedule))
        quiet = {**schedule, "GCPSIM_QUIET": "1"}
        result = preload.run(command, os.environ["GCPT_NOFENCE"], quiet)
        checks.that(result.figures.get("hazards", 0), f"{schedule}: no teeth {result.figures}")
    checks.end()


if __name__ == "__main__":
    main()
