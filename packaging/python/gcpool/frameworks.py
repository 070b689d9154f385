# SPDX-License-Identifier: MIT
"""Lets PyTorch, CuPy and RMM allocate from libgcpool in the order of their streams, in a
program that was started with gcpool:

    from gcpool import frameworks
    frameworks.use_in_torch()      # before the first CUDA tensor
    frameworks.use_in_cupy()
    frameworks.use_in_rmm()

All of them use the pool that serves the rest of the program (gcpool.h, section 6).
Without a preload the library calls CUDA, and says so once.
"""

import ctypes
import os
import sys

from . import filled_statistics, library_path

OUT_OF_MEMORY = 2
GONE = " (deleted)"  # how the kernel marks such a file


def path_of_library():
    """The libgcpool.so that is in this process, whatever it is called there if it is
    preloaded; else the one that the environment names (LIBGCPOOL_PATH); else that of this
    package."""
    preloaded = getattr(ctypes.CDLL(None), "gcpool_malloc", None)
    address = ctypes.cast(preloaded, ctypes.c_void_p).value if preloaded else 0
    found = []
    for start, end, path in _mapped():
        if start <= address < end:
            found.insert(0, path)
        elif os.path.basename(path).startswith("libgcpool"):
            found.append(path)
    # A recording, or a library of another's, may be called like it.
    return next(filter(_is_loaded, found), None) or os.environ.get(
        "LIBGCPOOL_PATH") or library_path()


def _mapped():
    """Start, end and path of what is mapped from files."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            words = line.rstrip("\n").split(None, 5)
            if len(words) == 6 and words[5].startswith("/"):
                start, end = (int(word, 16) for word in words[0].split("-"))
                # The loader knows a file that was replaced by the name it had.
                path = words[5]
                yield start, end, path[:-len(GONE)] if path.endswith(GONE) else path


def _is_loaded(path):
    """Whether that is a libgcpool.so which is in this process; loads nothing."""
    try:
        library = ctypes.CDLL(path, os.RTLD_LAZY | os.RTLD_NOLOAD)
    except OSError:
        return False
    return hasattr(library, "gcpool_malloc")


class Pool:
    """The library's functions for frameworks. Streams are handles as numbers."""

    def __init__(self, path=None):
        self.path = path or path_of_library()
        self.library = library = ctypes.CDLL(self.path)
        library.gcpool_malloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t,
                                          ctypes.c_int, ctypes.c_void_p]
        library.gcpool_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.gcpool_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def malloc(self, size, device, stream):
        """The address of a new block, for use in `stream`. MemoryError, RuntimeError."""
        pointer = ctypes.c_void_p()
        error = self.library.gcpool_malloc(ctypes.byref(pointer), size, device, stream)
        if error == OUT_OF_MEMORY:
            raise MemoryError("no %d bytes on device %d" % (size, device))
        _check("gcpool_malloc", error)
        return pointer.value or 0

    def free(self, pointer, stream):
        """Frees a block behind what `stream` was given so far."""
        _check("gcpool_free", self.library.gcpool_free(pointer, stream))

    def record_stream(self, pointer, stream):
        """The block is also used by work in `stream`."""
        _check("gcpool_record_stream", self.library.gcpool_record_stream(pointer, stream))


def statistics(device=0, path=None):
    """gcpool.statistics, of a library that may only be loaded."""
    return filled_statistics(Pool(path).library.gcpool_get_stats, device)


def trim(device=0, keep=0, path=None):
    """gcpool.trim, of a library that may only be loaded: what torch.cuda.empty_cache is
    for PyTorch's own cache. May wait for the device."""
    function = Pool(path).library.gcpool_trim
    function.restype = ctypes.c_uint64
    return function(int(device), ctypes.c_uint64(keep))


def _check(call, error):
    if error:
        raise RuntimeError("%s gives CUDA error %d" % (call, error))


def use_in_torch(path=None):
    """PyTorch allocates from the pool. To be called before its first CUDA tensor."""
    from torch.cuda import memory

    path = path or path_of_library()
    allocator = memory.CUDAPluggableAllocator(path, "gcpool_torch_malloc",
                                              "gcpool_torch_free")
    record = ctypes.cast(ctypes.CDLL(path).gcpool_record_stream, ctypes.c_void_p)
    allocator.allocator().set_record_stream_fn(record.value)
    memory.change_current_allocator(allocator)
    return allocator


def use_in_cupy(path=None):
    """CuPy allocates from the pool; as its own pool does, it frees a block in the stream
    in which it was allocated."""
    import cupy

    pool, streams = Pool(path), {}

    def malloc(size, device):
        stream = cupy.cuda.get_current_stream()
        try:
            pointer = pool.malloc(size, device, stream.ptr)
        except MemoryError:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0) from None
        streams[pointer] = stream  # not its handle: the free needs a stream that lives
        return pointer

    def free(pointer, device):
        stream = streams.pop(pointer)
        if not sys.is_finalizing():  # the device may be gone by then
            pool.free(pointer, stream.ptr)

    allocator = cupy.cuda.PythonFunctionAllocator(malloc, free)
    cupy.cuda.set_allocator(allocator.malloc)
    return allocator


def _handle(stream):
    """The handle of a stream of RMM, which is (version of the protocol, handle)."""
    return stream.__cuda_stream__()[1]


def use_in_rmm(path=None, device=0):
    """RMM's resource of the device takes from the pool. RuntimeError: this RMM (before
    25.12) does not say in which stream a block is freed, so reuse would not be safe."""
    import rmm
    from rmm.pylibrmm import stream as streams

    if not hasattr(streams.Stream, "__cuda_stream__"):
        raise RuntimeError("RMM %s does not tell its streams: 25.12 or newer is needed" %
                           rmm.__version__)
    pool = Pool(path)
    resource = rmm.mr.CallbackMemoryResource(
        lambda size, stream: pool.malloc(size, device, _handle(stream)),
        lambda pointer, size, stream: pool.free(pointer, _handle(stream)))
    rmm.mr.set_per_device_resource(device, resource)
    return resource
