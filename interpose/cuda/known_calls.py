# SPDX-License-Identifier: MIT
"""known_calls.py NAMES: prints C for `gcp_known_calls` (unknown_calls.h), of a file with a
name in each line, which stands for the versions of its function up to that one."""

import sys

with open(sys.argv[1], encoding="ascii") as names:
    print("extern const char gcp_known_calls[];")
    print('const char gcp_known_calls[] = "\\n"')
    for name in names:
        base, _, latest = name.strip().partition("_v")
        for version in range(int(latest or 1)):
            print(f'\t"{base}{f"_v{version + 1}" if version else ""}\\n"')
    print(";")
