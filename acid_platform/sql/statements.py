"""Statements as values; nothing runs here.

Those with expressions have a class each. Names are in lower case, with or without a database, as
written; queries and expressions are texts as written, see `text`. Every other statement is a
`Command`, which a pattern recognises: one function and its entry.

    @DEFINITIONS("ALTER TABLE ADD COLUMNS", rf"{ALTER} add columns ?\\((?P<columns>.+)\\)")
    def add_columns(run: CommandRun, table: str, columns: str) -> None:

The groups of the pattern are the arguments of the function, converted by their names; a group that
has not matched is left out. A function that answers nothing is answered with `OK`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.merge_clauses import MergeAction
from acid_platform.errors import InvalidExpression
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Constraint
from acid_platform.metastore.records import OwnerKind, TableRecord
from acid_platform.sql.answers import Done
from acid_platform.sql.column_lists import PartitionSpec, arguments, partition_specs
from acid_platform.sql.scopes import full_name, stored_tables
from acid_platform.sql.text import Expression, Query, query, tokens_of
from acid_platform.sql.time_travel import stored_name, timestamp
from acid_platform.tables.external_tables import as_table
from acid_platform.transactions.concurrency import Statement as Locked

if TYPE_CHECKING:
    from acid_platform.handles.table import Table
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import Metastore
    from acid_platform.metastore.records import ViewRecord
    from acid_platform.sql.answers import Outcome
    from acid_platform.sql.catalog import Catalog
    from acid_platform.sql.sql_session import SqlSession

ONE = r"(?:`[^`]+`|\w+)"
"""A name of one part."""
NAME = rf"(?:{ONE}(?:\.{ONE})?)"
TABLE = rf"(?P<table>{NAME})"
ALTER = rf"alter table {TABLE}"
LIKE = r"(?: (?:like )?'(?P<like>[^']*)')?"
SPEC = r"(?P<spec>partition ?\(.+?\))"
NAMES = rf"{ONE}(?: ?, ?{ONE})*"
LABEL = r"(?:`[^`]+`|'[^']+'|\w+)"
"""The name of a tag or an owner."""
TEXT = r"'(?:[^'\\]|\\.)*'"
"""A text in quotes, in its canonical form."""
COMMENTED = rf"(?:null|(?P<comment>{TEXT}))"
"""What follows IS in COMMENT ON."""


def _unquoted(name: str) -> str:
    """Raises InvalidExpression for several parts in one pair of quotes, which are one name."""
    for quoted_part in re.findall(r"`[^`]+`", name):
        if "." in quoted_part:
            parts = quoted_part.replace(".", "`.`")
            raise InvalidExpression(f"{quoted_part} is one name; quote each part alone: {parts}")
    return name.replace("`", "").lower()


def _label(name: str) -> str:
    return name[1:-1] if name[0] in "`'" else name


def _properties(text: str) -> dict[str, str]:
    """Parses `'a'='b', 'c'='d'`. Raises InvalidExpression."""
    values: dict[str, str] = {}
    for part in arguments(text):
        if not isinstance(part, exp.EQ):
            raise InvalidExpression(f"PROPERTIES: {part.sql('hive')!r} is not 'name'='value'")
        values[part.this.name] = part.expression.name
    return values


def _texts(text: str) -> tuple[str, ...]:
    """Parses `'a', 'b'`. Raises InvalidExpression."""
    parts = arguments(text)
    for part in parts:
        if not (isinstance(part, exp.Literal) and part.is_string):
            raise InvalidExpression(f"TBLPROPERTIES: {part.sql('hive')!r} is not 'name'")
    return tuple(part.name for part in parts)


_CONVERTERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("table", "database", "to", "old", "new", "field"), _unquoted),
    # FIRST names no column, and AFTER one.
    "after": lambda text: _unquoted(text.partition(" ")[2]),
    "names": lambda text: tuple(map(_unquoted, re.findall(ONE, text))),
    **dict.fromkeys(("tag", "label", "owner"), _label),
    "comment": lambda text: tokens_of(text)[0].text,
    **dict.fromkeys(("if_exists", "if_not_exists", "cascade", "wait", "extended"), bool),
    **dict.fromkeys(("version", "days"), int),
    "ids": lambda text: tuple(map(int, re.findall(r"\d+", text))),
    "kind": lambda text: CompactionKind(text.lower()),
    "keys": _texts,
    "owner_kind": lambda text: OwnerKind(text.upper()),
    "properties": _properties,
    **dict.fromkeys(("spec", "new_spec"), PartitionSpec.of),
    "specs": partition_specs,
    "compared_specs": lambda text: partition_specs(text, comparing=True),
    "time": timestamp,
    "value": str.strip,
}
"""By the name of the group; other groups are texts."""


@dataclass(frozen=True, slots=True)
class Command:
    """A statement of a table of commands, with its arguments; `alone`: not in a transaction."""

    name: str
    function: Callable[..., Outcome | None] = field(repr=False)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = False
    explain: Callable[..., Outcome] | None = field(default=None, repr=False)
    """Called with the same arguments, it tells what the function would do."""

    def run(self, session: SqlSession, catalog: Catalog) -> Outcome:
        return self.function(CommandRun(session, catalog), **self.arguments) or Done(self.name)


@dataclass(frozen=True, slots=True)
class CommandRun:
    """What a command runs in: a session, and the declarations at its statement."""

    session: SqlSession
    catalog: Catalog

    @property
    def warehouse(self) -> Warehouse:
        return self.session.warehouse

    @property
    def metastore(self) -> Metastore:
        return self.session.warehouse.metastore

    def handle(self, table: str) -> Table:
        """Raises NoSuchTable, UnsupportedStatement for a view."""
        return self.warehouse.table(self.catalog.target(table).name)

    def declared(self, table: str) -> tuple[TableRecord, ViewRecord | None]:
        """A table; an external one also as the metastore has it. Raises as `handle`."""
        external = self.catalog.external(self.catalog.full(table))
        return (self.catalog.target(table) if external is None else as_table(external)), external

    def in_database(self, constraint: Constraint) -> Constraint:
        """The constraint with the full name of the table that it refers to."""
        parent = constraint.parent and self.catalog.full(constraint.parent)
        return replace(constraint, parent=parent)


_Function = TypeVar("_Function", bound=Callable[..., Any])


class Commands:
    """A table of commands; `alone`: none of them can be part of a transaction."""

    def __init__(self, alone: bool = False) -> None:
        self._alone = alone
        self.entries: list[tuple[re.Pattern[str], Command]] = []

    def __call__(
        self,
        name: str,
        pattern: str,
        explain: Callable[..., Outcome] | None = None,
        alone: bool = False,
    ) -> Callable[[_Function], _Function]:
        """Enters the decorated function under the name for messages and its pattern; `alone`: it
        can't be part of a transaction, whatever the others of the table can be."""

        def enter(function: _Function) -> _Function:
            command = Command(name, function, {}, self._alone or alone, explain)
            self.entries.append((re.compile(pattern, re.IGNORECASE), command))
            return function

        return enter

    @property
    def names(self) -> Iterator[str]:
        return (command.name for _, command in self.entries)

    def parse(self, plain: str) -> Command | None:
        """The command in a text without comments; None if it is none of this table.

        Raises InvalidExpression for a part that can't be parsed.
        """
        for pattern, command in self.entries:
            if match := pattern.fullmatch(plain):
                values = {
                    group: _CONVERTERS.get(group, str)(text)
                    for group, text in match.groupdict().items()
                    if text is not None
                }
                return replace(command, arguments=values)
        return None


# --- changing rows --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValuesRows:
    """The rows of VALUES."""

    rows: tuple[tuple[Expression, ...], ...]


@dataclass(frozen=True, slots=True)
class RowChange(ABC):
    """A statement that changes rows of `table`."""

    table: str

    @property
    @abstractmethod
    def lock(self) -> Locked:
        """What it locks the table for."""

    @property
    def lock_at_begin(self) -> Locked | None:
        """The lock of the whole table with which a transaction can begin; None if it overwrites one
        partition, which is all that it locks."""
        spec: PartitionSpec | None = getattr(self, "partition", None)
        partition_alone = (
            self.lock is Locked.INSERT_OVERWRITE and spec is not None and not spec.dynamic
        )
        return None if partition_alone else self.lock

    @property
    def parts(self) -> tuple[RowChange, ...]:
        """The statements that it runs, each with one table."""
        return (self,)


@dataclass(frozen=True, slots=True)
class Insert(RowChange):
    """INSERT INTO or OVERWRITE; without `columns`, all by position, partition columns last.

    `if_not_exists`: it does nothing if the partition is there. `by_name`: the columns are those
    that the query names.
    """

    source: Query | ValuesRows
    columns: tuple[str, ...] = ()
    partition: PartitionSpec | None = None
    overwrite: bool = False
    if_not_exists: bool = False
    by_name: bool = False

    @property
    def lock(self) -> Locked:
        return Locked.INSERT_OVERWRITE if self.overwrite else Locked.INSERT


@dataclass(frozen=True, slots=True)
class MultiInsert(RowChange):
    """`FROM … INSERT … INSERT …`; `table` is that of the first, `rows` the query of all their rows.

    Their queries read one snapshot: none sees what another one writes.
    """

    rows: Query
    inserts: tuple[Insert, ...]

    @property
    def lock(self) -> Locked:
        return self.inserts[0].lock

    @property
    def parts(self) -> tuple[RowChange, ...]:
        return self.inserts


@dataclass(frozen=True, slots=True)
class Assignment:
    """`target = value` of SET; the target's parts are in lower case."""

    target: tuple[str, ...]
    value: Expression

    @property
    def asks(self) -> bool:
        """Whether the value has a subquery."""
        return self.value.tree.find(exp.Query) is not None


@dataclass(frozen=True, slots=True)
class Update(RowChange):
    """UPDATE; `alias` is the name of the table if it is not `aliased`."""

    alias: str
    assignments: tuple[Assignment, ...]
    where: Expression | None = None
    aliased: bool = False
    lock = Locked.UPDATE


@dataclass(frozen=True, slots=True)
class Delete(RowChange):
    """DELETE; `alias` is the name of the table if it is not `aliased`."""

    alias: str
    where: Expression | None = None
    aliased: bool = False
    lock = Locked.DELETE


def subquery_values(statement: Update | Delete) -> dict[str, Assignment]:
    """The assignments whose values have subqueries, by the names of these in `rows_of`."""
    assignments = statement.assignments if isinstance(statement, Update) else ()
    return {f"__value_{i}": each for i, each in enumerate(assignments) if each.asks}


def rows_of(statement: Update | Delete, record: TableRecord, columns: str = "*") -> Query:
    """The query of the rows that a statement changes, with the values that subqueries give them."""
    text = f"SELECT {columns}" + "".join(
        f", ({assignment.value.text}) AS {quoted(name)}"
        for name, assignment in subquery_values(statement).items()
    )
    text += f" FROM {'.'.join(map(quoted, record.name.split('.')))}"
    if statement.aliased:
        text += f" AS {quoted(statement.alias)}"
    return query(text if statement.where is None else f"{text} WHERE {statement.where.text}")


@dataclass(frozen=True, slots=True)
class When:
    """A WHEN clause; INSERT without `columns` takes all by position.

    `assignments` and `values` are None for `*`. `by_source`: WHEN NOT MATCHED BY SOURCE.
    """

    verb: MergeAction
    condition: Expression | None = None
    assignments: tuple[Assignment, ...] | None = ()
    columns: tuple[str, ...] = ()
    values: tuple[Expression, ...] | None = ()
    by_source: bool = False


@dataclass(frozen=True, slots=True)
class MergeInto(RowChange):
    """MERGE; `alias` is the name of the table if it is not `aliased`.

    `source_database` is that of a source without an alias, '' for the current one; None for others.
    """

    alias: str
    source: Query
    source_alias: str
    on: Expression
    whens: tuple[When, ...]
    aliased: bool = False
    source_database: str | None = None

    @property
    def lock(self) -> Locked:
        only_inserts = all(when.verb is MergeAction.INSERT for when in self.whens)
        return Locked.MERGE_INSERT if only_inserts else Locked.UPDATE


@dataclass(frozen=True, slots=True)
class Truncate(RowChange):
    partition: PartitionSpec | None = None
    lock = Locked.TRUNCATE


@dataclass(frozen=True, slots=True)
class LoadData(RowChange):
    """LOAD DATA LOCAL INPATH `source`: an INSERT of the rows of files."""

    source: str
    partition: PartitionSpec | None = None
    overwrite: bool = False

    @property
    def lock(self) -> Locked:
        return Locked.INSERT_OVERWRITE if self.overwrite else Locked.INSERT


Change = Insert | MultiInsert | Update | Delete | MergeInto | Truncate | LoadData


def rows_read(part: RowChange, record: TableRecord) -> Query | None:
    """The query whose rows a statement with one table inserts or changes; None: it reads none."""
    match part:
        case Insert(source=Query() as rows) | MergeInto(source=rows):
            return rows
        case Update() | Delete():
            return rows_of(part, record)
    return None


# --- declaring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowFormat:
    """ROW FORMAT and STORED AS: the format's name, a serde of Hive, and its properties."""

    stored: str = ""
    serde: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE; `columns` is Hive's text, empty with `query`; then `keys` may lack types.

    `like`: the table or view whose declaration it takes, or empty.
    """

    name: str
    columns: str
    keys: tuple[str, ...] = ()
    clustered_by: tuple[tuple[str, ...], int] | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    if_not_exists: bool = False
    query: Query | None = None
    like: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)
    """The comments of columns and partition columns, by their names."""
    constraints: tuple[Constraint, ...] = ()
    temporary: bool = False
    """Only this session sees it, until it ends."""
    or_replace: bool = False
    external: RowFormat | None = None
    """How the files of an external table are stored; None for a table of the warehouse."""


@dataclass(frozen=True, slots=True)
class CreateView:
    name: str
    query: Query
    columns: tuple[str, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    comments: Mapping[str, str] = field(default_factory=dict)
    temporary: bool = False
    """Only this session sees it, until it ends; its name is of no database."""


Statement = Query | Change | Command
"""CREATE is a command that takes a CreateTable or CreateView."""


def names_read(statement: object, database: str) -> Iterator[str]:
    """The full names of the tables and views in all queries and expressions of a statement."""
    if isinstance(statement, Query | Expression):
        for table in stored_tables(statement.tree):
            yield stored_name(full_name(table, database))
    elif isinstance(statement, tuple):
        for item in statement:
            yield from names_read(item, database)
    elif is_dataclass(statement) and not isinstance(statement, type):
        for part in fields(statement):
            yield from names_read(getattr(statement, part.name), database)
