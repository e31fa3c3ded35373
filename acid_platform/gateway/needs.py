"""What calls need: the verbs of which the user must have one, and the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from acid_platform.gateway.external_writes import is_deletes
from acid_platform.gateway.protocol import LOCK_TYPES, LONGEST_RANGE, OPERATIONS
from acid_platform.metastore.records import WriteReport
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType


class Verb(StrEnum):
    """What may be done to a table. `admin` stands for what belongs to no table."""

    READ = "read"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"
    ADMIN = "admin"


ANY = "*"
SEE = tuple(verb for verb in Verb if verb is not Verb.ADMIN)
"""Declarations and write ids are shown to everybody who may do something to the table."""
_CHANGE = (Verb.ALTER, Verb.DROP, Verb.CREATE)
_WRITE = (Verb.INSERT, Verb.UPDATE, Verb.DELETE)
_ADD_PARTITIONS = (Verb.INSERT, Verb.ALTER)
_STATISTICS = (*_WRITE, Verb.ALTER)
_VERBS = {
    RowOperation.SELECT: (Verb.READ,),
    RowOperation.INSERT: (Verb.INSERT,),
    RowOperation.UPDATE: (Verb.UPDATE,),
    RowOperation.DELETE: (Verb.DELETE,),
}


@dataclass(frozen=True, slots=True)
class Need:
    """One of the verbs, on `database.table`; `*` is every table or database."""

    verbs: tuple[Verb, ...]
    table: str


_ADDS, _REPLACES = (Verb.INSERT, Verb.UPDATE), (Verb.UPDATE, Verb.DELETE)
"""New rows come from an INSERT or an UPDATE; delete events, and bases that hide what was there,
from an UPDATE or a DELETE."""


def _named(database: str | None, table: str | None) -> str:
    return f"{(database or ANY).lower()}.{(table or ANY).lower()}"


DATABASE_FIELDS = ("dbName", "dbname", "db_name", "databaseName")
"""The fields of requests that name a database."""
_TABLE = ("tblName", "tablename", "tbl_name", "tableName")


def _of_request(request: Any) -> str:
    """The table that a struct names."""

    def first(names: Sequence[str]) -> str | None:
        return next(filter(None, (getattr(request, name, None) for name in names)), None)

    return _named(first(DATABASE_FIELDS), first(_TABLE))


def _table(arguments: Sequence[Any]) -> str:
    """The table that the arguments name: in a struct, or as database and table."""
    first = arguments[0] if arguments else None
    if isinstance(first, str):
        second = arguments[1] if len(arguments) > 1 else None
        return _named(first, second if isinstance(second, str) else None)
    return _of_request(first)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a call needs, and the same in words for docs/internal/rights.md."""

    needs: Callable[..., Iterable[Need]]
    """By the call's arguments."""
    words: str
    at_commit: str = ""
    """What is checked again when the transaction commits."""


def _words(verbs: Sequence[Verb], what: str) -> str:
    names = "any verb" if tuple(verbs) == SEE else " or ".join(f"`{verb}`" for verb in verbs)
    return f"{names} on {what}"


def _one(*verbs: Verb) -> Rule:
    return Rule(lambda *arguments: [Need(verbs, _table(arguments))], _words(verbs, "the table"))


def _each(verbs: Sequence[Verb], structs: Callable[..., Iterable[Any]], what: str) -> Rule:
    """One of the verbs on the table of each struct that `structs` takes out of the arguments."""

    def needs(*arguments: Any) -> list[Need]:
        tables = {_of_request(request) for request in structs(*arguments)}
        return [Need(tuple(verbs), table) for table in sorted(tables)]

    return Rule(needs, _words(verbs, what))


def _several(database: str, names: Sequence[str] | None) -> list[Need]:
    """get_table_objects_by_name: a database and tables in it."""
    return [Need(SEE, _named(database, name)) for name in names or ()]


def _several_req(request: Any) -> list[Need]:
    if request.tblNames is None:
        return [Need(SEE, _named(request.dbName, None))]
    return _several(request.dbName, request.tblNames)


def _database(*verbs: Verb) -> Rule:
    def needs(first: Any, *_arguments: Any) -> list[Need]:
        name = first if isinstance(first, str) else getattr(first, "name", None)
        name = name or getattr(first, "databaseName", None)
        return [Need(verbs, _named(name, None))]

    return Rule(needs, _words(verbs, "all tables of the database"))


def _altered(*arguments: Any) -> list[Need]:
    """alter_table: a new name is a table that is made."""
    table, first = _table(arguments), arguments[0]
    new = arguments[2] if isinstance(first, str) else first.table
    renamed = _of_request(new)
    made = [Need((Verb.CREATE,), renamed)] if renamed != table else []
    return [Need((Verb.ALTER,), table), *made]


def _keys(request: Any) -> list[Need]:
    """get_foreign_keys: without a table that has them, the keys of all tables are told."""
    table = request.foreign_tbl_name
    return [Need(SEE, _named(request.foreign_db_name if table else None, table))]


def _listed(request: Any) -> list[Need]:
    """get_valid_write_ids: names with their databases."""
    return [
        Need(SEE, name.lower())
        for name in request.fullTableNames or ()
        if not name.startswith("_dummy_database.")
    ]


def _locked(request: Any) -> list[Need]:
    """lock: what each part of the request is for, and whom its lock keeps out."""
    return [
        Need(verbs, _named(part.dbname, part.tablename))
        for part in request.component or ()
        if part.dbname != "_dummy_database"
        for verbs in _verbs_of_lock(part)
    ]


def _verbs_of_lock(part: Any) -> list[tuple[Verb, ...]]:
    """The verbs of the operation, and of the lock if it is stronger than that operation's own."""
    lock, operation = LOCK_TYPES.get(part.type), OPERATIONS.get(part.operationType)
    own: list[tuple[Verb, ...]] = [_VERBS[operation]] if operation is not None else []
    if operation in (RowOperation.UPDATE, RowOperation.DELETE):
        return own  # Hive's INSERT OVERWRITE is an update that may keep all others out
    if lock is LockType.SHARED_READ:
        # Without operation and table it is a statement that works in the database.
        return own or ([SEE] if part.tablename else [])
    if lock is LockType.SHARED_WRITE and operation is RowOperation.INSERT:
        return own
    return [*own, _CHANGE if lock is LockType.EXCLUSIVE else (Verb.UPDATE,)]


def _described(first: Any) -> Iterable[Any]:
    """The descriptions, which name the table, of statistics that an engine sets."""
    several = getattr(first, "colStats", None)
    return [part.statsDesc for part in (several if several is not None else [first])]


_EVERYTHING = Need((Verb.ADMIN,), f"{ANY}.{ANY}")

NOTHING = Rule(lambda *_arguments: (), "nothing")
ADMIN = Rule(lambda *_arguments: [_EVERYTHING], "`admin` on everything")
SEE_TABLE = _one(*SEE)
SEE_KEYS = Rule(_keys, _words(SEE, "the table that has the keys"))
SEE_NAMED = Rule(_several, _words(SEE, "each table"))
SEE_REQUESTED = Rule(_several_req, _words(SEE, "each table"))
SEE_LISTED = Rule(_listed, _words(SEE, "each table"))
LOCK = Rule(
    _locked,
    "the verb of each part's operation on its table, and for a stronger lock than that"
    " takes itself `update`, or for EXCLUSIVE `alter` or `drop` or `create`",
    "that no more was written than it was for",
)
WRITE = replace(_one(*_WRITE), at_commit="that all directories have this write id")
COMMIT = replace(
    NOTHING,
    at_commit="for each directory, the verbs of what it holds, now; a lock of an operation that"
    " announced it; the transaction's write id",
)
CREATE_TABLE = _one(Verb.CREATE)
CREATE_REQUESTED = _each((Verb.CREATE,), lambda request: [request.table], "the table")
CREATE_DATABASE, ALTER_DATABASE = _database(Verb.CREATE), _database(Verb.ALTER)
DROP_DATABASE = _database(Verb.DROP)
DROP_TABLE, EMPTY_TABLE = _one(Verb.DROP), _one(Verb.DELETE)
ALTER_TABLE = Rule(_altered, "`alter` on the table; for another name also `create` on that")
ADD_PARTITION = _one(*_ADD_PARTITIONS)
ADD_PARTITIONS = _each(_ADD_PARTITIONS, lambda parts: parts or (), "the table of each partition")
ADD_REQUESTED = _each(
    _ADD_PARTITIONS,
    # The request names the table, and each partition again.
    lambda request: (request, *(request.parts or ())),
    "the table of each partition",
)
DROP_PARTITION = _one(Verb.DROP, Verb.ALTER)
KEEP_STATISTICS = _one(*_STATISTICS)
SET_STATISTICS = _each(_STATISTICS, _described, "the table of each description")
COMPACT = _one(Verb.ALTER)
MAY_WAIT = (DROP_DATABASE, DROP_TABLE, DROP_PARTITION)
"""The rules of calls that wait for a lock of their own."""


def needs_of_commit(writes: Iterable[WriteReport]) -> list[Need]:
    """What a commit needs for the directories that it publishes, whatever was locked for them."""
    needs = {
        Need(_REPLACES if write.overwrite or is_deletes(write.directory) else _ADDS, write.table)
        for write in writes
    }
    return sorted(needs, key=lambda need: (need.table, need.verbs))


def one_txn(request: Any) -> list[int]:
    """The transaction that a request names."""
    return [request.txnid] if request.txnid else []


def txn_range(request: Any) -> Iterable[int]:
    """The transactions from `min` to `max`; none if there are too many, which the call refuses."""
    short = 0 <= request.max - request.min < LONGEST_RANGE
    return range(request.min, request.max + 1) if short else ()


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call of the protocol: what answers it, and what is asked before."""

    answer: Callable[..., Any] | None
    """Gets the gateway and the call's arguments. None: the call is refused for everybody."""
    rule: Rule
    txns: Callable[[Any], Iterable[int]] | None = None
    """The transactions that it uses, by its first argument: they have to be the caller's own."""
    own_lock: bool = False
    """Whether it uses the lock request of its first argument: it has to be the caller's own."""

    def needs(self, arguments: Sequence[Any]) -> list[Need]:
        """What it needs; a struct that lacks a field needs the right to all it could name."""
        try:
            return list(self.rule.needs(*arguments))
        except (AttributeError, TypeError, ValueError):  # a required argument is missing
            return [_EVERYTHING]

    def transactions(self, arguments: Sequence[Any]) -> Iterable[int]:
        """The transactions that these arguments name and the call uses."""
        first = arguments[0] if arguments else None
        return () if self.txns is None or first is None else self.txns(first)

    def lock(self, arguments: Sequence[Any]) -> int:
        """The lock request that these arguments name and the call uses; 0 for none."""
        first = arguments[0] if arguments else None
        return int(first.lockid or 0) if self.own_lock and first is not None else 0
