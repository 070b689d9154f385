# SPDX-License-Identifier: MIT
"""symbols.py LIST: prints the macros of symbols.h for the tables of symbols.list."""

import re
import sys

with open(sys.argv[1], encoding="ascii") as file:
    lines = file.read().replace("\n\t", " ").splitlines()

tables, names, defines, known = {"GCP_HOOKS_BY_WORDS": []}, set(), [], []

for line in lines:
    if line.startswith("table "):
        table = re.sub("HOOKS|DRIVER", "TABLE", line.split()[1])
        by_words = line.endswith(" by words")
        defines.append("#define %s %d" % (table, len(tables)))
        rows = tables[line.split()[1]] = []
        if " in " in line:
            tables[line.split()[3]].append(line.split()[1] + "(X)")
    elif line.startswith("cu") and " (" not in line:
        base, _, latest = line.partition("_v")
        known += [base] + [f"{base}_v{version}" for version in range(2, int(latest or 1) + 1)]
    elif line and not line.startswith("#"):
        head, parameters = line.split(" (")
        parameters = parameters.rstrip(")")
        arguments = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters)) if parameters != "void" else ""
        first, *versions = head.split()
        for suffix, since in zip(["", *versions[1::2]], versions[::2]):
            name = first + suffix
            base = re.sub(r"(_v\d)?(_pt[sd][sz])?$", "", name)
            names.add(name)
            rows.append("X(%s, %s, %s, %d, %s)" % (
                name, base, since.rstrip("!~+"), name.endswith(("_ptsz", "_ptds")),
                "GCP_REQUIRED" if "!" in since else "GCP_OPTIONAL"))
            defines.append("#define GCP_PARAMETERS_%s (%s)" % (name, parameters))
            defines.append("#define GCP_ARGUMENTS_%s (%s)" % (name, arguments))
            defines.append("#define GCP_OFTEN_%s %d" % (name, "+" in since))
            defines.append("#define GCP_SELDOM_%s %s" % (
                name, "" if "+" in since else "__attribute__((cold))"))
            defines.append("#define GCP_PASSES_%s %d" % (name, "~" in since))
            defines.append("#define GCP_FREES_%s %s" % (name, "ptr" if first == "cuMemFree_v2" else "0"))
            if by_words:
                stream = arguments.split(", ").index("stream") if " stream" in parameters else 11
                tables["GCP_HOOKS_BY_WORDS"].append("X(%s, %s, %d)" % (name, table, stream))

# cuda.h renames the old spellings to the newest versions.
print("".join("#undef %s\n" % name for name in sorted(names)))
for name, rows in tables.items():
    print("#define %s(X) \\\n\t%s\n" % (name, " \\\n\t".join(rows)))
print("\n".join(defines))
print('#define GCP_KNOWN_CALLS "\\n%s\\n"' % "\\n".join(known))
