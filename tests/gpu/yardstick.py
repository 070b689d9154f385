# SPDX-License-Identifier: MIT
"""How much memory a workload takes from the device, with any allocator. Used by
the programs that scripts/gpu-check runs for the table of frameworks.

The device as NVML sees it is the same yardstick for all; it counts contexts and
loaded kernels too, so a Meter counts from where it begins. The library's own
figures come through gcpool.h, if it is preloaded."""

import ctypes


class Gauge(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "allocated", "freed")]


class Stats(ctypes.Structure):
    """The beginning of struct gcpool_stats."""

    _fields_ = [(name, Gauge) for name in (
        "allocation", "segment", "requested_bytes", "allocated_bytes", "active_bytes",
        "reserved_bytes", "private_bytes")]


class HostStats(ctypes.Structure):
    """The beginning of struct gcpool_host_stats."""

    _fields_ = [(name, Gauge) for name in ("allocations", "allocated_bytes")]


class Library:
    """The preloaded library; false if there is none."""

    def __init__(self):
        everything = ctypes.CDLL(None)
        self.get_stats = getattr(everything, "gcpool_get_stats", None)
        self.get_host_stats = getattr(everything, "gcpool_get_host_stats", None)
        self.reset_peaks = getattr(everything, "gcpool_reset_peaks", None)
        self.gcpool_trim = getattr(everything, "gcpool_trim", None)

    def __bool__(self):
        return self.get_stats is not None

    def trim(self):
        """Gives back what is cached and starts the peaks anew."""
        self.gcpool_trim(0, ctypes.c_uint64(0))
        self.reset_peaks(0)

    def stats(self):
        stats = Stats()
        self.get_stats(0, ctypes.byref(stats), ctypes.c_size_t(ctypes.sizeof(stats)))
        return stats

    def reserved_peak(self):
        return self.stats().reserved_bytes.peak

    def host_peak(self):
        """Pinned memory that the driver has given it, at most; 0: none, or no library."""
        stats = HostStats()
        if self:
            self.get_host_stats(ctypes.byref(stats), ctypes.c_size_t(ctypes.sizeof(stats)))
        return stats.allocated_bytes.peak

    def allocated_peak(self):
        return self.stats().allocated_bytes.peak


class Meter:
    """The most memory that the device had in use at a sample, beyond the start."""

    def __init__(self):
        import pynvml

        pynvml.nvmlInit()
        self.nvml, self.device = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        self.start = self.peak = self.used()

    def used(self):
        return self.nvml.nvmlDeviceGetMemoryInfo(self.device).used

    def sample(self):
        self.peak = max(self.peak, self.used())

    def most(self):
        return self.peak - self.start
