"""Statements as values; nothing runs here.

Names are in lower case, with or without a database, as written. Queries and expressions are texts
as written, see `text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.merge_clauses import MergeAction
from acid_platform.metastore.pasts import AsOf
from acid_platform.sql.text import Expression, Query


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """`(year=2013, month)`: columns with fixed values, as text, and columns set by the rows."""

    fixed: Mapping[str, str | None] = field(default_factory=dict)
    dynamic: tuple[str, ...] = ()


# --- reading --------------------------------------------------------------------------------------


class ShowKind(Enum):
    """What a SHOW or DESCRIBE lists."""

    DATABASES = "databases"
    TABLES = "tables"
    PARTITIONS = "partitions"
    CREATE_TABLE = "create table"
    TRANSACTIONS = "transactions"
    LOCKS = "locks"
    COMPACTIONS = "compactions"
    TAGS = "tags"
    COLUMNS = "columns"
    FORMATTED = "formatted"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Show:
    """`name` is a table, or the database of SHOW TABLES; `like` is Hive's pattern or empty."""

    listing: ShowKind
    name: str = ""
    like: str = ""


# --- changing rows --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValuesRows:
    """The rows of VALUES."""

    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO or OVERWRITE; without `columns`, all by position, partition columns last."""

    table: str
    source: Query | ValuesRows
    columns: tuple[str, ...] = ()
    partition: PartitionSpec | None = None
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """`target = value` of SET; the target's parts are in lower case."""

    target: tuple[str, ...]
    value: Expression


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE; `alias` is the name of the table if it is not `aliased`."""

    table: str
    alias: str
    assignments: tuple[Assignment, ...]
    where: Expression | None = None
    aliased: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE; `alias` is the name of the table if it is not `aliased`."""

    table: str
    alias: str
    where: Expression | None = None
    aliased: bool = False


@dataclass(frozen=True, slots=True)
class When:
    """A WHEN clause; INSERT without `columns` takes all by position, with `values` None by name."""

    verb: MergeAction
    condition: Expression | None = None
    assignments: tuple[Assignment, ...] = ()
    columns: tuple[str, ...] = ()
    values: tuple[Expression, ...] | None = ()


@dataclass(frozen=True, slots=True)
class MergeInto:
    """MERGE; `alias` is the name of the table if it is not `aliased`.

    `source_database` is that of a source without an alias, '' for the current one; None for others.
    """

    table: str
    alias: str
    source: Query
    source_alias: str
    on: Expression
    whens: tuple[When, ...]
    aliased: bool = False
    source_database: str | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    table: str
    partition: PartitionSpec | None = None


Change = Insert | Update | Delete | MergeInto | Truncate


# --- declaring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropDatabase:
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE; `columns` is Hive's text, empty with `query`; then `keys` may lack types."""

    name: str
    columns: str
    keys: tuple[str, ...] = ()
    clustered_by: tuple[tuple[str, ...], int] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    if_not_exists: bool = False
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class CreateView:
    name: str
    query: Query
    columns: tuple[str, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    name: str
    if_exists: bool = False
    view: bool = False


@dataclass(frozen=True, slots=True)
class AddColumns:
    table: str
    columns: str


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """CHANGE COLUMN to `column`, a name and type; `after` is a column, '' for FIRST, or None."""

    table: str
    old: str
    column: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class RenameTable:
    table: str
    to: str


@dataclass(frozen=True, slots=True)
class AddPartitions:
    table: str
    partitions: tuple[PartitionSpec, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """DROP PARTITION; a spec may omit columns and then stands for all partitions that match."""

    table: str
    partitions: tuple[PartitionSpec, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetProperties:
    table: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RollBack:
    """ALTER TABLE … ROLLBACK TO a write id, a timestamp or a tag."""

    table: str
    as_of: AsOf


@dataclass(frozen=True, slots=True)
class CreateTag:
    """`as_of` None: the present snapshot; `days` 0: the tag does not expire."""

    table: str
    name: str
    as_of: AsOf | None = None
    days: int = 0


@dataclass(frozen=True, slots=True)
class DropTag:
    table: str
    name: str
    if_exists: bool = False


Definition = (
    CreateDatabase
    | DropDatabase
    | CreateTable
    | CreateView
    | DropTable
    | AddColumns
    | ChangeColumn
    | RenameTable
    | AddPartitions
    | DropPartitions
    | SetProperties
    | RollBack
    | CreateTag
    | DropTag
)


# --- the session, and operating -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Use:
    name: str


@dataclass(frozen=True, slots=True)
class SetValue:
    """SET name=value; shows the setting without a value, all changed settings without a name."""

    name: str = ""
    value: str | None = None


class Control(Enum):
    START = "START TRANSACTION"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


@dataclass(frozen=True, slots=True)
class Compact:
    table: str
    kind: CompactionKind
    partition: PartitionSpec | None = None
    wait: bool = False


@dataclass(frozen=True, slots=True)
class AbortTransactions:
    """ABORT TRANSACTIONS or ABORT COMPACTIONS."""

    ids: tuple[int, ...]
    compactions: bool = False


@dataclass(frozen=True, slots=True)
class Explain:
    statement: Query | Change


Statement = (
    Query
    | Show
    | Change
    | Definition
    | Use
    | SetValue
    | Control
    | Compact
    | AbortTransactions
    | Explain
)

SUPPORTED = (
    "SELECT",
    "INSERT INTO",
    "INSERT OVERWRITE",
    "UPDATE",
    "DELETE",
    "MERGE INTO",
    "TRUNCATE TABLE",
    "START TRANSACTION, COMMIT, ROLLBACK",
    "USE",
    "SET",
    "CREATE and DROP DATABASE, TABLE, VIEW",
    "ALTER TABLE (ADD COLUMNS, CHANGE, RENAME TO, ADD and DROP PARTITION, SET TBLPROPERTIES,"
    " COMPACT, ROLLBACK TO, CREATE and DROP TAG)",
    "SHOW (DATABASES, TABLES, PARTITIONS, CREATE TABLE, TRANSACTIONS, LOCKS, COMPACTIONS, TAGS)",
    "DESCRIBE [FORMATTED | HISTORY]",
    "ABORT TRANSACTIONS, COMPACTIONS",
    "EXPLAIN",
)
"""The supported statements, for messages."""
