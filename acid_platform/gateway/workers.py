"""Threads that answer calls: in turn for each user, and no more than a share of them for one."""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

Work = Callable[[], None]
_LOG = logging.getLogger(__name__)


class Workers:
    """Runs work in threads. A thread keeps its connection to the metastore between two works.

    Users take turns, so that one with a thousand calls delays another by one call each (P76).
    """

    def __init__(self, most: int, share: int = 0, leave: Callable[[], None] = lambda: None) -> None:
        """`share`: how many threads the work of one user may have at a time; 0 for all.

        `leave` is called in each thread when it ends.
        """
        self._most, self._share, self._leave = most, share or most, leave
        self._condition = threading.Condition()
        self._waiting: OrderedDict[str, deque[Work]] = OrderedDict()
        """The work of each user that no thread has begun; whose turn is next comes first."""
        self._running: Counter[str] = Counter()
        self._idle = self._threads = 0
        self._closed = False

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def waiting(self) -> int:
        """The works that no thread has begun."""
        return sum(map(len, [*self._waiting.values()]))

    def waiting_of(self, user: str) -> int:
        return len(self._waiting.get(user, ()))

    def submit(self, work: Work, user: str = "") -> None:
        """What `work` raises is logged."""
        with self._condition:
            queue = self._waiting.setdefault(user, deque())
            queue.append(work)
            if self._running[user] + len(queue) > self._share:
                return  # a thread of this user's work takes it
            if self._idle >= self.waiting or self._threads >= self._most:
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
        while (turn := self._next()) is not None:
            user, work = turn
            try:
                work()
            except Exception:
                _LOG.exception("a thread's work failed")
            finally:
                self._done(user)
        self._leave()

    def _next(self) -> tuple[str, Work] | None:
        """The work of the user whose turn it is; None if there will be none."""
        with self._condition:
            self._idle += 1
            while not self._closed:
                for user, queue in self._waiting.items():
                    if self._running[user] < self._share:
                        self._idle -= 1
                        self._running[user] += 1
                        work = queue.popleft()
                        if queue:
                            self._waiting.move_to_end(user)
                        else:
                            del self._waiting[user]
                        return user, work
                self._condition.wait()
            self._idle -= 1
            return None

    def _done(self, user: str) -> None:
        with self._condition:
            self._running[user] -= 1
            if self._running[user] <= 0:
                del self._running[user]
