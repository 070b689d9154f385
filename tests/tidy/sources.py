# SPDX-License-Identifier: MIT
"""The house style, as a test: sources.py ROOT CHECK

  spdx       each source file names its licence in its first line
  shape      lengths of lines, functions and files; each file says what it is for;
             headings stand on one line
  words      no unfinished business, no machine's paths, no known name in /tmp, which
             another user may have taken
  vocabulary no words that are out (CONTRIBUTING.md): the subject of a sentence is a
             thing, the block, the epoch, the caller, the thread
  rooms      a room includes only rooms to its left, through their one header
  names      base names of files and tags of structs and enums are unique in the rooms;
             no getenv, malloc or stdio where forbidden
  circles    no file of a room uses one that comes to use it, and none one of a later
             folder of its room
  homes      what a heading of a room's headers names as a file's is defined there
  options    the table of docs/options.md is that of the library (argument: the
             program that prints it)
  links      links between documents lead to files and headings that are there
  version    the version is the same everywhere
  format     clang-format 14 has nothing to change (exit code 77: it is not here)
  scripts    shellcheck has nothing to say (the same)
"""

import os
import re
import shutil
import subprocess
import sys

LINE_MAX, FUNCTION_MAX, FILE_MAX, TAB = 100, 70, 1000, 8
PYTHON_LINE_MAX = 110
# Where declarations still stand elsewhere: to become empty.
HOMES_YET = ("pool/pool_types.h",)
CLANG_FORMAT = 14
SKIP = 77
ROOMS = {"pool": 0, "capture": 1, "interpose": 2}
# The folders of a room: files use those of their own folder and of earlier ones.
FOLDERS = {
    "pool": ["base", "timeline", "heap", "space", "cache", "pinned", "reclaim", "graphs",
             "device", "check"],
    "interpose": ["base", "cuda", "statistics", "observe", "ipc", "process", "hooks", "handles"]}
# What others may include of a room.
DOORS = {"pool": {"pool.h", "driver_table.h", "treap.h"}, "capture": {"capture.h"}, "interpose": set()}


class Tree:
    def __init__(self, root):
        self.root = root
        names = self.listed() or self.walked()
        self.names = sorted(n for n in names if os.path.isfile(os.path.join(root, n)))

    def listed(self):
        """What git knows or would add; None without git or outside a repository."""
        try:
            done = subprocess.run(
                ["git", "-C", self.root, "ls-files", "-co", "--exclude-standard"],
                capture_output=True, text=True)
        except FileNotFoundError:
            return None
        return done.stdout.splitlines() if done.returncode == 0 else None

    def walked(self):
        """Without git: everything but build directories and hidden ones."""
        for place, places, files in os.walk(self.root):
            places[:] = [p for p in places if not p.startswith((".", "build", "__"))]
            for name in files:
                yield os.path.relpath(os.path.join(place, name), self.root)

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def ending(self, *endings):
        return [name for name in self.names if name.endswith(endings)]

    def scripts(self, interpreter):
        """Files without ending that begin with #! and the interpreter."""
        found = []
        for name in self.names:
            if "." in os.path.basename(name):
                continue
            with open(os.path.join(self.root, name), "rb") as file:
                first = file.readline()
            if first.startswith(b"#!") and first.strip().endswith(interpreter):
                found.append(name)
        return found


# --- spdx ----------------------------------------------------------------------

SPDX = "SPDX-License-Identifier: MIT"


def licensed_names(tree):
    """Sources: what is compiled, run, or built with."""
    named = tree.ending(".c", ".h", ".S", ".cu", ".cpp", ".py", ".sh", ".bash", ".fish", ".toml",
                        ".ini", "meson.build", "meson_options.txt", "completion/_gcpool")
    run = [name for name in tree.names if "." not in os.path.basename(name)
           and tree.read(name).startswith("#!")]
    return sorted(set(named + run))


def spdx_place(name, text):
    """The line, and where it stands: first, behind what must be first."""
    at = 1 if text.startswith(("#!", "#compdef")) else 0
    if name.endswith((".c", ".h", ".S", ".cu", ".cpp")):
        return "/* %s */" % SPDX, at
    return "# " + SPDX, at


def without_spdx(name, text):
    line, at = spdx_place(name, text)
    lines = text.split("\n")
    if lines[at:at + 1] == [line]:
        del lines[at]
    return "\n".join(lines)


def check_spdx(tree):
    for name in licensed_names(tree):
        text = tree.read(name)
        line, at = spdx_place(name, text)
        if text.split("\n")[at:at + 1] != [line]:
            yield name, "line %d is not: %s" % (at + 1, line)


# --- shape ---------------------------------------------------------------------


def width(line):
    return len(line.expandtabs(TAB))


def functions(text):
    """(name, first line, length) of each function: its body is between a brace in
    the first column and the next one."""
    lines = text.split("\n")
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            name = next((m.group(1) for back in range(start - 2, max(start - 8, -1), -1)
                         for m in [re.search(r"(\w+)\(", lines[back])] if m), "?")
            yield name, start, number - start + 1
            start = None


# Its second line is a ruler, or the end of the comment.
TORN = re.compile(r"^[ \t]*/\* --- (?:(?!\*/)[^\n])*\n\s*(?:\* ?-{3,}|\*/)", re.M)


def shape_of(tree, name):
    text, in_c = tree.read(name), name.endswith((".c", ".h", ".cu"))
    own = without_spdx(name, text)
    opening = own.split("\n", 1)[1] if own.startswith("#!") else own
    if not opening.startswith("/*" if in_c else ("#", '"""')):
        yield "does not open with a comment that says what it is for"
    if own.count("\n") > FILE_MAX:
        yield "has %d lines, at most %d" % (own.count("\n"), FILE_MAX)
    most = LINE_MAX if in_c else PYTHON_LINE_MAX
    for number, line in enumerate(text.split("\n"), 1):
        if width(line) > most:
            yield "line %d is %d wide, at most %d" % (number, width(line), most)
        if line != line.rstrip():
            yield "line %d ends in blanks" % number
    for torn in TORN.finditer(text):
        yield "line %d: a heading on several lines" % (text.count("\n", 0, torn.start()) + 1)
    for function, number, length in functions(text) if in_c else ():
        if length > FUNCTION_MAX:
            yield "%s (line %d) has %d lines, at most %d" % (
                function, number, length, FUNCTION_MAX)


def check_shape(tree):
    for name in tree.ending(".c", ".h", ".cu", ".py", "meson.build", ".sh") + \
            tree.scripts(b"python3") + tree.scripts(b"/bin/sh"):
        for complaint in shape_of(tree, name):
            yield name, complaint


# --- words ---------------------------------------------------------------------

# Split, so that this file does not find itself.
UNWANTED = ["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]
ADDRESS = re.compile(r"@example\.\w+")  # of contacts that were made up
MACHINE = ["/wo" + "rk/", "/ro" + "ot/", "/tm" + "p/brief"]
# But for what mktemp and its like fill in, and for the maps that perf prescribes.
KNOWN_NAME = re.compile(r"(?<!debian)/tmp\}?/(?!\S*XXXXXX|perf-)[\w%$]")


def check_words(tree):
    for name in tree.names:
        if name.endswith((".xz", ".png")):
            continue
        for number, line in enumerate(tree.read(name).split("\n"), 1):
            for word in UNWANTED:
                if re.search(r"\b%s\b" % word, line):
                    yield name, "line %d: %s" % (number, word)
            if ADDRESS.search(line):
                yield name, "line %d: an address that leads nowhere" % number
            for path in MACHINE:
                if path in line:
                    yield name, "line %d: a path of one machine" % number
            if KNOWN_NAME.search(line) and not name.endswith(".md"):
                yield name, "line %d: a known name in a directory that all users share" % number


# --- vocabulary ------------------------------------------------------------------

# An underscore parts words of a name: gcp_tally_lock has "tally".
OUT = re.compile(r"(?<![A-Za-z])(%s)(?![A-Za-z])" % "|".join("""bystander crowd hurried shelf
shelves tally tallies swallow swallowed surrender surrendered lodger widened dear regroup
regrouped regroups settle settled settles visit visits visitor visitors vacate dissolve abandon
abandoned depart retire patience spoil spoiled nap naps forget forgets forgot forgotten tide tides
by_hand in_vain let_go who whoever whom nobody no.one somebody someone everybody everyone anybody
anyone he his him himself""".split()), re.I)
MAY_SAY = re.compile(r"tests/tidy/sources\.py|CONTRIBUTING\.md|CHANGELOG\.md|debian/"
                     r"|tests/gpu/(results|bench)\.md|tests/bench/traces/")


def check_vocabulary(tree):
    for name in tree.ending(".c", ".h", ".S", ".cu", ".cpp", ".md", ".py", ".sh", "meson.build") + \
            tree.scripts(b"/bin/sh") + tree.scripts(b"python3"):
        text = tree.read(name) if not MAY_SAY.match(name) else ""
        for found in OUT.finditer(text):
            yield name, "line %d: %s" % (text.count("\n", 0, found.start()) + 1, found.group())


# --- rooms ---------------------------------------------------------------------


def check_rooms(tree):
    for name in tree.ending(".c", ".h", ".S"):
        room = name.split("/")[0]
        if room not in ROOMS:
            continue
        for include in re.findall(r'#\s*include "([^"]+)"', tree.read(name)):
            path = os.path.normpath(os.path.join(os.path.dirname(name), include))
            other = path.split("/")[0]
            if other == room:
                continue
            if other not in ROOMS or ROOMS[other] > ROOMS[room]:
                yield name, "includes %s, which is not to its left" % path
            elif os.path.basename(path) not in DOORS[other]:
                yield name, "includes %s, which is not the header of that room" % path
        if room != "interpose" and re.search(r"#\s*include <cuda", tree.read(name)):
            yield name, "knows of CUDA"


# --- names ---------------------------------------------------------------------

CALL = r"(?<![\w.>])%s\("
FORBIDDEN = {
    "pool": ["getenv", "secure_getenv", "dlsym", "dlopen", "printf", "fprintf", "abort"],
    "capture": ["getenv", "secure_getenv", "dlsym", "dlopen", "printf", "fprintf", "abort"],
    "interpose": ["getenv", "printf", "fprintf", "dprintf", "system", "popen", "abort",
                  "exit", "atexit", "signal", "sigaction", "pthread_create"]}
# The threads that the library may have, one if it is asked to and one once memory is
# exported, make no CUDA call when CUDA has ended.
ALLOWED = {f"interpose/{name}.c": ["atexit"]
           for name in ("process/poller", "process/sleep", "ipc/ipc_server")}


def code_of(text):
    """Without comments and strings."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def rooms_of(tree, *endings):
    return [name for name in tree.ending(*endings) if name.split("/")[0] in ROOMS]


def twice(tree):
    """Base names that stand in two folders, and tags that two files define."""
    seen = {}
    for name in rooms_of(tree, ".c", ".h", ".S"):
        place, base = os.path.split(os.path.splitext(name)[0])
        if seen.setdefault("file " + base, place) != place:
            yield name, "%s/ has a file of that name too" % seen["file " + base]
        for tag in re.findall(r"^\s*(?:typedef )?(?:static )?((?:struct|union|enum) \w+) \{",
                              code_of(tree.read(name)), re.M):
            if seen.setdefault(tag, name) != name:
                yield name, "defines %s, and so does %s" % (tag, seen[tag])


def check_names(tree):
    yield from twice(tree)
    for name in tree.ending(".c", ".h"):
        room = name.split("/")[0]
        code = code_of(tree.read(name)) if room in ROOMS else ""
        for function in FORBIDDEN.get(room, []):
            if function not in ALLOWED.get(name, []) and re.search(CALL % function, code):
                yield name, "calls %s, which has no place in %s/" % (function, room)
        if "__attribute__((constructor" in code:
            yield name, "runs at load"


# A heading of a header that names files, up to the next heading.
SECTION = re.compile(r"^/\* --- ([^\n]*\.c\b[^\n]*)\n(.*?)(?=^/\* --- |\Z)", re.M | re.S)
DECLARED = re.compile(r"^(?!static|typedef|#)[a-z][\w \t*]*?[ *](gcp_\w+)\((?![^;]*\{)[^;{]*;", re.M)


def check_homes(tree):
    for name in rooms_of(tree, ".h"):
        if name in HOMES_YET:
            continue
        room = name.split("/")[0]
        for heading, body in SECTION.findall(tree.read(name)):
            homes = []
            for base in re.findall(r"\w+\.c\b", heading):
                found = [other for other in rooms_of(tree, ".c")
                         if other.startswith(room + "/") and other.endswith("/" + base)]
                homes += found
                if not found:
                    yield name, "has a heading for %s, which is not there" % base
            texts = [tree.read(home) for home in homes if home in tree.names]
            for function in DECLARED.findall(code_of(body)):
                pattern = r"^(?!\s)(?:[^;=\n]*[ *\n])?%s\([^;]*?\)\s*\{" % function
                if not any(re.search(pattern, text, re.M) for text in texts):
                    yield name, "declares %s under %s, which does not define it" % (
                        function, " ".join(homes))


# --- circles ---------------------------------------------------------------------

# Functions and variables that a file defines, and inline functions of headers, which
# belong to no file: a file that calls one uses what its body uses. The tables that
# symbols.h expands to are not followed: each names every hook.
DEFINED = re.compile(r"^(?!\s|typedef|#)[^\n;{}=]*?\b(gcp_\w+)\((?:[^;{}]*)\)\s*\{", re.M)
VARIABLE = re.compile(r"^(?!\s|typedef|#|extern)[^\n;{}=()]*?\b(gcp_\w+)(?:\[[^\]\n]*\])?"
                      r"(?: =|;| __attribute)", re.M)
INLINE = re.compile(r"^static inline[^;{}]*?\b(gcp_\w+)\([^;{}]*\)\s*\{(.*?)^\}", re.M | re.S)


def uses(text, inline):
    """The gcp_ names that a text uses, those of inline functions included."""
    found, new = set(), [text]
    while new:
        names = set(re.findall(r"\bgcp_\w+", new.pop())) - found
        found |= names
        new += [inline[name] for name in names if name in inline]
    return found


def arrows(tree, room):
    """file -> the files of the room that define what it uses: calls, passes or reads."""
    texts = {name: code_of(tree.read(name)) for name in rooms_of(tree, ".c")
             if name.startswith(room + "/")}
    inline = {function: body for name in rooms_of(tree, ".h") if name.startswith(room + "/")
              for function, body in INLINE.findall(code_of(tree.read(name)))}
    home = {word: name for what in (VARIABLE, DEFINED) for name, text in texts.items()
            for word in what.findall(text)}
    return {name: {home[used] for used in uses(text, inline) if home.get(used, name) != name}
            for name, text in texts.items()}


def circles(edges):
    """Groups of files each of which reaches all others."""
    reach = {name: set(edges[name]) for name in edges}
    for middle in edges:
        for name in edges:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    return {frozenset(other for other in reach[name] if name in reach[other])
            for name in edges if name in reach[name]}


def floor_of(name):
    """The place of the file's folder among those of its room."""
    room, *folders, _ = name.split("/")
    return FOLDERS[room].index(folders[0]) if folders else -1


def check_circles(tree):
    for room in ROOMS:
        edges = arrows(tree, room)
        for name, used in sorted(edges.items()):
            for other in sorted(used):
                if floor_of(other) > floor_of(name):
                    yield name, "uses %s, of a later folder" % other
        for circle in circles(edges):
            for name in sorted(circle):
                yield name, "uses %s, which come to use it" % ", ".join(
                    sorted(edges[name] & circle))


# --- what must agree -----------------------------------------------------------


OPTIONS = "docs/options.md"


def check_options(tree, program):
    table = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    rows = [line for line in tree.read(OPTIONS).split("\n") if line.startswith("| `GCPOOL_")]
    wanted = [line for line in table.split("\n") if line.startswith("| `GCPOOL_")]
    for row in wanted:
        if row not in rows:
            yield OPTIONS, "the table lacks: %s" % row
    for row in rows:
        if row not in wanted:
            yield OPTIONS, "the table has, but the library has not: %s" % row


def anchors(text):
    """The anchors of the headings of a document, as Git hosts make them."""
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def check_links(tree):
    for name in tree.ending(".md"):
        text = re.sub(r"```.*?```", "", tree.read(name), flags=re.S)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = link.partition("#")
            if "://" in link:
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if not os.path.exists(os.path.join(tree.root, path)):
                yield name, "links to %s, which is not there" % path
            elif anchor and anchor not in anchors(tree.read(path)):
                yield name, "links to %s of %s, which has no such heading" % (anchor, path)


def check_version(tree):
    meson = re.search(r"^\s*version: '([\d.]+)'", tree.read("meson.build"), re.M).group(1)
    header = tree.read("interpose/gcpool.h")
    number = ".".join(re.findall(r"GCPOOL_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)", header))
    string = re.search(r'GCPOOL_VERSION_STRING\s+"([^"]+)"', header).group(1)
    for what, version in (("numbers", number), ("string", string)):
        if version != meson:
            yield "interpose/gcpool.h", "version %s %s, but meson.build says %s" % (
                what, version, meson)
    package = re.match(r"libgcpool \(([\d.]+)\)", tree.read("debian/changelog"))
    if not package or package.group(1) != meson:
        yield "debian/changelog", "does not open with version %s" % meson
    newest = re.search(r"^## (.*) \(", tree.read("CHANGELOG.md"), re.M)
    if not newest or newest.group(1) != meson:
        yield "CHANGELOG.md", "does not open with version %s" % meson
    wheel = re.search(r"""^path = "(.*)"\npattern = "(.*)"$""",
                      tree.read("packaging/python/pyproject.toml"), re.M)
    source = os.path.normpath(os.path.join("packaging/python", wheel.group(1)))
    found = re.search(wheel.group(2), tree.read(source), re.M)
    if not found or found.group("version") != meson:
        yield "packaging/python/pyproject.toml", "does not find version %s" % meson


# --- other programs ------------------------------------------------------------


def tool_run(tree, tool, arguments, names):
    if not shutil.which(tool):
        print("no %s here" % tool)
        sys.exit(SKIP)
    done = subprocess.run([tool, *arguments, *names], cwd=tree.root, capture_output=True,
                          text=True)
    return done.returncode, (done.stdout + done.stderr).strip()


def check_format(tree):
    names = tree.ending(".c", ".h")
    version = tool_run(tree, "clang-format", ["--version"], [])[1]
    if "version %d." % CLANG_FORMAT not in version:
        print("this is %s, and other versions format otherwise" % version)
        sys.exit(SKIP)
    code, said = tool_run(tree, "clang-format", ["--dry-run", "-Werror"], names)
    if code:
        for line in sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error", said, re.M))):
            yield line, "clang-format would change it"


def check_scripts(tree):
    names = tree.scripts(b"/bin/sh") + tree.ending(".sh")
    code, said = tool_run(tree, "shellcheck", ["-x"], names)
    if code:
        yield "shellcheck", "\n" + said


def main():
    tree = Tree(sys.argv[1])
    check = globals()["check_" + sys.argv[2]]
    complaints = list(check(tree, *sys.argv[3:]))
    for name, complaint in complaints:
        print("%s: %s" % (name, complaint))
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
