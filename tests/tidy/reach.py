# SPDX-License-Identifier: MIT
"""How much code a call can reach, for budgets.py --reach: which functions of the three rooms a
static walk over direct calls finds from one. Compiles every file of the library once with
gcc -fcallgraph-info, at -O0, so that nothing is inlined away; calls through pointers are not
followed. CUDA_HOME names the CUDA Toolkit (default /usr/local/cuda)."""

import os
import re
import subprocess
import sys
import tempfile

ROOMS = ("pool", "capture", "interpose")


def sources(root):
    for room in ROOMS:
        for place, _, names in os.walk(os.path.join(root, room)):
            for name in sorted(names):
                if name.endswith(".c"):
                    yield os.path.join(place, name)


def compiled(root, path, out):
    cuda = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
    obj = os.path.join(out, path.replace("/", "_") + ".o")
    subprocess.run(
        ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O0", "-w", "-fcallgraph-info", "-isystem", cuda,
         "-iquote", os.path.dirname(path), "-I", root, "-I", out, "-c", path, "-o", obj],
        check=True, cwd=out)
    return obj[:-2] + ".ci"


def graph(root):
    """edges: function -> functions; home: function -> file. A static function is named
    with its file."""
    edges, home, once = {}, {}, {}  # once: a function of a header is one, in all files
    with tempfile.TemporaryDirectory() as out:
        tables = os.path.join(root, "interpose", "cuda", "symbols.")
        with open(os.path.join(out, "symbols_table.h"), "w", encoding="ascii") as header:
            subprocess.run([sys.executable, tables + "py", tables + "list"], stdout=header, check=True)
        for path in sources(root):
            with open(compiled(root, path, out), encoding="utf-8", errors="replace") as file:
                text = file.read()
            base = os.path.relpath(path, root)
            for name, label in re.findall(r'node: \{ title: "([^"]+)" label: "([^"]*)"', text):
                if "shape : ellipse" not in text[text.find('"%s"' % name):][:400].split("}")[0]:
                    once[name] = re.sub(r"^.*:", "", name) if ".h:" in label else name
                    home[once[name]] = "" if ".h:" in label else base
            for source, target in re.findall(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', text):
                edges.setdefault(once.get(source, source), set()).add(once.get(target, target))
    return edges, home


def reached(edges, home, start):
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name in seen or name not in home:
            continue
        seen.add(name)
        todo.extend(edges.get(name, ()))
    return seen
