#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mapped.py SCRIPT [ARGUMENT ...]

Runs another of these scripts with the library's segments mapped by hand
(GCPOOL_BACKEND=vmm)."""

import os
import runpy
import sys


def main():
    os.environ["GCPT_BACKEND"] = "vmm"
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
