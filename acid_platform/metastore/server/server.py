"""The metastore process: one thread that owns the state and appends to the log (P1, P2, P7).

Each round takes all requests that have arrived. Requests that record nothing are answered at once.
The others, with those that arrive in the meantime, are decided and written together
(group_commit.py). The metastore of a directory leads as long as it holds the directory's lock. Of
the processes that share a log elsewhere, the one with the lease leads (leading.py).
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil

from acid_platform.base.clock import Clock, SystemClock
from acid_platform.base.ports import registry_of, serve_metrics
from acid_platform.compaction.states import CompactionState
from acid_platform.errors import (
    AcidError,
    MetastoreIncompatible,
    MetastoreUnavailable,
    WarehouseMoved,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.endpoint import Endpoint, Ground, Home, refuse_network_file_system
from acid_platform.metastore.log.contract import Leader, Log, PositionTaken
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import MetastoreOperation, Row
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server.connections import ListeningService, Reception
from acid_platform.metastore.server.group_commit import GroupCommit, Request
from acid_platform.metastore.server.leading import Archiver, Election
from acid_platform.metastore.server.metrics import families, histogram
from acid_platform.metastore.server.querying import Queries
from acid_platform.metastore.server.store import Store
from acid_platform.metastore.wire import LEADER, STANDBY

_LOG = logging.getLogger("acid_platform.metastore")
_TICK_SECONDS = 0.2
_FIRST_CLIENT_SECONDS = 10.0
_STATUS_SECONDS = 5.0
_GATEWAY_SECONDS = 60.0
"""A gateway that has said nothing for so long is no longer shown."""


def log_of(home: Home) -> LocalLog:
    return LocalLog(home.path, lambda: str(Ground.of(home.path)))


def server_of(
    home: Home, clock: Clock | None = None, service: ListeningService | None = None
) -> Server:
    """The server of a metastore's directory, whose lock the caller holds.

    `service`: where it also listens for other machines. Raises MetastoreIncompatible,
    MetastoreDamaged, OSError.
    """
    refuse_network_file_system(home)
    if home.unfinished.exists():
        raise MetastoreIncompatible(
            f"a restore into {home.path} was interrupted; run `acid metastore restore FILE"
            " --replace` again"
        )
    log = log_of(home)
    if not log.exists:
        log.create()
    log.open_to_append()
    commits = GroupCommit(Store(log, home.path), clock or SystemClock())
    commits.lead()
    reception = Reception(home, service, commits.bad)
    server = Server(commits, reception, home)
    Endpoint(reception.address, os.getpid(), commits.epoch).publish(home)
    return server


def member_of(log: Log, service: ListeningService, directory: Path, offer: Leader) -> Server:
    """The server of a log that other processes may lead too.

    `directory` is for snapshots while they are used; `offer` is how clients reach this process.
    Raises what reading the log raises.
    """
    with suppress(FileExistsError):  # another process was faster
        if not log.exists:
            log.create()
    commits = GroupCommit(Store(log, directory), SystemClock())
    reception = Reception(None, service, commits.bad)
    if not offer.address:
        offer = replace(offer, address=reception.service)
    return Server(commits, reception, None, Election(log, commits, offer))


class Server:
    """Serves one metastore. `run` returns when it stops."""

    def __init__(
        self,
        commits: GroupCommit,
        reception: Reception,
        home: Home | None,
        election: Election | None = None,
    ) -> None:
        """`home`: the directory of the log, if it is local; otherwise there is an `election`."""
        self.commits, self.reception = commits, reception
        self._home, self._election = home, election
        self._place = _inodes(home)
        self.moved = False
        """Whether `run` ended because the directory is no longer at its path (P31)."""
        self._stopping = False
        self._held: list[Request] = []
        """Requests that came while it was not known whether this process still leads."""
        self.queries = Queries(commits.store.log, reception.connections.ring)
        self._gateways: dict[str, tuple[float, Row]] = {}
        self._asked: deque[Future[Row]] = deque()
        """Threads that wait for the status."""
        self.metrics = ""
        """Where its numbers are served for Prometheus."""
        self._ticked = time.monotonic()
        # The client that started the process needs a moment to connect.
        self._idle_since = self._ticked + _FIRST_CLIENT_SECONDS
        self.archiver = Archiver(commits)
        self.commits.before_release = self._release
        self._tell_role()

    def _release(self) -> None:
        log = self.commits.store.log
        if isinstance(log, LocalLog):
            log.keep_after = self.archiver.archived
            log.release()

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

    def serve_metrics(self, address: str) -> None:
        """Serves its numbers for Prometheus from now on. Raises InvalidDefinition."""
        page = serve_metrics(address, registry_of(lambda: families(self.status_now())))
        self.metrics = page.address

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
        while self._asked:
            self._asked.popleft().set_result(self.status(ops.GetStatus()))
        self.moved = _inodes(self._home) != self._place
        if self.moved:
            gone = error_reply(self._moved_away())
            self.reception.send(Reply(request.id, gone) for request in requests)
            return True
        due = time.monotonic() - self._ticked >= _TICK_SECONDS / 2
        if due:
            self.reception.forget_closed()
        requests = self._answer_own(requests)
        if self._election is None:
            self._serve(requests, due)
        else:
            self._serve_elected(self._election, requests, due)
        self.reception.send(self.queries.replies())
        self.moved = _inodes(self._home) != self._place
        if not self.moved and self._leads:
            self.archiver.tick()
            self.commits.save_if_due()
        if due:
            self._ticked = time.monotonic()
        return due

    def _serve(self, requests: list[Request], due: bool) -> None:
        """Raises PositionTaken if another process leads."""
        commits, reception = self.commits, self.reception
        replies, requests = commits.answer_reads(requests)
        reception.send(replies)
        requests += self._answer_own(reception.receive(0))
        requests = self._asked_elsewhere(requests)
        if self._election is not None and not self._election.may_answer:
            self._held += requests  # some came when another process may have led
        elif requests or due:
            reception.send(commits.round(requests, reception.waiting if due else None))

    def _asked_elsewhere(self, requests: list[Request]) -> list[Request]:
        """Hands queries to the process that runs them, and returns the other requests."""
        others = []
        for request in requests:
            if isinstance(request.operation, ops.RunQuery):
                end, now = self.commits.store.end.position, self.commits.now_wall
                self.queries.ask(request.id, request.operation.sql, end, now)
            else:
                others.append(request)
        return others

    # --- one of several processes -------------------------------------------------------------

    @property
    def _leads(self) -> bool:
        return self._election is None or self._election.leads

    def _serve_elected(self, election: Election, requests: list[Request], due: bool) -> None:
        try:
            if election.lost:
                raise PositionTaken("the lease has ended")
            if election.may_answer:
                # The requests arrived before: nobody else led then, so memory is the newest state.
                requests, self._held = [*self._held, *requests], []
                self._serve(requests, due)
            elif election.leads:
                self._held += requests
            else:
                self._refuse(requests)
                if election.tick():
                    self._tell_role()
        except PositionTaken as error:
            self._step_down(election, str(error))
        except (AcidError, OSError) as error:
            if election.leads:
                self._step_down(election, str(error))
            else:
                _LOG.warning("the log can't be followed: %s", error)

    def _refuse(self, requests: list[Request]) -> None:
        """Every client asks for the settings first; otherwise only the leader answers."""
        asked = [request for request in requests if isinstance(request.operation, ops.GetSettings)]
        replies, _ = self.commits.answer_reads(asked)
        self.reception.send(replies)
        where = self._election.leader_address if self._election else ""
        refusal = error_reply(
            MetastoreUnavailable(
                f"this metastore stands by; the one that leads is at {where or 'no address yet'}"
            )
        )
        self.reception.send(
            Reply(request.id, refusal) for request in requests if request not in asked
        )

    def _step_down(self, election: Election, why: str) -> None:
        """Clients learn from the next leader what became of their requests."""
        _LOG.warning("no longer leads in epoch %d: %s", self.commits.epoch, why)
        self._held = []
        self.queries.end()
        self._tell_role(leads=False)
        self.reception.drop_remote()
        election.step_down()
        self.commits.step_down()

    def _tell_role(self, leads: bool | None = None) -> None:
        connections = self.reception.connections
        leading = self._leads if leads is None else leads
        connections.role = LEADER if leading else STANDBY
        connections.epoch = self.commits.epoch

    # --- requests on the process itself -------------------------------------------------------

    def _answer_own(self, requests: list[Request]) -> list[Request]:
        """Answers the requests on the process itself, and returns the others."""
        others = []
        for request in requests:
            handler = HANDLERS.get(type(request.operation))
            if handler is None:
                others.append(request)
            else:
                self.reception.send([self.commits.answer(request, partial(handler, self))])
        return others

    def _stop_for(self, _operation: ops.Stop) -> int:
        self.stop()
        return os.getpid()

    def _report_for(self, operation: ops.ReportGateway) -> None:
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

    def status_now(self) -> Row:
        """The status, for another thread than that of the state. Raises TimeoutError."""
        answer: Future[Row] = Future()
        self._asked.append(answer)
        self.reception.connections.ring()
        return answer.result(_STATUS_SECONDS)

    def status(self, _operation: ops.GetStatus) -> Row:
        state, counters = self.commits.state, self.commits.counters
        tasks = Counter(task.state for task in state.compactions())
        connections, certificate = self.reception.connections, self.reception.certificate
        return {
            "pid": os.getpid(),
            "epoch": self.commits.epoch,
            "log": self.commits.store.log.place if self._home is None else str(self._home.path),
            "address": self.reception.address,
            "listen": self.reception.service,
            "metrics": self.metrics,
            "tls_until": f"{certificate.expires:%Y-%m-%d %H:%M:%S} UTC" if certificate else "",
            "role": LEADER if self._leads else STANDBY,
            "leader": self._election.leader_address if self._election else "",
            "position": self.commits.store.end.position,
            "snapshot": self.commits.store.saved,
            **self.archiver.status(),
            "clients": connections.clients,
            "open": sum(1 for _ in state.open_txns()),
            "aborted": sum(1 for _ in state.aborted_txns()),
            "waiting": len(state.waiting),
            "tables": len(state.tables),
            "last_txn": state.last_txn,
            "compactions_queued": tasks[CompactionState.INITIATED],
            "compactions_running": tasks[CompactionState.WORKING],
            "compactions_failed": sum(
                task.state is CompactionState.FAILED
                for past in state.past.values()
                for task in past
            ),
            "to_clean": tasks[CompactionState.READY_FOR_CLEANING] + sum(1 for _ in state.drops()),
            "changed_rows": state.row_bytes,
            "doubtful": sum(len(table.doubtful) for table in state.tables.values()),
            "journal": self.commits.store.unsaved_bytes,
            "requests": counters.requests,
            "commits": counters.batches,
            "events": counters.events,
            "commit_ms": round(1000 * counters.writing.total / max(counters.batches, 1), 3),
            "write_latency": histogram(counters.writing),
            "snapshots": counters.snapshots,
            "failed_writes": counters.failed_writes,
            "failed_snapshots": counters.failed_snapshots,
            "bad_requests": counters.bad_requests,
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
        if self._election is not None:
            return False
        open_one = any(txn.has_client for txn in self.commits.state.open_txns())
        if reception.service or reception.connections or open_one:
            self._idle_since = time.monotonic()
            return False
        most = self.commits.state.settings.integer("acid.metastore.idle.exit") / 1000
        return time.monotonic() - self._idle_since > most

    def _moved_away(self) -> WarehouseMoved:
        return WarehouseMoved(
            f"{self._home and self._home.path} was moved, removed or replaced: nothing was done;"
            " open the warehouse where it is now"
        )

    def _close(self) -> None:
        self._stopping = True
        self.queries.end()
        self.moved = self.moved or _inodes(self._home) != self._place
        self.reception.unbind()
        if self.moved:
            # The log moved with the directory and has every commit: the process ends as in a crash.
            self.commits.end_saving()
            self.reception.connections.close()
            _LOG.warning("epoch %d ends: %s", self.commits.epoch, self._moved_away())
            return
        if self._home is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._home.endpoint)
        # Before the last snapshot: clients in a handshake then look for another process.
        self.reception.connections.close()
        if self._election is not None:
            self._election.step_down()  # who leads next archives the rest
            self.commits.end_saving()
            self.commits.store.close()
        else:
            self.archiver.stop()
            self.commits.close()
        _LOG.info("epoch %d ends", self.commits.epoch)


def _inodes(home: Home | None) -> list[tuple[int, int]] | None:
    """The inodes of the directory's path and of its lock; None if one is missing, or without a
    directory."""
    if home is None:
        return None
    try:
        stats = [os.stat(path) for path in (home.path, home.lock)]
    except OSError:
        return None
    return [(stat.st_dev, stat.st_ino) for stat in stats]


HANDLERS: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    ops.GetStatus: Server.status,
    ops.ReportGateway: Server._report_for,
    ops.Stop: Server._stop_for,
}
"""Operations on the process."""


def install_signals(server: Server) -> None:
    """SIGTERM stops the server cleanly; the terminal's signals are for its clients."""
    signal.signal(signal.SIGTERM, server.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
