# SPDX-License-Identifier: MIT
"""libgcpool, a caching and capture-aware allocator for unmodified CUDA programs.

The package carries the library and its launcher: `gcpool python train.py`. In a
process that was started so, the functions below ask the library what it does; in any
other they say that it is not there. Nothing here loads the library or calls CUDA, but
for gcpool.frameworks.
"""

import ctypes
import os
import re
import sys

__all__ = ["active", "host_statistics", "library_path", "loaded", "statistics", "trim",
           "version"]

PLACE = os.path.dirname(os.path.abspath(__file__))
# In the wheel; in the sources.
HEADERS = [os.path.join(PLACE, "include", "gcpool.h"),
           os.path.join(PLACE, "..", "..", "..", "interpose", "gcpool.h")]
ENOENT = 2


def library_path():
    """The path of the libgcpool.so of this package, for LD_PRELOAD."""
    path = os.path.join(PLACE, "lib", "libgcpool.so")
    if not os.path.isfile(path):
        raise FileNotFoundError("this package has no library: " + path)
    return path


# --- the library in this process ---------------------------------------------------


def _function(name):
    """A function of the library, or None where it is not loaded."""
    return getattr(ctypes.CDLL(None), name, None)


def loaded():
    """Whether libgcpool is in this process."""
    return _function("gcpool_version") is not None


def version():
    """The version of the library in this process, as "0.2.0"; None without it."""
    function = _function("gcpool_version")
    if function is None:
        return None
    number = function()
    return "%d.%d.%d" % (number // 10000, number // 100 % 100, number % 100)


def active():
    """Whether allocations of this process are served from the pool."""
    function = _function("gcpool_active")
    return function is not None and function() == 1


def _needed(name):
    function = _function(name)
    if function is None:
        raise RuntimeError("libgcpool is not in this process: start it with gcpool")
    return function


def statistics(device=0):
    """The statistics of one device as a dictionary, with the names of gcpool.h; None
    if nothing was allocated on it. RuntimeError without the library."""
    return filled_statistics(_needed("gcpool_get_stats"), device)


def filled_statistics(function, device):
    """What gcpool_get_stats of a library says, as a dictionary."""
    stats = _structures()["gcpool_stats"]()
    return _filled(function(int(device), ctypes.byref(stats),
                            ctypes.c_size_t(ctypes.sizeof(stats))), stats)


def host_statistics():
    """The same of pinned memory; None if none was allocated, or it is not pooled."""
    stats = _structures()["gcpool_host_stats"]()
    function = _needed("gcpool_get_host_stats")
    return _filled(function(ctypes.byref(stats), ctypes.c_size_t(ctypes.sizeof(stats))),
                   stats)


def _filled(result, stats):
    if result == -ENOENT:
        return None
    if result:
        raise OSError(-result, os.strerror(-result))
    return _dictionary(stats)


def trim(device=0, keep=0):
    """Gives unused memory of a device back to the driver until at most `keep` bytes
    stay; the bytes given back."""
    function = _needed("gcpool_trim")
    function.restype = ctypes.c_uint64
    return function(int(device), ctypes.c_uint64(keep))


# --- the structures of gcpool.h ------------------------------------------------------

_known = {}


def _structures():
    """The structures of statistics, read from the header: it is their one list."""
    if not _known:
        header = next(path for path in HEADERS if os.path.isfile(path))
        with open(header) as file:
            text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
        for name, body in re.findall(r"\bstruct (\w+) \{(.*?)\};", text, re.S):
            _known[name] = type(name, (ctypes.Structure,), {"_fields_": list(_fields(body))})
    return _known


def _fields(body):
    for declaration in filter(str.strip, body.split(";")):
        kind, names = re.match(r"\s*(?:struct\s+)?(\w+)\s+(.*)", declaration, re.S).groups()
        for name in names.split(","):
            name, count = re.match(r"\s*(\w+)(?:\[(\d+)\])?\s*$", name).groups()
            field = ctypes.c_uint64 if kind == "uint64_t" else _known[kind]
            yield name, field * int(count) if count else field


def _dictionary(value):
    if isinstance(value, ctypes.Structure):
        return {name: _dictionary(getattr(value, name)) for name, _ in value._fields_}
    return list(value) if isinstance(value, ctypes.Array) else value


# --- the commands ----------------------------------------------------------------------


def launch():
    """The command gcpool."""
    os.execv("/bin/sh", ["gcpool", os.path.join(PLACE, "bin", "gcpool"), *sys.argv[1:]])


def compare():
    """The command gcpool-compare."""
    _script("gcpool-compare")


def trace():
    """The command gcpool-trace."""
    _script("gcpool-trace")


def _script(name):
    script = os.path.join(PLACE, "bin", name)
    os.execv(sys.executable, [sys.executable, script, *sys.argv[1:]])
