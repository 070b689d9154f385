# SPDX-License-Identifier: MIT
"""found.py FILE...

For meson: the programs among the files, by their first comments. Lines of
NAME|FILE|NEEDS|STYLES|RUN_STYLES|SCRIPT: what it is built with (scenarios.h), in which styles
it is built, and in which of them it is run (programs.py), or by which script."""

import os
import re
import sys

import preload

STYLES = "static shared linked dlsym"


def programs_of(paths):
    for path in sorted(paths):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        says = preload.first_comment(text)
        if re.search("^SCENARIO", text, re.M) or {"Run", "Styles"} & set(says):
            styles = says.get("Styles", STYLES)
            tried = styles if says.get("Tried") == "everywhere" else styles.split()[0]
            yield (os.path.basename(path)[:-2], path, says.get("Needs", ""), styles,
                   tried if "Run" in says else "", says.get("Script", ""))


if __name__ == "__main__":
    print("\n".join("|".join(row) for row in programs_of(sys.argv[1:])))
