#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cross_device_wait.py CROSS_DEVICE_WAIT_PROGRAM

Work of one device is not held back behind another's, whatever a thread frees and
allocates there meanwhile: with a device that does only what a thread waits for, and
with windows large and small. So few frees do not wait themselves."""

import sys

import preload

SCHEDULES = [
    (110, {}),
    (3, {"GCPOOL_TEST_WINDOW": "0", "GCPOOL_TEST_FENCE_BATCH": "1"}),
    (3, {"GCPOOL_TEST_WINDOW": "0", "GCPOOL_TEST_FENCE_BATCH": "1", "GCPOOL_BACKEND": "vmm"}),
    (3, {"GCPOOL_TEST_WINDOW": "0", "GCPOOL_THREAD_CACHE": "0"}),
]


def main():
    checks = preload.Checks()
    for blocks, schedule in SCHEDULES:
        command = [sys.argv[1], "--blocks", str(blocks), "--rounds", "1"]
        more = {"GCPSIM_DEVICES": "2", "GCPSIM_SPEED": "never", **schedule}
        result = preload.run(command, preload.library(), more)
        checks.that(result.code == 0, f"{schedule}: {result.code} {result.out}{result.err}")
        checks.clean(result, str(schedule))
    checks.end()


if __name__ == "__main__":
    main()
