"""The threads that answer calls: as many as are needed, up to a limit."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

_LOG = logging.getLogger(__name__)
Work = Callable[[], None]


class Workers:
    """Runs work in threads. A thread keeps its connection to the metastore between two works."""

    def __init__(self, most: int, leave: Callable[[], None] = lambda: None) -> None:
        """`leave` is called in each thread when it ends."""
        self._most, self._leave = most, leave
        self._condition = threading.Condition()
        self._waiting: deque[Work] = deque()
        self._idle = self._threads = 0
        self._closed = False

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def waiting(self) -> int:
        """The works that no thread has begun."""
        return len(self._waiting)

    def submit(self, work: Work) -> None:
        """What `work` raises is logged."""
        with self._condition:
            self._waiting.append(work)
            if self._idle >= len(self._waiting) or self._threads >= self._most:
                self._condition.notify()
                return
            self._threads += 1
            number = self._threads
        # Daemons: a call that hangs must not keep the process from ending.
        threading.Thread(target=self._run, daemon=True, name=f"gateway-{number}").start()

    def close(self) -> None:
        """What waits is forgotten; threads end after the work that they do."""
        with self._condition:
            self._closed = True
            self._waiting.clear()
            self._condition.notify_all()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:
                _LOG.exception("a thread's work failed")
        self._leave()

    def _next(self) -> Work | None:
        with self._condition:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._condition.wait()
            self._idle -= 1
            return None if self._closed else self._waiting.popleft()
