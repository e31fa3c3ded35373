"""The threads that encode what the statements and compactions of this process write."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor

from acid_platform.base.cores import usable_cores
from acid_platform.storage.per_process import PerProcess


class _Threads(ThreadPoolExecutor):
    def close(self) -> None:
        self.shutdown(wait=False, cancel_futures=True)


_THREADS = PerProcess(lambda: _Threads(usable_cores(), "acid-encode"))


def encoding_threads() -> Executor | None:
    """The threads, one for each core; None with a single core, where they would only be changed
    between. All writers share them, so many statements don't take more cores than one."""
    return _THREADS.get() if usable_cores() > 1 else None
