#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""forks.py FORKS_PROGRAM

Captures with several streams forked and joined, and two threads that capture at
once while a third allocates and frees. Plain CUDA refuses."""

import sys

import preload

TRIALS = [
    (["--rounds", "8"], {"GCPSIM_SEED": "1"}),
    (["--rounds", "8"], {"GCPSIM_SEED": "2"}),
    (["--rounds", "4"], {"GCPSIM_SPEED": "never"}),
    (["--rounds", "8", "--together"], {"GCPSIM_SEED": "3"}),
    (["--rounds", "8", "--together"], {"GCPSIM_SEED": "4"}),
    (["--rounds", "4", "--together"], {"GCPSIM_SPEED": "2000"}),
]


def main():
    checks = preload.Checks()
    checks.refused(sys.argv[1])
    checks.trials(sys.argv[1], TRIALS)
    checks.end()


if __name__ == "__main__":
    main()
