#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mapped.py SCRIPT [ARGUMENT ...]

Runs another of these scripts with the library's default: memory that it maps itself
(GCPOOL_BACKEND=auto; vmm where there are several devices: there auto maps nothing)."""

import os
import runpy
import sys


def main():
    several = any(argument.startswith("GCPSIM_DEVICES=") for argument in sys.argv)
    os.environ["GCPT_BACKEND"] = "vmm" if several else "auto"
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
