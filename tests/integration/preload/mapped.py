#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mapped.py SCRIPT [ARGUMENT ...]

Runs another of these scripts with the library's segments mapped by hand
(GCPOOL_BACKEND=vmm)."""

import os
import sys


def main():
    os.environ["GCPT_BACKEND"] = "vmm"
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
