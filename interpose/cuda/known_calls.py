# SPDX-License-Identifier: MIT
"""known_calls.py NAMES: prints C for `gcp_known_calls` (unknown_calls.h), of a file with a
name in each line."""

import sys

with open(sys.argv[1], encoding="ascii") as names:
    print("extern const char gcp_known_calls[];")
    print('const char gcp_known_calls[] = "\\n"')
    print("".join(f'\t"{name.strip()}\\n"\n' for name in names), end=";\n")
