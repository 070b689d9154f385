# SPDX-License-Identifier: MIT
"""gcpool.frameworks under modules that stand for CuPy and RMM: which streams the pool is
told; and which library it takes. GCPT_SOURCES and GCPT_LIBRARY are handed over by the
build; no device is used."""

import gc
import os
import subprocess
import sys
import tempfile
import types
import unittest
import weakref

sys.path.insert(0, os.path.join(os.environ["GCPT_SOURCES"], "packaging", "python"))

from gcpool import frameworks  # noqa: E402


class Stream:
    """A stream of CuPy: its handle ends with it."""

    def __init__(self, ptr):
        self.ptr = ptr


class Calls:
    """Stands for the pool and notes what it is told."""

    def __init__(self, path=None):
        self.calls = []
        Calls.latest = self

    def malloc(self, size, device, stream):
        if size > 1 << 40:
            raise MemoryError
        self.calls.append(("malloc", size, device, stream))
        return 0x1000 * len(self.calls)

    def free(self, pointer, stream):
        self.calls.append(("free", pointer, stream))


def module(name, **names):
    made = types.ModuleType(name)
    made.__dict__.update(names)
    sys.modules[name] = made
    return made


def cupy_now(current):
    """A CuPy whose current stream is current[0]."""
    class OutOfMemoryError(MemoryError):
        def __init__(self, size, total, limit):
            super().__init__(size)

    class PythonFunctionAllocator:
        def __init__(self, malloc, free):
            self.malloc, self.free = malloc, free

    cuda = types.SimpleNamespace(
        get_current_stream=lambda: current[0], set_allocator=lambda malloc: None,
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        PythonFunctionAllocator=PythonFunctionAllocator)
    return module("cupy", cuda=cuda)


def rmm_with(stream):
    """An RMM with this class of streams."""
    chosen = {}
    resource = types.SimpleNamespace(
        CallbackMemoryResource=lambda malloc, free: (malloc, free),
        set_per_device_resource=chosen.__setitem__)
    module("rmm.pylibrmm", stream=types.SimpleNamespace(Stream=stream))
    module("rmm", mr=resource, __version__="25.10.00")
    return chosen


class Chosen(unittest.TestCase):
    def setUp(self):
        self.pool, frameworks.Pool = frameworks.Pool, Calls

    def tearDown(self):
        frameworks.Pool = self.pool
        for name in ("cupy", "rmm", "rmm.pylibrmm"):
            sys.modules.pop(name, None)

    def test_cupy_frees_in_the_stream_of_the_allocation_which_lives_so_long(self):
        current = [Stream(7)]
        cupy_now(current)
        allocator = frameworks.use_in_cupy()
        pointer = allocator.malloc(512, 1)
        used = weakref.ref(current[0])
        current[0] = Stream(8)
        gc.collect()
        self.assertIsNotNone(used(), "a handle of a stream that ended would be named")
        allocator.free(pointer, 1)
        self.assertEqual(Calls.latest.calls, [("malloc", 512, 1, 7), ("free", pointer, 7)])
        gc.collect()
        self.assertIsNone(used(), "the stream must end with its last block")

    def test_cupy_is_told_that_memory_is_out(self):
        cupy = cupy_now([Stream(0)])
        with self.assertRaises(cupy.cuda.memory.OutOfMemoryError):
            frameworks.use_in_cupy().malloc(1 << 50, 0)

    def test_rmm_names_its_streams(self):
        class Told(Stream):
            def __cuda_stream__(self):
                return 0, self.ptr

        chosen = rmm_with(Told)
        frameworks.use_in_rmm(device=1)
        malloc, free = chosen[1]
        pointer = malloc(512, Told(7))
        free(pointer, 512, Told(8))
        self.assertEqual(Calls.latest.calls, [("malloc", 512, 1, 7), ("free", pointer, 8)])

    def test_an_rmm_that_does_not_tell_its_streams_is_refused(self):
        chosen = rmm_with(Stream)
        with self.assertRaisesRegex(RuntimeError, "RMM 25.10.00 does not tell its streams"):
            frameworks.use_in_rmm()
        self.assertEqual(chosen, {})


# In a process of its own, for a library that is loaded stays: prints what it takes.
TAKES = """
import ctypes, mmap, os, shutil, sys
from gcpool import frameworks
library, directory = sys.argv[1:3]
def of(name):
    return os.path.join(directory, name)
def mapped(name):
    with open(of(name), "wb+") as file:
        file.write(b"GCPTRACE" * 512)
        file.flush()
        return mmap.mmap(file.fileno(), 0)
def loaded(name):
    shutil.copy(library, of(name))
    return ctypes.CDLL(of(name))
"""


class Taken(unittest.TestCase):
    """The library that is in the process, and no file that is called like it."""

    def takes(self, words, **extra):
        library = os.environ["GCPT_LIBRARY"]
        with tempfile.TemporaryDirectory() as directory:
            env = {**os.environ, "PYTHONPATH": sys.path[0], "LIBGCPOOL_PATH": "/named", **extra}
            done = subprocess.run(
                [sys.executable, "-c", TAKES + words + "\nprint(frameworks.path_of_library())",
                 library, directory], env=env, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout.strip().replace(directory + "/", "")

    def test_a_recording_is_no_library(self):
        self.assertEqual(self.takes('kept = mapped("libgcpool.1.trace")'), "/named")

    def test_the_preloaded_one_comes_first(self):
        library = os.environ["GCPT_LIBRARY"]
        self.assertEqual(os.path.realpath(self.takes(
            'loaded("libgcpool-mine.so")', LD_PRELOAD=library)), os.path.realpath(library))


if __name__ == "__main__":
    unittest.main(verbosity=2)
