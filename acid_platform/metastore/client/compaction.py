"""The calls of a client that compacts and cleans (C20 to C61), and of one that erases."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from acid_platform.compaction.states import ErasureState
from acid_platform.config import Settings
from acid_platform.errors import AcidError, error_class
from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.client.transaction import Transaction
from acid_platform.metastore.codec import decode, encode
from acid_platform.metastore.records import (
    BlockedCleaning,
    CleaningTask,
    CompactionTask,
    EntityCounters,
    EntityState,
    ErasureTask,
    WriteReport,
)

Json = dict[str, Any]

_WAIT = "hive.compactor.wait.timeout"


class CompactionCalls(Caller):
    """Part of `Metastore`."""

    def entities(self, table: str | None = None) -> list[EntityState]:
        """Every entity (of a table) with each directory that was reported of it (P8)."""
        found = self._call("entities", table=table)["entities"]
        return [self.places.entity(decode(EntityState, one)) for one in found]

    def candidates(self, since: int = 0) -> Iterator[EntityCounters]:
        """What the Initiator decides about, `hive.compactor.fetch.size` at a time (C1, C3).

        `since` is the `moment` when an earlier cycle began; 0 asks for all entities.
        """
        after: list[Any] | None = None
        while True:
            page = self._call("candidates", since=since, after=after)
            yield from (decode(EntityCounters, one) for one in page["candidates"])
            after = page["after"]
            if after is None:
                return

    def moment(self) -> int:
        """The metastore's count of events: not a clock, and it goes on after a restart."""
        found: int = self._call("moment")["moment"]
        return found

    def hold_service(self, service: str, holder: str) -> None:
        """Takes or renews the lease of a service. Raises LeaseHeld (P9)."""
        self._call("hold_service", service=service, holder=holder)

    def release_service(self, service: str, holder: str) -> None:
        self._call("release_service", service=service, holder=holder)

    def request_compaction(
        self,
        table: str,
        partition: str | None,
        kind: str,
        properties: Mapping[str, str] | None = None,
        initiator: str = "",
    ) -> int:
        """Enqueues (C24). Raises AlreadyScheduled naming the row, CompactionRefused."""
        answer = self._call(
            "request_compaction",
            table=table,
            partition=partition,
            kind=kind,
            properties=dict(properties or {}),
            initiator=initiator,
        )
        number: int = answer["id"]
        return number

    def request_compactions(
        self, wishes: Sequence[tuple[str, str | None, str]], initiator: str
    ) -> list[int | AcidError]:
        """Enqueues an Initiator's wishes (table, partition, kind) in one call; each has its own
        answer, an error does not stop the others."""
        answers = self._call(
            "request_compactions",
            initiator=initiator,
            wishes=[
                {"table": table, "partition": partition, "kind": kind}
                for table, partition, kind in wishes
            ],
        )["answers"]
        return [
            one["id"] if "id" in one else error_class(one["error"][0])(one["error"][1])
            for one in answers
        ]

    def record_not_initiated(self, table: str, partition: str | None, reason: str) -> None:
        self._call("record_not_initiated", table=table, partition=partition, reason=reason)

    def take_compaction(self, worker: str, table: str | None = None) -> CompactionTask | None:
        """The next task (of a table), now `working` and owned by this worker and attempt (C26)."""
        task = self._call("take_compaction", worker=worker, table=table)["task"]
        return None if task is None else decode(CompactionTask, task)

    def commit_compaction(
        self, task: CompactionTask, txn: Transaction, reports: Sequence[WriteReport]
    ) -> None:
        """Publishes, commits and makes the row ready for cleaning, all at once (C30, P21).

        Raises CompactionLost or TxnAborted: drop the output then.
        """
        try:
            self._call(
                "commit_compaction",
                **owner(task),
                txn=txn.id,
                writes=[encode(one) for one in reports],
            )
        finally:
            txn.forget()

    def compaction_nothing_to_do(
        self, task: CompactionTask, txn: Transaction, to_cleaning: bool, reason: str
    ) -> None:
        """Ready for cleaning, or refused; the transaction commits (C29)."""
        self._call(
            "compaction_nothing_to_do",
            **owner(task),
            txn=txn.id,
            to_cleaning=to_cleaning,
            reason=reason,
        )
        txn.forget()

    def fail_compaction(self, task: CompactionTask, txn: Transaction | None, error: str) -> None:
        """Failed, and the transaction aborted (C32). Raises CompactionLost."""
        if txn is not None:
            txn.forget()
        self._call("fail_compaction", **owner(task), txn=txn.id if txn else None, error=error)

    def abort_compactions(self, ids: Sequence[int]) -> dict[int, str]:
        """A message for each id; only initiated rows are aborted (C60)."""
        messages = self._call("abort_compactions", ids=list(ids))["messages"]
        return {int(key): text for key, text in messages.items()}

    def revoke_workers(self, host: str | None = None) -> list[int]:
        """Working rows of the host or worker, or (None) those that timed out, are initiated again
        (C25)."""
        ids: list[int] = self._call("revoke_workers", host=host)["ids"]
        return ids

    def compaction_done(self, compaction: int) -> bool:
        """Whether it is neither initiated nor working any more. Raises CompactionRefused."""
        done: bool = self._call("compaction", id=compaction)["done"]
        return done

    def wait_compaction(self, compaction: int, timeout: float | None = None) -> Json:
        """Its SHOW COMPACTIONS row, once it is neither initiated nor working, or after `timeout`
        seconds (`hive.compactor.wait.timeout`); a timeout cancels nothing (C59)."""
        if timeout is None:
            timeout = Settings.of(self._call("settings")["set"]).integer(_WAIT) / 1000
        deadline, pause = time.monotonic() + timeout, 0.02
        while True:
            answer = self._call("compaction", id=compaction)
            if answer["done"] or time.monotonic() >= deadline:
                row: Json = answer["row"]
                return row
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, 0.5)

    # --- erasing ----------------------------------------------------------------------------

    def request_erasure(self, table: str, condition: str, user: str = "") -> int:
        """Records a request to erase rows, and answers its id: for one that is open already, the
        id that it has. Raises NoSuchTable."""
        number: int = self._call("request_erasure", table=table, condition=condition, user=user)[
            "id"
        ]
        return number

    def answer_erasure(
        self,
        erasure: int,
        state: ErasureState,
        answer: str,
        waits_for: Iterable[int] = (),
        run_id: str = "",
    ) -> None:
        """Says what became of a request. Raises InvalidDefinition if it is not open."""
        self._call(
            "answer_erasure",
            id=erasure,
            state=state.value,
            answer=answer,
            waits_for=sorted(waits_for),
            run_id=run_id,
        )

    def erasures(self) -> list[ErasureTask]:
        """Every request, the oldest first."""
        return [decode(ErasureTask, one) for one in self._call("erasures")["erasures"]]

    # --- cleaning ---------------------------------------------------------------------------

    def ready_to_clean(self) -> list[CleaningTask]:
        """What may be cleaned now (C37 to C55)."""
        ready = self._call("cleaning")["ready"]
        return [self.places.task(decode(CleaningTask, one)) for one in ready]

    def cleaning_blocked(self) -> list[BlockedCleaning]:
        """What has to wait, with the reason and the transactions it waits for."""
        return [decode(BlockedCleaning, one) for one in self._call("cleaning")["blocked"]]

    def start_cleaning(self, task: CleaningTask) -> CleaningTask:
        """Takes it, with fresh lists. Raises CompactionLost if it may not run now (P21)."""
        answer = self._call("start_cleaning", **_cleaned(task))
        return self.places.task(decode(CleaningTask, answer["task"]))

    def mark_cleaned(
        self,
        task: CleaningTask,
        removed_write_ids: Iterable[int] | None = None,
        gone: Iterable[str] = (),
    ) -> None:
        """Done (C49). None: nothing aborted is left at or below the task's watermark; else only
        these aborted write ids are gone (C53). `gone` names the directories that were removed, of
        which no snapshot is told any more (P26). Raises CompactionLost."""
        removed = None if removed_write_ids is None else sorted(removed_write_ids)
        self._call("mark_cleaned", **_cleaned(task), removed=removed, gone=sorted(gone))

    def cleaning_failed(self, task: CleaningTask, error: str) -> None:
        """Retried later, at most `hive.compactor.cleaner.retry.maxattempts` times (C48, P25)."""
        self._call("cleaning_failed", **_cleaned(task), error=error)

    def cleaning_again(self, task: CleaningTask) -> None:
        """Something obsolete is still there: the next cycle looks again (C47)."""
        self._call("cleaning_again", **_cleaned(task))

    def refuse_cleaning(self, task: CleaningTask, reason: str) -> None:
        """NO_CLEANUP: the row ends as refused, the files stay (C44)."""
        self._call("refuse_cleaning", **_cleaned(task), reason=reason)


def owner(task: CompactionTask, worker: str | None = None) -> Json:
    """Which attempt of which worker speaks (P21)."""
    return {"id": task.id, "worker": worker or task.worker, "attempt": task.attempt}


def _cleaned(task: CleaningTask) -> Json:
    return {
        "id": task.id,
        "table": task.table,
        "table_id": task.table_id,
        "partition": task.partition,
        "highest_write_id": task.highest_write_id,
    }
