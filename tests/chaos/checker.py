"""Computes what each read had to return, from the writers' journals and the read's write id list.

These are the rows that valid, committed write ids inserted, without those that such ids deleted,
and nothing below the highest overwrite or drop of the partition that the list sees. It also checks
that the lists agree with the clock and with each other, and that no overwrite or drop hides an
acknowledged commit that it had not seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from acid_platform import errors
from acid_platform.transactions import ValidWriteIdList
from tests.chaos.journal import Line

Rows = dict[str, list[int]]

ALLOWED = {
    "SnapshotExpired",
    "TxnAborted",
    "MetastoreUnavailable",
    "OutcomeUnknown",
    "CorruptFile",
    "NoSuchTable",
    "LockTimeout",
    "WriteConflict",
    "NoSuchTxn",
}
"""Errors that a read may raise; two of them need a reason."""
UNDECIDED = {"OutcomeUnknown", "MetastoreUnavailable", "MetastoreWriteFailed"}
"""Errors after which a transaction may have been committed."""
SOLID_TABLE = "db.p"
"""It is never renamed or dropped."""


@dataclass(frozen=True)
class Damage:
    """A file that was cut, emptied or gone for a time."""

    path: str
    kind: str
    begin: float
    end: float


@dataclass
class Evidence:
    """Everything that is known after a run."""

    lines: Sequence[Line]
    states: Mapping[int, str]
    """The metastore's states of the transactions at the end: c, a, o or u."""
    damages: Sequence[Damage]
    stalls: Sequence[tuple[str, float, float]]
    """Actor, and from when to when it was stopped."""
    metastore_kills: Sequence[float] = ()

    def of(self, what: str) -> list[Line]:
        return self._kinds.get(what, [])

    @cached_property
    def _kinds(self) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = defaultdict(list)
        for line in self.lines:
            found[line["what"]].append(line)
        return found

    @cached_property
    def writes(self) -> dict[int, list[Line]]:
        """The writes by table."""
        found: dict[int, list[Line]] = defaultdict(list)
        for line in self.of("write"):
            found[line["table_id"]].append(line)
        return found

    @cached_property
    def floors(self) -> dict[int, list[int]]:
        """The write ids of the drops of each partition of `db.p`.

        An actor reads the floors before and after its drop. The first new floor is the drop's; a
        higher one comes from aborted write ids that the metastore has forgotten, and hides nothing
        (P4).
        """
        highest: dict[int, int] = defaultdict(int)
        found: dict[int, list[int]] = defaultdict(list)
        for line in sorted(self.of("floors"), key=lambda entry: float(entry["at"])):
            partition = line["partition"]
            new = sorted(floor for floor in line["floors"] if floor > highest[partition])
            if new:
                found[partition].append(new[0])
                highest[partition] = new[-1]
        return dict(found)

    @cached_property
    def asked(self) -> dict[int, float]:
        """When the commit of a transaction was sent."""
        return {line["txn"]: line["at"] for line in self.of("commit")}

    @cached_property
    def acknowledged(self) -> dict[int, float]:
        """When its commit was acknowledged."""
        return {line["txn"]: line["at"] for line in self.of("ended") if line["state"] == "c"}

    def committed(self, txn: int) -> bool:
        return self.states.get(txn) == "c"


@dataclass
class Verdict:
    reads: int = 0
    commits: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    rows: int = 0
    unexplained_expiries: int = 0
    """SnapshotExpired or TxnAborted of a process that nobody had stopped: the machine was slow."""


def check(evidence: Evidence) -> Verdict:
    verdict = Verdict(commits=sum(map(evidence.committed, evidence.asked)))
    wrong = verdict.wrong
    for line in evidence.of("crashed"):
        wrong.append(f"{line['actor']} raised what is no AcidError:\n{line['trace']}")
    for line in evidence.of("refused"):
        verdict.refused[f"{line['state']}: {line['error']}"] += 1
    wrong += _outcomes(evidence)
    wrong += _hidden(evidence)
    wrong += _deleted_twice(evidence)
    for line in evidence.of("read"):
        verdict.reads += 1
        if "error" in line:
            verdict.errors[line["error"]] += 1
            wrong += _error(evidence, line, verdict)
            continue
        if "list" not in line:
            wrong.append(f"{_named(line)}: an answer without a write id list")
            continue
        verdict.rows += line["count"] if "count" in line else sum(map(len, line["ids"].values()))
        seen = ValidWriteIdList.parse(line["list"])
        wrong += _answer(evidence, line, seen)
        wrong += _clock(evidence, line, seen)
        wrong += _declarations(evidence, line)
    wrong += _torn(evidence)
    return verdict


def expected(evidence: Evidence, read: Line, seen: ValidWriteIdList) -> Rows:
    """The ids by partition that the read had to return."""
    visible = [
        write
        for write in evidence.writes.get(read["table_id"], ())
        if (
            write["actor"] == read["actor"] and write["order"] < read["order"]
            if write["txn"] == read["txn"]
            else evidence.committed(write["txn"]) and seen.is_valid(write["write_id"])
        )
    ]
    floors: dict[int | None, int] = defaultdict(int)
    for write in visible:
        if write["kind"] == "overwrite":
            floors[write["partition"]] = max(floors[write["partition"]], write["write_id"])
    dropped: dict[int | None, int] = defaultdict(int)
    if read["table"] == SOLID_TABLE:
        for partition, drops in evidence.floors.items():
            dropped[partition] = max((drop for drop in drops if seen.is_valid(drop)), default=0)
    gone = {row for write in visible if write["kind"] == "delete" for row in write["ids"]}
    rows: Rows = {}
    for write in visible:
        partition, write_id = write["partition"], write["write_id"]
        over = floors[partition]
        there = (
            write_id > over
            if write["kind"] == "insert"
            else write["kind"] == "overwrite" and write_id == over
        )
        if not there or write_id <= dropped[partition]:
            continue
        if read.get("partition", partition) != partition:
            continue
        found = [row for row in write["ids"] if row not in gone and row >= read.get("least", 0)]
        if found:
            rows.setdefault("" if partition is None else str(partition), []).extend(found)
    return {partition: sorted(found) for partition, found in rows.items()}


def _answer(evidence: Evidence, read: Line, seen: ValidWriteIdList) -> Iterator[str]:
    rows = expected(evidence, read, seen)
    if "count" in read:
        number = sum(map(len, rows.values()))
        if read["count"] != number:
            yield f"{_named(read)}: counted {read['count']}, {number} are right"
        return
    if read["strange"]:
        yield f"{_named(read)}: rows with values of others: {read['strange'][:5]}"
    if read["ids"] == rows:
        return
    for partition in sorted({*rows, *read["ids"]}):
        right, got = Counter(rows.get(partition, ())), Counter(read["ids"].get(partition, ()))
        for word, ids in (("missing", right - got), ("extra", got - right)):
            if ids:
                told = "; ".join(
                    _history(evidence, read["table_id"], row_id) for row_id in [*ids][:5]
                )
                yield f"{_named(read)} partition {partition}: {len(ids)} {word}: {told}"


def _history(evidence: Evidence, table_id: int, row: int) -> str:
    found = [
        f"{write['kind']} by write id {write['write_id']} of transaction {write['txn']}"
        f" ({evidence.states.get(write['txn'], 'unknown')})"
        for write in evidence.writes.get(table_id, ())
        if row in write["ids"]
    ]
    return f"row {row}: {', '.join(found) or 'nobody wrote it into this table'}"


def _named(read: Line) -> str:
    return (
        f"read of {read['table']} by {read['actor']} at {read['at']} ({read['mode']},"
        f" transaction {read.get('txn')}, list {read.get('list')})"
    )


def _error(evidence: Evidence, read: Line, verdict: Verdict) -> Iterator[str]:
    name = read["error"]
    told = f"{_named(read)}: {name}: {read['text']}"
    begin: float = read["from"] if "from" in read else read["began"]
    end: float = read["at"]
    damaged = any(
        damage.begin <= end and read["began"] <= damage.end for damage in evidence.damages
    )
    if name not in ALLOWED or not issubclass(getattr(errors, name), errors.AcidError):
        yield f"{told}; no read may raise that"
    elif name == "CorruptFile" and not damaged:
        yield f"{told}; and no file was damaged then"
    elif name == "NoSuchTable" and read["table"] == SOLID_TABLE:
        yield f"{told}; and it was never dropped"
    elif name in ("SnapshotExpired", "TxnAborted"):
        stopped = any(
            actor == read["actor"] and since <= end and begin <= until
            for actor, since, until in evidence.stalls
        )
        restarted = any(begin <= kill <= end for kill in evidence.metastore_kills)
        if not (stopped or damaged or restarted):
            verdict.unexplained_expiries += 1


def _clock(evidence: Evidence, read: Line, seen: ValidWriteIdList) -> Iterator[str]:
    """A snapshot sees what was acknowledged before it, and nothing that was sent after it."""
    for write in evidence.writes.get(read["table_id"], ()):
        txn: int = write["txn"]
        if txn == read["txn"] or not evidence.committed(txn):
            continue
        valid = seen.is_valid(write["write_id"])
        if not valid and evidence.acknowledged.get(txn, read["from"]) < read["from"]:
            yield (
                f"{_named(read)}: transaction {txn} (write id {write['write_id']}) was"
                " acknowledged before, and is not in the snapshot"
            )
        if valid and evidence.asked[txn] > read["to"]:
            yield (
                f"{_named(read)}: transaction {txn} (write id {write['write_id']}) was committed"
                " after the snapshot, and is in it"
            )
    if read["table"] != SOLID_TABLE:
        return
    for partition, floors in evidence.floors.items():
        drops = sum(seen.is_valid(floor) for floor in floors)
        least = sum(
            line["at"] < read["from"]
            for line in evidence.of("dropped")
            if line["table"] == SOLID_TABLE and line["partition"] == partition
        )
        if drops < least:
            yield (
                f"{_named(read)}: sees {drops} drops of partition {partition}, and {least} were"
                " acknowledged before the snapshot"
            )


def _declarations(evidence: Evidence, read: Line) -> Iterator[str]:
    columns = [
        line["name"]
        for line in evidence.of("column")
        if line["table_id"] == read["table_id"] and line["at"] < read["from"]
    ]
    if not {*columns} <= {*read["declared"]}:
        yield f"{_named(read)}: columns {columns} were there, it has {read['declared']}"
    given: list[str] | None = read.get("columns")
    if given is not None and given[: len(read["declared"])] != read["declared"]:
        yield f"{_named(read)}: gives {given}, declared are {read['declared']}"
    for line in evidence.of("dropped"):
        if line.get("table_id") == read["table_id"] and line["at"] < read["from"]:
            yield f"{_named(read)}: this table was dropped before the snapshot"
    for line in evidence.of("created"):
        if (
            line["table"] == read["table"]
            and line["at"] < read["from"]
            and read["table_id"] < line["table_id"]
        ):
            yield f"{_named(read)}: a new table of this name was made before the snapshot"


def _torn(evidence: Evidence) -> Iterator[str]:
    """A snapshot sees a transaction in all of its tables or in none."""
    tables: dict[int, dict[int, int]] = defaultdict(dict)
    for write in evidence.of("write"):
        if evidence.committed(write["txn"]):
            tables[write["txn"]][write["table_id"]] = write["write_id"]
    several = {txn: ids for txn, ids in tables.items() if len(ids) > 1}
    snapshots: dict[tuple[str, int], dict[int, ValidWriteIdList]] = defaultdict(dict)
    for read in evidence.of("read"):
        if "list" not in read:
            continue
        lists = snapshots[read["actor"], read["txn"]]
        seen = ValidWriteIdList.parse(read["list"])
        before = lists.setdefault(read["table_id"], seen)
        if before != seen and read["mode"] == "snapshot":
            yield f"{_named(read)}: its list was {before} before"
    for (actor, lease), lists in snapshots.items():
        for txn, ids in several.items():
            if (
                txn != lease
                and len({lists[table].is_valid(ids[table]) for table in ids if table in lists}) > 1
            ):
                yield f"snapshot {lease} of {actor} has a part of transaction {txn}: {lists}"


def _outcomes(evidence: Evidence) -> Iterator[str]:
    """The metastore's outcomes are those that the writers were told."""
    for txn in evidence.asked:
        if evidence.states.get(txn) not in ("c", "a"):
            yield (
                f"transaction {txn} was to be committed, and what became of it is not known:"
                f" {evidence.states.get(txn)}"
            )
    for line in evidence.of("ended"):
        if evidence.states.get(line["txn"]) not in {"c": ["c"], "a": ["a", "u"]}[line["state"]]:
            yield (
                f"transaction {line['txn']}: the writer was told {line['state']}, the metastore"
                f" has {evidence.states.get(line['txn'])}"
            )
    for line in evidence.of("refused"):
        if line["txn"] and evidence.committed(line["txn"]) and line["error"] not in UNDECIDED:
            yield f"transaction {line['txn']} was refused with {line['error']} and is committed"


def _hidden(evidence: Evidence) -> Iterator[str]:
    """An overwrite, or a drop, hides lower write ids: it must have seen those (P30, P22)."""
    for table_id, writes in evidence.writes.items():
        done = [write for write in writes if evidence.committed(write["txn"])]
        for over in [write for write in done if write["kind"] == "overwrite"]:
            seen = ValidWriteIdList.parse(over["list"])
            for write in done:
                if (
                    write["partition"] == over["partition"]
                    and write["txn"] != over["txn"]
                    and write["write_id"] < over["write_id"]
                    and not seen.is_valid(write["write_id"])
                ):
                    yield (
                        f"table {table_id}: the overwrite of write id {over['write_id']} hides"
                        f" write id {write['write_id']}, committed and not seen by it"
                    )
    for write in evidence.of("write"):
        if write["table"] != SOLID_TABLE or not evidence.committed(write["txn"]):
            continue
        below = sum(
            floor < write["write_id"] for floor in evidence.floors.get(write["partition"], ())
        )
        before = sum(
            line["at"] < evidence.asked[write["txn"]]
            for line in evidence.of("dropped")
            if line["table"] == SOLID_TABLE and line["partition"] == write["partition"]
        )
        if below < before:
            yield (
                f"write id {write['write_id']} of {SOLID_TABLE} was committed after {before} drops"
                f" of its partition, and only {below} are below it: its rows are hidden"
            )


def _deleted_twice(evidence: Evidence) -> Iterator[str]:
    """The first committer wins: nobody else deletes the same row (T31)."""
    by: dict[int, list[int]] = defaultdict(list)
    for write in evidence.of("write"):
        if write["kind"] == "delete" and evidence.committed(write["txn"]):
            for row in write["ids"]:
                by[row].append(write["txn"])
    for row, txns in by.items():
        if any(first != second for first, second in pairwise(sorted(txns))):
            yield f"row {row} was deleted by the committed transactions {txns}"
