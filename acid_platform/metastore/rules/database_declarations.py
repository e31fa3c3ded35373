"""Declarations of databases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from acid_platform.errors import InvalidDefinition, NoSuchTable, TableExists
from acid_platform.layout.declarable import refuse_path_trouble
from acid_platform.layout.sql_text import has_half_character
from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import PLATFORM_OWNER, DatabaseRecord, OwnerKind
from acid_platform.metastore.rules.events import Event
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.turn import Turn, handles


@handles(ops.DeclareDatabase)
def create_database(turn: Turn, operation: ops.DeclareDatabase) -> None:
    name = operation.name.lower()
    if name in turn.state.databases:
        if operation.if_not_exists:
            return
        raise TableExists(f"database {name} exists; use if_not_exists, or another name")
    refuse_path_trouble("the name of a database", name)
    if "." in name:
        raise InvalidDefinition(f"the name of a database {name!r} has a dot; take another name")
    made = DatabaseCreated(
        name,
        operation.comment,
        dict(operation.properties),
        operation.owner or PLATFORM_OWNER,
        operation.owner_kind,
    )
    _refuse_half_texts_of(made)
    turn.record(made)


@handles(ops.AlterDatabase)
def alter_database(turn: Turn, operation: ops.AlterDatabase) -> DatabaseRecord:
    """Raises NoSuchTable, InvalidDefinition."""
    record = database(turn.state, operation.name)
    if operation.comment is not None:
        record = replace(record, comment=operation.comment)
    if operation.properties is not None:
        merged = {**record.properties, **operation.properties}
        present = {key: value for key, value in merged.items() if value is not None}
        record = replace(record, properties=present)
    if operation.owner is not None:
        if not operation.owner:
            raise InvalidDefinition(f"database {record.name} needs an owner with a name")
        record = replace(record, owner=operation.owner, owner_kind=operation.owner_kind)
    _refuse_half_texts_of(record)
    turn.record(DatabaseAltered(record))
    return record


def database(state: State, name: str) -> DatabaseRecord:
    """Raises NoSuchTable."""
    record = state.databases.get(name.lower())
    if record is None:
        raise NoSuchTable(f"there is no database {name.lower()}; see databases()")
    return record


def _refuse_half_texts_of(declared: DatabaseRecord | DatabaseCreated) -> None:
    texts = {"comment": declared.comment, "owner": declared.owner, **declared.properties}
    refuse_half_texts(f"database {declared.name}", texts)


def refuse_half_texts(what: str, texts: Mapping[str, str]) -> None:
    """Raises InvalidDefinition for a text that can't be stored; `what` has these texts."""
    for name, text in texts.items():
        if has_half_character(name + text):
            raise InvalidDefinition(
                f"{what}: {name!a} holds half of a character (a lone surrogate); remove it"
            )


@handles(ops.RemoveDatabase)
def drop_database(turn: Turn, operation: ops.RemoveDatabase) -> None:
    name = database(turn.state, operation.name).name
    names = (*turn.state.names, *turn.state.views)
    inside = sorted(member for member in names if member.startswith(f"{name}."))
    if name == "default" or inside:
        what = "is always there" if name == "default" else f"holds {', '.join(inside)}; drop them"
        raise InvalidDefinition(f"database {name} can't be dropped: it {what}")
    turn.record(DatabaseDropped(name=name))


@handles(ops.GetDatabase)
def get_database(turn: Turn, operation: ops.GetDatabase) -> DatabaseRecord:
    """Raises NoSuchTable."""
    return database(turn.state, operation.name)


class DatabaseCreated(Event, kind="database"):
    name: str
    comment: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    owner: str = PLATFORM_OWNER
    owner_kind: OwnerKind = OwnerKind.USER

    def apply(self, state: State, at: int) -> None:
        state.databases[self.name] = DatabaseRecord(
            self.name, at, self.comment, self.properties, self.owner, self.owner_kind
        )


class DatabaseAltered(Event, kind="database_altered"):
    database: DatabaseRecord

    def apply(self, state: State, _at: int) -> None:
        state.databases[self.database.name] = self.database


class DatabaseDropped(Event, kind="database_dropped"):
    name: str

    def apply(self, state: State, _at: int) -> None:
        del state.databases[self.name]
