# SPDX-License-Identifier: MIT
"""Names of code that is made at run time: CPython from 3.12 on writes functions of the program
into /tmp/perf-PID.map (PYTHONPERFSUPPORT=1), other runtimes do the same."""

import bisect
import os
import socket
import stat

BESIDE = ".map"  # behind the name of the recording: what `gcpool record` has kept


def lines(path, since_ns=0):
    """(start, end, name) of each function; nothing, if others may have written the file, as all
    users may in /tmp."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
            return
        if about.st_mtime_ns < since_ns:  # of an earlier process with this number
            return
        for line in file:
            start, _, rest = line.rstrip("\n").partition(" ")
            size, _, name = rest.partition(" ")
            try:
                yield int(start, 16), int(start, 16) + int(size, 16), name
            except ValueError:
                continue


def of_process(recording):
    return f"/tmp/perf-{recording.pid}.map" if recording.host == socket.gethostname() else ""


def keep(recording):
    """Puts what the stacks of a recording need beside it, and takes the map away from /tmp."""
    made, path = PerfMap(recording), of_process(recording)
    used = {made.row(address - 1) for frames in recording.stacks.values() for address in frames} - {None}
    if used:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(recording.path + BESIDE, flags, 0o600), "w", encoding="utf-8") as file:
            file.writelines(f"{start:x} {end - start:x} {name}\n" for start, end, name in sorted(used))
    if path and any(True for _ in lines(path, recording.process_start_ns)):
        os.unlink(path)


class PerfMap:
    """row(address): (start, end, name) of the function that has it, or None. A later line replaces
    an earlier one."""

    def __init__(self, recording):
        rows = list(lines(recording.path + BESIDE))
        path = of_process(recording)
        rows = rows or (list(lines(path, recording.process_start_ns)) if path else [])
        self.rows = sorted({start: (start, end, name) for start, end, name in rows}.values())
        self.starts = [start for start, _, _ in self.rows]

    def row(self, address):
        at = bisect.bisect_right(self.starts, address) - 1
        return self.rows[at] if at >= 0 and address < self.rows[at][1] else None
