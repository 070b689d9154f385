# SPDX-License-Identifier: MIT
"""Puts the installed tree into the wheel, and the platform into its name.

GCPOOL_TREE: the prefix into which meson has installed, with bin/, lib/ and include/.
GCPOOL_PLATFORM: linux_x86_64 or the like."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What the wheel has of the tree, in its own directory. The manual goes where `man` looks
# for it beside the directory of the commands.
PARTS = ["bin", "lib/libgcpool.so", "lib/libgcpool-handles.so", "lib/libgcpool-observe.so",
         "lib/gcpool/gcpool_trace", "include/gcpool.h", "share/doc/gcpool/COPYING"]
MANUAL = "share/man"


class TreeHook(BuildHookInterface):
    def initialize(self, version, build_data):
        tree = os.environ.get("GCPOOL_TREE")
        if not tree:
            raise SystemExit("the wheel is built by packaging/wheel")
        for part in PARTS:
            place = "COPYING" if part.endswith("COPYING") else part
            build_data["force_include"][os.path.join(tree, part)] = "gcpool/" + place
        build_data["force_include"]["gcpool-info"] = "gcpool/lib/gcpool/gcpool-info"
        build_data["shared_data"][os.path.join(tree, MANUAL)] = MANUAL
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + os.environ["GCPOOL_PLATFORM"]
