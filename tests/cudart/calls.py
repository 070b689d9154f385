# SPDX-License-Identifier: MIT
"""calls.py LIST HEADER SOURCE: writes CUDART_CALLS(X), X(name, version) of each driver function,
and the functions of the runtime that are one call of the driver, of calls.list."""

import re
import sys

with open(sys.argv[1], encoding="ascii") as file:
    rows = [line.strip() for line in file if line.strip() and not line.startswith("#")]
with open(sys.argv[2], "w", encoding="ascii") as file:
    print("#define CUDART_CALLS(X)", *["X({}, {})".format(*row.split()) for row in rows
                                      if "(" not in row], file=file)
with open(sys.argv[3], "w", encoding="ascii") as file:
    print('#include "cudart.h"', file=file)
    for row in rows:
        call = re.match(r"(\w+\(.*?\))(?: into (.*?))?(?: unless (.*?))? = (\w+)\((.*)\)$", row)
        if call:
            into = call[2].split(", ") if call[2] else []
            body = "".join(f"if (!{p}) return cudart_keep(cudaErrorInvalidValue); " for p in into)
            if call[3]:
                none = "".join(f"*{p} = 0; " for p in into)
                body += f"if (!({call[3]})) {{ {none}return cudart_keep(cudart_enter()); }} "
            arguments = ", ".join(word for word in (call[4], call[5]) if word)
            print(f"cudaError_t {call[1]} {{ {body}CUDART_CALL({arguments}); }}", file=file)
