"""Rules that are switched off, in the metastore or in clients: the judge must catch each by what
clients read and were told.

Some are among those that the simulator has to catch (tests/simulation/mutations.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import acid_platform.metastore.server.server  # noqa: F401, all that it loads has to be there
from acid_platform import AcidError, BatchCommitted
from acid_platform.handles.looked_for import LookedFor
from acid_platform.handles.transaction import Transaction
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.operations.transactions import NOTHING_TO_COMMIT, CommitContents
from acid_platform.metastore.rules import change_feed, write_set
from acid_platform.metastore.server.store import Store
from acid_platform.scan import deletes
from acid_platform.transactions import (
    NONE_OPEN,
    CompactorWriteIdList,
    RangeResponse,
    ValidTxnList,
    ValidWriteIdList,
    ids,
)
from acid_platform.transactions.concurrency import CHANGED, Changed
from acid_platform.transactions.row_sets import Region
from tests.judge.verdict import ON_REQUEST, PROMISED
from tests.recorder.rounds import Rounds
from tests.simulation.mutations import MUTATIONS, Cell, Faulty

SECONDS, ROUNDS = 12.0, 8
"""Of a history, and how many are tried."""
SECONDS_OF_STREAMS = 90.0
"""Of a history with a client of Spark's streams, whose JVM takes seconds to start."""
KINDS = ("python", "python", "sql", "sql", "snapshot", "keeper")
KINDS_OF_STREAMS = ("python", "sql", "stream")
_UNLOGGED = 8


def _of_simulation(rule: str, what: str) -> Faulty | Cell:
    (one,) = (one for one in MUTATIONS if (one.rule, one.what) == (rule, what))
    return one


def _commits_instead(real: Any, txn: Transaction, reason: str) -> None:
    try:
        TransactionWork.commit(txn)
    except AcidError:
        real(txn, reason)


def _one_table(
    real: Any, txn: OpenTransaction, contents: CommitContents = NOTHING_TO_COMMIT
) -> None:
    writes = contents.writes
    first = tuple(one for one in writes if one.table == writes[0].table)
    real(txn, replace(contents, writes=first))


_held_back: list[Any] = []


def _late(real: Any, store: Store, events: Any) -> None:
    _held_back.append(events)
    if len(_held_back) > _UNLOGGED:
        real(store, _held_back.pop(0))


def _above_open(_real: Any, lists: ValidWriteIdList) -> CompactorWriteIdList:
    return CompactorWriteIdList(ids.high_watermark, (), ids.aborted, NONE_OPEN, ids.table)


def _again(real: Any, *args: Any) -> Any:
    try:
        return real(*args)
    except BatchCommitted:
        return ()


@dataclass(frozen=True)
class Overlooked:
    """Directories of one kind are no change for a serializable transaction."""

    rule: str
    what: str
    key: tuple[bool, bool, bool]

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = CHANGED[self.key]
        CHANGED[self.key] = Changed.NOTHING
        try:
            yield
        finally:
            CHANGED[self.key] = before


def _nothing(_real: Any, *_args: Any) -> None: ...


Tooth = Faulty | Cell | Overlooked
OF_SERIALIZABLE = (
    Faulty("P52", "what was read is not compared", write_set.unseen_change, _nothing),
    Faulty("P52", "plain reads are not told", LookedFor.read, _nothing),
    Faulty("P52", "no rows meet", Region.meets, lambda _real, *_regions: False),
    Overlooked("P52", "an insert is no change", (False, False, False)),
)
OF_STREAMS = (
    Faulty("P42", "a repeated batch of a stream counts again", change_feed.advanced_sinks, _again),
)
TEETH: tuple[Tooth, ...] = (
    _of_simulation("T31", "a commit without the conflict check"),
    _of_simulation("T37", "nothing is the same entity"),
    _of_simulation("P38", "rows that both have changed are overlooked"),
    _of_simulation("S4", "each lock takes a new snapshot"),
    _of_simulation("S8", "open write ids are seen"),
    _of_simulation("P29", "a snapshot is called the newest although its tables were changed since"),
    _of_simulation("P30", "two overwrites do not conflict"),
    _of_simulation("P30", "an overwrite does not conflict with inserts"),
    _of_simulation("T22", "a write id is used twice"),
    _of_simulation("T27", "the partitions of a dynamic write are not looked at"),
    Faulty("P2", "commits are answered before they are in the log", Store.append, _late),
    Faulty("P8", "a commit publishes one table of several", OpenTransaction.commit, _one_table),
    Faulty("T12", "an abort commits", Transaction._abort, _commits_instead),
    Faulty(
        "T41",
        "a snapshot misses the last two transactions",
        ValidTxnList.for_reader,
        lambda real, lists, me: real(ids, max(1, me - 2)),
    ),
    Faulty(
        "S4",
        "a transaction does not see its own writes",
        ValidWriteIdList.seeing,
        lambda _real, lists, _own: ids,
    ),
    Faulty(
        "S14",
        "all of a directory counts as valid",
        ids._IdList.range_valid,
        lambda _real, _lists, _low, _high: RangeResponse.ALL,
    ),
    Faulty(
        "F16",
        "deleted rows stay",
        deletes.load_keys,
        lambda _real, *_args, **_named: deletes.NO_DELETES,
    ),
    Faulty(
        "S16",
        "a compaction merges what is above an open write",
        ValidWriteIdList.for_compactor,
        _above_open,
    ),
    *OF_STREAMS,
    *OF_SERIALIZABLE,
)


def caught(mutation: Tooth, place: Path, seed: int = 1) -> dict[str, int]:
    """The anomalies of the first history that has any; else empty. Raises RunFailed."""
    kinds, seconds, level = KINDS, SECONDS, PROMISED
    if mutation in OF_SERIALIZABLE:
        level = ON_REQUEST
    if mutation in OF_STREAMS:
        kinds, seconds = KINDS_OF_STREAMS, SECONDS_OF_STREAMS
    with mutation.applied():
        rounds = Rounds(place, seed, kinds, own_metastore=True, level=level)
        try:
            for _ in range(ROUNDS):
                anomalies = rounds.run(seconds).anomalies()
                if anomalies:
                    return dict(sorted(anomalies.items()))
        finally:
            rounds.close()
    return {}
