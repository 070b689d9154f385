#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""dump.py PROGRAM

What gcpool_graph_dump writes of graph pools in known states is right: read as JSON, and
accepted by Graphviz where it is; and the nodes and edges of graphs, one by one."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import preload


def blocks_of(pool):
    return [block for heap in pool["heaps"] for segment in heap["segments"]
            for block in segment["blocks"]]


def gaps(pool):
    """Segments whose blocks do not follow each other from start to end."""
    found = 0
    for segment in (segment for heap in pool["heaps"] for segment in heap["segments"]):
        at = int(segment["address"], 16)
        end = at + segment["size"]
        for block in segment["blocks"]:
            found += int(block["address"], 16) != at
            at += block["size"]
        found += at > end
    return found


def check_pool(checks, pool, held):
    blocks = blocks_of(pool)
    mine = [block for block in blocks if block["state"] == "held"]
    checks.that(held in [int(block["address"], 16) for block in mine], f"{held:x} is held")
    checks.that(sum(block["size"] for block in mine) == pool["allocated_bytes"], "held bytes")
    checks.that([block["requested"] for block in mine] == [3 << 20], "bytes asked for")
    checks.that(any(block["state"] != "held" and block["free_group"] >= 1
                    for block in blocks), "a freed block is told")
    checks.that(gaps(pool) == 0, "blocks without gaps")
    checks.that(pool["references"]["graphs"] == 2, "a graph, and what was made of it")


NODES = {"nodes": 3, "edges": 2, "types": {"memset": 2, "memcpy": 1},
         "node_list": ["memset", "memset", "memcpy"], "edge_list": [[0, 1], [1, 2]]}


def check_graphs(checks, pool, kinds):
    """What was made of a graph has its nodes."""
    graphs = sorted(pool["graphs"], key=lambda graph: graph["kind"], reverse=True)
    checks.equal("graphs", [{"kind": kind, **NODES} for kind in kinds], graphs)


DIAMOND = ["memset", "memcpy", "host", "memset"]
MOST = 65536  # nodes and edges of a graph that are kept


def wanted_of(kind, line):
    """The nodes of the program's graph, and its edges."""
    nodes = DIAMOND * (kind == "forked") + [("memset", "memcpy")[i % 2] for i in range(line)]
    edges = [[0, 1], [0, 2], [1, 3], [2, 3]] * (kind == "forked")
    first = 4 if kind == "forked" else 1
    return nodes, edges + [[i - 1, i] for i in range(first, len(nodes))]


def json_nodes(checks, name, file, nodes, edges, kept):
    pools = json.load(file)["graph_pools"]
    graph, = [graph for pool in pools for graph in pool["graphs"]]
    checks.equal(name, [len(nodes), len(edges), "executable"],
                 [graph["nodes"], graph["edges"], graph["kind"]])
    checks.that(graph.get("nodes_left_out", False) is not kept, f"{name}: left out")
    checks.that(("node_list" in graph) is kept and ("edge_list" in graph) is kept,
                f"{name}: lists")
    if kept:
        checks.that(graph["node_list"] == nodes, f"{name}: other nodes")
        checks.that(sorted(graph["edge_list"]) == sorted(edges), f"{name}: other edges")


def dot_nodes(checks, name, file, nodes, edges, kept):
    text = file.read()
    found = re.findall(r'^  g\d+_n(\d+) \[label="\1 (\w+)"\];$', text, re.M)
    checks.that(found == [(str(i), node) for i, node in enumerate(nodes)] * kept,
                f"{name}: other nodes")
    found = re.findall(r"^  g(\d+)_n(\d+) -> g\1_n(\d+);$", text, re.M)
    checks.that(sorted([int(a), int(b)] for _, a, b in found) == sorted(edges * kept),
                f"{name}: other edges")
    checks.that(text.count("nodes left out") == (not kept), f"{name}: left out")
    checks.that(text.count("{") == text.count("}"), f"{name}: braces")
    if shutil.which("dot") and len(nodes) < 100:
        done = subprocess.run(["dot", "-Tsvg", "-o/dev/null", file.name])
        checks.that(done.returncode == 0, f"{name}: Graphviz takes it")


def check_nodes(checks, program):
    """Each node and edge of a linear and a forked graph, of the largest of which they are
    kept, of a larger one, of an older driver, and where the driver does not tell the edges."""
    most = (MOST - 8) // 2  # behind the diamond's four nodes and four edges
    old = {"GCPSIM_DRIVER_VERSION": "12020", "GCPSIM_HIDE": "cuGraphGetEdges_v2"}
    silent = {"GCPSIM_FAIL": "cuGraphGetEdges_v2:2:999"}
    for kind, line, kept, extra in (
            ("linear", 5, True, {}), ("forked", 2, True, {}), ("forked", most, True, {}),
            ("forked", most + 1, False, {}), ("forked", 2, True, old),
            ("forked", 2, False, silent)):
        nodes, edges = wanted_of(kind, line)
        for file_name, check in (("nodes.json", json_nodes), ("nodes.dot", dot_nodes)):
            name = f"{file_name}, {kind}, {len(nodes)} nodes, {extra}"
            result = preload.run([program, file_name, kind, str(line)], preload.library(),
                                 extra)
            checks.that(result.code == 0, f"{name}: {result.code} {result.out}{result.err}")
            with open(file_name) as file:
                check(checks, name, file, nodes, edges, kept)


def main():
    checks, program = preload.Checks(), os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name in ("dump.json", "dump.dot"):
            result = preload.run([program, name], preload.library())
            print(result.out + result.err)
            checks.that(result.code == 0, f"{name}: exit code {result.code}")
            if os.path.islink("full.json"):
                os.unlink("full.json")
            held = [int(word, 16) for word in re.findall(r"held (\w+)", result.out)]
            if name.endswith(".json"):
                with open(name) as file:
                    found = json.load(file)["graph_pools"]
                sizes = [block["size"] for pool in found for block in blocks_of(pool)]
                checks.that(1024 in sizes, f"small blocks one by one: {sorted(set(sizes))}")
                pools = [pool for pool in found if pool["allocated_bytes"] > 1 << 20]
                checks.that([pool["named"] for pool in pools] == [False, True], "two pools")
                for pool, address in zip(pools, held):
                    check_pool(checks, pool, address)
                checks.that(pools[1]["references"]["program"] == 1, "the program's pool")
                check_graphs(checks, pools[0], ["graph", "executable"])
                check_graphs(checks, pools[1], ["graph", "graph"])
            else:
                with open(name) as file:
                    text = file.read()
                checks.that(all(f"0x{address:x} held" in text for address in held), "blocks")
                checks.that(text.count("3 nodes, 2 edges\\nmemcpy: 1\\nmemset: 2") == 6, "nodes")
                checks.that(text.count("{") == text.count("}"), "braces")
                if shutil.which("dot"):
                    done = subprocess.run(["dot", "-Tsvg", "-o/dev/null", name])
                    checks.that(done.returncode == 0, "Graphviz takes it")
        check_nodes(checks, program)
    checks.end()


if __name__ == "__main__":
    main()
