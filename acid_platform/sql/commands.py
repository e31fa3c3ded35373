"""The mechanism of statements that a pattern recognises: each is one function and its entry.

    @DEFINITIONS("ALTER TABLE ADD COLUMNS", rf"{ALTER} add columns ?\\((?P<columns>.+)\\)")
    def add_columns(run: CommandRun, table: str, columns: str) -> None:

The groups of the pattern are the arguments of the function, converted by their names; a group that
has not matched is left out. A function that answers nothing is answered with `OK`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from acid_platform.compaction.states import CompactionKind
from acid_platform.errors import InvalidExpression
from acid_platform.metastore.records import OwnerKind
from acid_platform.sql.answers import Done
from acid_platform.sql.partition_specs import PartitionSpec, arguments, partition_specs
from acid_platform.sql.text import tokens_of
from acid_platform.sql.time_travel import timestamp
from acid_platform.tables.external_tables import as_table

if TYPE_CHECKING:
    from acid_platform.handles.table import Table
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.layout.constraints import Constraint
    from acid_platform.metastore.client.metastore import Metastore
    from acid_platform.metastore.records import TableRecord, ViewRecord
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


def _unquoted(name: str) -> str:
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
        self, name: str, pattern: str, explain: Callable[..., Outcome] | None = None
    ) -> Callable[[_Function], _Function]:
        """Enters the decorated function under the name for messages and its pattern."""

        def enter(function: _Function) -> _Function:
            command = Command(name, function, {}, self._alone, explain)
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
