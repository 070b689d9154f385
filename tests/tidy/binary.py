# SPDX-License-Identifier: MIT
"""What a built library may look like: binary.py LIBRARY CHECK[+CHECK...]

  needed    it needs libc and nothing else (arguments: but libraries named so)
  glibc     it loads with glibc 2.17, the first that aarch64 has, and needs no function
            of fortified code, which programs of musl have not
  exports   exactly the symbols of the hook tables, dlsym, and gcpool.h
            (arguments: what prints the tables, and gcpool.h or /dev/null)
  lean      nothing is in it that only tests call (argument: pool/check/check.h)
  inert     nothing of it runs at load, not even start files; functions are looked up
            when they are called; stays loaded, no executable stack, no relocation in code
  threads   its thread-local variables fit where libraries that are opened late have
            theirs, beside those of others (in glibc 1,664 bytes for all)
"""

import re
import subprocess
import sys

GLIBC_MAX = (2, 17)
THREAD_LOCAL_MAX = 384


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True,
                          check=True).stdout


def check_needed(library, *others):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", library))
    for name in needed:
        if name != "libc.so.6" and not name.startswith(others):
            yield "needs " + name


def check_glibc(library):
    for line in readelf("--dyn-syms", library).split("\n"):
        fortified = re.search(r" UND (__\w+_chk)@", line)
        if fortified:
            yield "%s, of fortified code: musl has no such function" % fortified.group(1)
        found = re.search(r" UND (\S+)@GLIBC_(\d+)\.(\d+)", line)
        if found and (int(found.group(2)), int(found.group(3))) > GLIBC_MAX:
            yield "%s of glibc %s.%s" % found.groups()


def check_exports(library, *table_and_header):
    *table, header = table_and_header
    wanted = set(subprocess.run(table, capture_output=True, text=True, check=True).stdout.split())
    with open(header) as file:
        wanted |= set(re.findall(r"^GCPOOL_API [^;(]*?(gcpool_\w+)\(", file.read(), re.M))
    wanted.add("dlsym")
    exported = set()
    for line in readelf("--dyn-syms", library).split("\n"):
        words = line.split()
        # Versions themselves are symbols without a section.
        if len(words) >= 8 and words[6] not in ("UND", "ABS", "Ndx"):
            exported.add(words[7])
    for name in sorted(wanted - exported):
        yield "does not export " + name
    for name in sorted(exported - wanted):
        yield "exports %s, which no table knows" % name


def check_lean(library, header):
    with open(header, encoding="utf-8") as file:
        tests_only = set(re.findall(r"^[\w *]+?(gcp_\w+)\(", file.read(), re.M))
    if len(tests_only) < 2:
        yield "%s declares next to nothing" % header
    symbols = {line.split()[-1] for line in readelf("--syms", library).split("\n") if line.split()}
    if "gcp_pools_create" not in symbols:
        yield "has no symbols to look at"
    for name in sorted(tests_only & symbols):
        yield "has %s, which only tests call" % name


def check_inert(library):
    dynamic = readelf("-d", library)
    if re.search(r"\((INIT|INIT_ARRAY|PREINIT_ARRAY)\)", dynamic):
        yield "has functions that run at load"
    if "NODELETE" not in dynamic:
        yield "is not marked NODELETE"
    if re.search(r"BIND_NOW|Flags:.* NOW", dynamic):
        yield "looks all functions up at load"
    if "TEXTREL" in dynamic:
        yield "has relocations in its code"
    segments = readelf("-l", library)
    if re.search(r"GNU_STACK.*RWE", segments):
        yield "wants an executable stack"
    if "GNU_RELRO" not in segments:
        yield "has no read-only relocations"


def check_threads(library):
    size = int(re.search(r" TLS +(?:0x\w+ +){4}(0x\w+)", readelf("-l", library)).group(1), 16)
    if size > THREAD_LOCAL_MAX:
        yield "%d bytes of thread-local variables, more than %d" % (size, THREAD_LOCAL_MAX)


def main():
    *others, check = (globals()["check_" + name] for name in sys.argv[2].split("+"))
    complaints = [words for other in others for words in other(sys.argv[1])]
    complaints += check(sys.argv[1], *sys.argv[3:])
    for complaint in complaints:
        print(complaint)
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
