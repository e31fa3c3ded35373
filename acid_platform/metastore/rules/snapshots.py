"""What a transaction sees: transaction lists, write id lists, watermarks (S rules, P4, P5, C41)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from acid_platform.metastore.pasts import TableCommit
from acid_platform.metastore.rules.state import State, TableState, Txn
from acid_platform.transactions import CompactorWriteIdList, TxnType, ValidTxnList, ValidWriteIdList


def txn_list(state: State) -> ValidTxnList:
    """The list now; READ_ONLY transactions are left out (S1)."""
    return _list_at(state, state.next_moment)


def snapshot(state: State, txn: Txn) -> ValidTxnList | None:
    """The list that an open transaction saw when it took its snapshot, if it has one (S2, S4).

    It is rebuilt from which transactions were open at that moment: storing a list in each
    transaction would take the square of their number.
    """
    return _list_at(state, txn.taken).for_reader(txn.txn_id) if txn.taken else None


def _list_at(state: State, moment: int) -> ValidTxnList:
    opened: list[int] = []
    aborted: list[int] = []
    for txn in state.txns.values():
        if txn.kind is not TxnType.READ_ONLY:
            (opened if txn.is_open or txn.closed > moment else aborted).append(txn.txn_id)
    for departed in reversed(state.departed):
        if departed.gone <= moment:
            break
        (opened if departed.closed > moment else aborted).append(departed.txn_id)
    return ValidTxnList.of(state.last_txn, opened, aborted)


def first_snapshot(state: State) -> Callable[[int], int]:
    """A function: the moment of the first snapshot among open transactions above an id."""
    takers = sorted((txn.txn_id, txn.taken) for txn in state.open_txns() if txn.taken)
    ids = [txn_id for txn_id, _ in takers]
    moments = (state.next_moment, *(taken for _, taken in reversed(takers)))
    firsts = [*accumulate(moments, min)][::-1]
    return lambda txn_id: firsts[bisect_right(ids, txn_id)]


def write_ids(table: TableState, txns: ValidTxnList) -> ValidWriteIdList:
    """The write ids of a table that belong to the transactions in the list (S7 to S9, P4, P5)."""
    high, above = table.purged, []
    for row in reversed(table.writes):
        if row.txn_id <= txns.high_watermark:
            high = max(high, row.write_id)
        else:
            above.append(row.write_id)
        # When this row was written, no transaction above the watermark existed.
        if row.last_txn <= txns.high_watermark:
            break
    by_txn = table.by_txn
    aborted = {write_id for write_id in table.aborted if write_id <= high}
    aborted.update(by_txn[txn] for txn in txns.aborted if txn in by_txn and by_txn[txn] <= high)
    hidden = {by_txn[txn] for txn in txns.open if txn in by_txn and by_txn[txn] <= high}
    hidden.update(write_id for write_id in above if write_id < high)
    hidden.update(write_id for write_id in table.doubtful if write_id <= high)
    return ValidWriteIdList.of(table.record.name, high, hidden - aborted, aborted)


def compactor_list(
    state: State, table: TableState, txns: ValidTxnList | None = None
) -> CompactorWriteIdList:
    """What a compaction of the table may merge (S16); without a list, as of now (me = 0)."""
    return write_ids(table, txns or txn_list(state)).for_compactor()


def low_mark(state: State) -> int:
    """All transactions below it have ended in every open snapshot (T41, T42, T45)."""
    first = first_snapshot(state)
    marks = [state.next_txn]
    for txn in state.txns.values():
        if txn.is_open or first(txn.txn_id) < txn.closed:
            marks.append(txn.txn_id)
    marks += [
        departed.txn_id for departed in state.departed if first(departed.txn_id) < departed.closed
    ]
    return min(marks)


def holders(state: State, table_id: int, below: int) -> list[Txn]:
    """Open transactions below `below` that may need old files of the table (C41, C42).

    With `acid.cleaner.watermark=global` every open transaction counts, otherwise those that asked
    for the table.
    """
    everyone = state.settings.text("acid.cleaner.watermark") == "global"
    return [
        txn
        for txn in state.open_txns()
        if txn.txn_id < below and (everyone or txn.all_tables or table_id in txn.needs.values())
    ]


def cleaner_lists(
    state: State,
    table: TableState,
    watermark: int,
    highest_write_id: int,
    later: Sequence[TableCommit] = (),
) -> tuple[ValidTxnList, ValidWriteIdList]:
    """The Cleaner's lists (S17): only what every open snapshot of the table sees counts as valid.

    `watermark` is the lowest transaction whose snapshot must stay readable. Compactions that have
    committed but are not visible to all snapshots count as open, and so do the commits `later`
    than the oldest snapshot that the table's history keeps (P36). Aborted write ids above
    `highest_write_id` stay in the list, so that their directories can be removed (C46).
    """
    high = watermark - 1
    unsafe = {
        row.txn_id
        for row in state.queue.values()
        if row.table_id == table.record.table_id and row.txn_id and row.next_txn_id > watermark
    }
    unsafe.update(past.txn_id for past in later if past.txn_id)
    opened = {txn.txn_id for txn in state.open_txns() if txn.txn_id <= high} | unsafe
    aborted = {txn.txn_id for txn in state.aborted_txns() if txn.txn_id <= high}
    txns = ValidTxnList.of(high, (txn_id for txn_id in opened if txn_id <= high), aborted)
    listed = write_ids(table, txns)
    top = min(listed.high_watermark, highest_write_id)
    hidden = {past.write_id for past in later if past.write_id}.union(listed.open)
    return txns, ValidWriteIdList.of(
        listed.table, top, (write_id for write_id in hidden if write_id <= top), table.aborted
    )
