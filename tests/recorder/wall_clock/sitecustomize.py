"""Shifts the wall clock of each Python process that has this directory on its PYTHONPATH.

`ACID_TEST_CLOCK` names a file with the milliseconds, as two integers of 8 bytes: for
metastores, and for other processes. Whoever writes there sets the clocks of processes that run.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time

PATH = os.environ["ACID_TEST_CLOCK"]
WHICH = 1 - any("metastore" in word for word in sys.orig_argv)

with open(PATH, "rb") as file:
    shifts = mmap.mmap(file.fileno(), 16, access=mmap.ACCESS_READ)

true_ns = time.time_ns


def time_ns() -> int:
    (milliseconds,) = struct.unpack_from("<q", shifts, 8 * WHICH)
    return true_ns() + int(milliseconds) * 1_000_000


time.time_ns = time_ns
time.time = lambda: time_ns() / 1e9
