"""The metastore process: one thread that owns the state and the file (P1, P2, P7).

Each round takes all requests that have arrived. Requests that record nothing are answered at once.
The others, with those that arrive in the meantime, are decided and written together
(group_commit.py). Whether they are answered depends on its part in replication (leadership.py).
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from acid_platform.base.clock import Clock, SystemClock
from acid_platform.errors import AcidError, MetastoreIncompatible, WarehouseMoved
from acid_platform.metastore.endpoint import (
    Endpoint,
    Home,
    refuse_network_file_system,
)
from acid_platform.metastore.operations import MetastoreOperation, Row, write_answer
from acid_platform.metastore.operations.replication import (
    Follow,
    Followed,
    ForgetStandby,
    Promote,
)
from acid_platform.metastore.operations.shows import GetStatus, ReportGateway, Stop
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server.archiver import Archiver
from acid_platform.metastore.server.group_commit import GroupCommit, Request
from acid_platform.metastore.server.leadership import Leadership, require_service
from acid_platform.metastore.server.membership import Membership
from acid_platform.metastore.server.metrics import histogram
from acid_platform.metastore.server.reception import ListeningService, Reception
from acid_platform.metastore.wire import PROTOCOL, STANDBY

_LOG = logging.getLogger("acid_platform.metastore")
_TICK_SECONDS = 0.2
_FIRST_CLIENT_SECONDS = 10.0
_GATEWAY_SECONDS = 60.0
"""A gateway that has said nothing for so long is no longer shown."""


class Server:
    """Serves one metastore directory, whose lock the caller holds. `run` returns when it stops."""

    def __init__(
        self, home: Home, clock: Clock | None = None, service: ListeningService | None = None
    ) -> None:
        """`service`: where it also listens for other machines."""
        refuse_network_file_system(home)
        if home.unfinished.exists():
            raise MetastoreIncompatible(
                f"a restore into {home.path} was interrupted; run `acid metastore restore FILE"
                " --replace` again, or `acid metastore standby --of ADDRESS --replace` if that was"
                " interrupted"
            )
        self._home = home
        self._place = _inodes(home)
        self.moved = False
        """Whether `run` ended because the directory is no longer at its path (P31)."""
        membership = Membership.read(home)
        require_service(membership, service)
        self.commits = GroupCommit(
            home.database, clock or SystemClock(), membership.role == STANDBY
        )
        self.outdated = ""
        """Why `run` ended, if this is a standby that has to be made anew."""
        self._stopping = False
        self._gateways: dict[str, tuple[float, Row]] = {}
        self._ticked = time.monotonic()
        # The client that started the process needs a moment to connect.
        self._idle_since = self._ticked + _FIRST_CLIENT_SECONDS
        self.reception = Reception(home, service, self.commits.bad)
        self.leadership = Leadership(home, membership, self.commits, self.reception, HANDLERS)
        self.archiver = Archiver(home, self.commits, self.leadership)
        self.commits.before_fold = self.archiver.seal
        self.leadership.before_promotion = self.archiver.try_to_seal
        Endpoint(self.reception.address, os.getpid(), self.commits.epoch, PROTOCOL).publish(home)

    def run(self) -> None:
        reception = self.reception
        _LOG.info("epoch %d serves %s %s", self.commits.epoch, reception.address, reception.service)
        try:
            while not self._stopping:
                ticked = self._round()
                if self.moved or (ticked and self._idle()):
                    break
        finally:
            self._close()

    def stop(self, *_: object) -> None:
        """Ends `run` after the current round; safe in a signal handler."""
        self.reception.connections.ring()
        self._stopping = True

    # --- one round ----------------------------------------------------------------------------

    def _round(self) -> bool:
        """Handles what has arrived; returns True if it also did what is due by itself.

        First it checks that its directory is still there, so that it writes nothing at a path where
        another warehouse may be by now.
        """
        requests = self.reception.receive(_TICK_SECONDS)
        self.moved = _inodes(self._home) != self._place
        if self.moved:
            gone = error_reply(self._moved_away())
            self.reception.send(Reply(request.id, gone) for request in requests)
            return True
        due = time.monotonic() - self._ticked >= _TICK_SECONDS / 2
        if due:
            self.reception.forget_closed()
            self.archiver.tick()
        own = self.leadership.round(requests, due)
        self.reception.send(self._own(request) for request in own)
        self.outdated = self.leadership.outdated
        if self.outdated:
            self.stop()
        self.moved = _inodes(self._home) != self._place
        if not self.moved:
            self.commits.fold_if_due()
        if due:
            self._ticked = time.monotonic()
        return due

    # --- requests on the process itself -------------------------------------------------------

    def _own(self, request: Request) -> Reply:
        kind = type(request.operation)
        try:
            answer = HANDLERS[kind](self, request.operation)
            return Reply(request.id, {"value": write_answer(kind, answer)})
        except AcidError as error:
            return Reply(request.id, error_reply(error))
        except OSError:  # as when a promotion can't be recorded: this process has to end
            raise
        except Exception as error:
            return self.commits.bad(request.id, kind.op, error)

    def _stop_for(self, _operation: Stop) -> int:
        self.stop()
        return os.getpid()

    def _follow_for(self, _operation: Follow) -> Followed:
        return self.leadership.refuse_follow()

    def _promote_for(self, operation: Promote) -> int:
        return self.leadership.promote(operation.incomplete)

    def _forget_for(self, _operation: ForgetStandby) -> str:
        return self.leadership.forget_standby()

    def _report_for(self, operation: ReportGateway) -> None:
        self._gateways[operation.name] = (time.monotonic(), operation.report)

    def _gateways_now(self) -> list[Row]:
        """What each gateway said last, and how many milliseconds ago."""
        now = time.monotonic()
        self._gateways = {
            name: (at, report)
            for name, (at, report) in self._gateways.items()
            if report and now - at < _GATEWAY_SECONDS
        }
        return [
            {**report, "silent_ms": round(1000 * (now - at))}
            for _, (at, report) in sorted(self._gateways.items())
        ]

    def _status_for(self, _operation: GetStatus) -> Row:
        return self.status()

    def status(self) -> Row:
        state, done = self.commits.state, self.commits.counters
        connections, certificate = self.reception.connections, self.reception.certificate
        return {
            "pid": os.getpid(),
            "epoch": self.commits.epoch,
            "directory": str(self._home.path),
            "address": self.reception.address,
            "listen": self.reception.service,
            "tls_until": f"{certificate.expires:%Y-%m-%d %H:%M:%S} UTC" if certificate else "",
            **self.leadership.status(),
            **self.archiver.status(),
            "clients": connections.known,
            "open": sum(1 for _ in state.open_txns()),
            "aborted": sum(1 for _ in state.aborted_txns()),
            "waiting": len(state.waiting),
            "tables": len(state.tables),
            "last_txn": state.last_txn,
            "changed_rows": state.row_bytes,
            "doubtful": sum(len(table.doubtful) for table in state.tables.values()),
            "journal": self.commits.store.journal_length,
            "requests": done.requests,
            "commits": done.batches,
            "events": done.events,
            "commit_ms": round(1000 * done.writing.total / max(done.batches, 1), 3),
            "write_latency": histogram(done.writing),
            "folds": done.folds,
            "fold_latency": histogram(done.folding),
            "failed_writes": done.failed_writes,
            "failed_folds": done.failed_folds,
            "bad_requests": done.bad_requests,
            "refused": connections.refused,
            "cpu_seconds": time.process_time(),
            "resident_bytes": psutil.Process().memory_info().rss,
            "gateways": self._gateways_now(),
        }

    # --- its life -----------------------------------------------------------------------------

    def _idle(self) -> bool:
        """Whether no client is connected and nothing has been open for long enough. A service
        stays."""
        reception = self.reception
        open_one = next(self.commits.state.open_txns(), None)
        if reception.service or reception.connections.any or open_one:
            self._idle_since = time.monotonic()
            return False
        most = self.commits.state.settings.integer("acid.metastore.idle.exit") / 1000
        return time.monotonic() - self._idle_since > most

    def _moved_away(self) -> WarehouseMoved:
        return WarehouseMoved(
            f"{self._home.path} was moved, removed or replaced: nothing was done; open the"
            " warehouse where it is now"
        )

    def _close(self) -> None:
        self._stopping = True
        self.leadership.stop()
        self.moved = self.moved or _inodes(self._home) != self._place
        self.reception.unbind()
        if self.moved:
            # The log moved with the directory and has every commit. DuckDB would write and remove
            # its own log at the old path, so the process ends as in a crash.
            self.archiver.abandon()
            self.reception.connections.close()
            _LOG.warning("epoch %d ends: %s", self.commits.epoch, self._moved_away())
            return
        with suppress(FileNotFoundError):
            os.unlink(self._home.endpoint)
        # Before the last fold: clients in a handshake then look for another process.
        self.reception.connections.close()
        self.commits.close()
        self.archiver.stop()
        _LOG.info("epoch %d ends", self.commits.epoch)


def _inodes(home: Home) -> list[tuple[int, int]] | None:
    """The inodes of the directory's path and of its lock; None if one is missing."""
    try:
        stats = [os.stat(path) for path in (home.path, home.lock)]
    except OSError:
        return None
    return [(stat.st_dev, stat.st_ino) for stat in stats]


HANDLERS: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    GetStatus: Server._status_for,
    ReportGateway: Server._report_for,
    Stop: Server._stop_for,
    Follow: Server._follow_for,
    Promote: Server._promote_for,
    ForgetStandby: Server._forget_for,
}
"""Operations on the process."""


def install_signals(server: Server) -> None:
    """SIGTERM stops the server cleanly; the terminal's signals are for its clients."""
    signal.signal(signal.SIGTERM, server.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
