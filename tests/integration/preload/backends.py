#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""backends.py TEARDOWN

How the library gets memory beside libraries that let a device write by itself:
GCPOOL_BACKEND=auto maps what no such library can be given, takes ordinary segments from
the moment that one is loaded, and says which and why; the others do as they are told.
And what else keeps memory from being mapped: which sentence says it."""

import json
import os
import sys
import tempfile

import preload

MAPPED = "device 0: memory is mapped by the library"
ORDINARY = "a library for RDMA or storage is loaded"


# Why memory is not mapped, in words; what brings that about; whether it holds with
# GCPOOL_BACKEND=vmm, too.
OBSTACLES = (
    ("device 0 has no virtual memory management, using ordinary segments there",
     {"GCPSIM_VMM": "0"}, True),
    ("device 0 does not say how its memory can be mapped, using ordinary segments there",
     {"GCPSIM_FAIL": "cuMemGetAllocationGranularity:1+:801"}, True),
    ("device 0 cannot be reached by all other devices of the process, using ordinary segments",
     {"GCPSIM_DEVICES": "2", "GCPSIM_FAIL": "cuDeviceCanAccessPeer:1+:801"}, False))


def mapped_bytes(program, scenario, backend, checks, extra=None):
    """The bytes mapped at the end, and what the library said."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "stats")
        options = {"GCPOOL_BACKEND": backend, "GCPOOL_LOG": "info", "GCPOOL_STATS": "json",
                   "GCPOOL_STATS_FILE": path, **(extra or {})}
        result = preload.run([program, scenario], preload.library(), options)
        name = f"{scenario}, {backend}"
        checks.that(result.code == 0, f"{name}: exit code {result.code}\n{result.err}")
        checks.clean(result, name)
        with open(path) as file:
            device = json.load(file)["devices"][0]
    print(f"{name}: {device['mapped_bytes']} bytes mapped\n{result.err}")
    return device["mapped_bytes"], device["reserved_bytes"]["current"], result.err


def obstacles_are_named(program, scenario, checks):
    for sentence, extra, always in OBSTACLES:
        for backend in ("auto", "vmm"):
            keeps = always or backend == "auto"
            found, held, said = mapped_bytes(program, scenario, backend, checks, extra)
            name = f"{extra}, {backend}"
            checks.equal(f"{name}: mapped", not keeps, found > 0)
            checks.equal(f"{name}: held", True, held > 0)
            checks.equal(f"{name}: says why", int(keeps), said.count(sentence))
            checks.equal(f"{name}: says that it is mapped", not keeps, MAPPED in said)


def main():
    program, checks = sys.argv[1], preload.Checks()
    read_by_host, card, storage, later = (
        "storage_that_is_read_through_the_host", "network_card_of_a_bundled_library",
        "storage_that_writes_by_itself", "network_card_loaded_later")

    for scenario, backend, mapped, ordinary in (
            (read_by_host, "auto", True, False), (card, "auto", False, True),
            (storage, "auto", False, True), (later, "auto", True, True),
            (card, "vmm", True, False), (read_by_host, "segments", False, False)):
        found, held, said = mapped_bytes(program, scenario, backend, checks)
        name = f"{scenario}, {backend}"
        checks.equal(f"{name}: mapped", mapped, found > 0)
        checks.equal(f"{name}: says why", ordinary, ORDINARY in said)
        checks.that(said.count(ORDINARY) <= 1, f"{name}: says it twice")
        checks.that(backend != "auto" or not mapped or MAPPED in said,
                    f"{name}: does not say that memory is mapped")
        if scenario == later:
            checks.equal(f"{name}: ordinary, too", True, held > found)
    obstacles_are_named(program, read_by_host, checks)
    checks.end()


if __name__ == "__main__":
    main()
