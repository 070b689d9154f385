# SPDX-License-Identifier: MIT
"""The build uses nothing that is newer than the Meson that meson.build names: features.py
LOG. Meson says so of itself while it sets up."""

import sys


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        said = [line.strip() for line in file if "but uses feature" in line]
    print("\n".join(said))
    sys.exit(1 if said else 0)


if __name__ == "__main__":
    main()
