#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""trial.py [plain|unseen] [code=N] PROGRAM [ARGUMENT ...] [VARIABLE=value ...]

The program under the library, or plain, ends with that code (0), without a hazard, and no
user object of a graph is left. Unseen is what makes no call that the driver reports."""

import re
import sys

import preload


def main():
    words = sys.argv[1:]
    how = words.pop(0) if words[0] in ("plain", "unseen") else "with the library"
    code = int(words.pop(0)[5:]) if words[0].startswith("code=") else 0
    settings = dict(word.split("=", 1) for word in words if re.match("[A-Z_]+=", word))
    checks = preload.Checks()
    result = preload.run([word for word in words if not re.match("[A-Z_]+=", word)],
                         None if how == "plain" else preload.library(), settings)
    print(result.out + result.err, result.figures)
    if result.code == preload.SKIP:
        sys.exit(preload.SKIP)
    checks.equal("exit code", code, result.code)
    checks.clean(result, how, how != "unseen")
    checks.equal("user objects left", 0, result.figures.get("user_objects", 0))
    checks.end()


if __name__ == "__main__":
    main()
