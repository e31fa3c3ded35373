"""Statements with expressions as values; nothing runs here. All others are a `commands.Command`.

Names are in lower case, with or without a database, as written. Queries and expressions are texts
as written, see `text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from acid_platform.engine.merge_clauses import MergeAction
from acid_platform.sql.commands import Command
from acid_platform.sql.partition_specs import PartitionSpec
from acid_platform.sql.text import Expression, Query

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


Statement = Query | Change | Command
"""CREATE TABLE and CREATE VIEW are commands that take a CreateTable or CreateView."""
