# SPDX-License-Identifier: MIT
"""entries.py LIST HEADER SOURCE: writes the table of entry points and what SIM_ENTRY gives
each of them (HEADER), and their gates and twins (SOURCE), of entries.list."""

import re
import sys

ROW = re.compile(r"(\w+) (\d+) (.*?)\((.*)\)$")
GATES = {"early": "SIM_ENTER_EARLY", "unlocked": "SIM_ENTER", "locked": "SIM_LOCKED"}


class Entry:
    def __init__(self, line):
        self.symbol, self.since, words, self.parameters = ROW.match(line).groups()
        self.name = re.sub(r"_v\d+$", "", self.symbol)
        self.words, _, body = words.partition("=")
        self.words = self.words.split()
        self.body = body.strip() or self.symbol
        self.twin = next((f"{self.symbol}_{word}" for word in self.words if word.startswith("pt")),
                         None)
        listed = [] if self.parameters == "void" else self.parameters.split(",")
        self.names = [re.search(r"\w+$", one).group() for one in listed]
        self.stream = next((re.search(r"\w+$", one).group() for one in listed
                            if one.strip().startswith("CUstream ")), None)
        self.inside = ", ".join(f"{one.strip()} __attribute__((unused))" for one in listed) or "void"

    def call(self, function, stream=None):
        return f"{function}({', '.join(stream if n == self.stream and stream else n for n in self.names)})"

    def header(self):
        kind, more = ("S", f", {self.twin}") if self.twin else ("F", "")
        yield f"CUresult {self.symbol}({self.parameters});"
        if self.twin:
            yield f"CUresult {self.twin}({self.parameters});"
        if self.body == self.symbol:
            yield f"#define SIM_ENTRY_{self.symbol} CUresult sim_{self.symbol}({self.inside})"
            yield f"SIM_ENTRY_{self.symbol} __attribute__((visibility(\"hidden\")));"
        self.row = f"{kind}({self.name}, {self.since}, {self.symbol}{more})"

    def gate(self):
        if "free" in self.words:
            return ""
        kind = next((word for word in self.words if word in GATES), "locked")
        return ("SIM_DESTROYS; " if "destroys" in self.words else "") + \
            f"{GATES[kind]}({self.symbol}); " + \
            (f"SIM_CALLED({self.symbol}); " if "called" in self.words else "")

    def source(self):
        body = self.call(f"sim_{self.body}")
        yield f"CUresult {self.symbol}({self.parameters}) {{ {self.gate()}return {body}; }}"
        if self.twin and self.stream:
            yield f"CUresult {self.twin}({self.parameters}) " \
                  f"{{ return {self.call(self.symbol, f'SIM_PTSZ({self.stream})')}; }}"
        elif self.twin:
            yield f"CUresult {self.twin}({self.parameters}) {{ CUresult result_; {self.gate()}" \
                  f"sim_thread_self()->per_thread = true; result_ = {body}; " \
                  "sim_thread_self()->per_thread = false; return result_; }"


with open(sys.argv[1], encoding="ascii") as file:
    entries = [Entry(line.strip()) for line in file if line.strip() and not line.startswith("#")]
with open(sys.argv[2], "w", encoding="ascii") as file:
    print("#pragma GCC visibility push(default)", file=file)
    for entry in entries:
        print(*entry.header(), sep="\n", file=file)
    print("#pragma GCC visibility pop\n#define SIM_TABLE(F, S)",
          *[entry.row for entry in entries], file=file)
with open(sys.argv[3], "w", encoding="ascii") as file:
    print('#include "sim.h"', file=file)
    for entry in entries:
        print(*entry.source(), sep="\n", file=file)
