"""Declarations of databases, and of views: named queries in the same name space as the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from acid_platform.base.arguments import refuse_half_characters
from acid_platform.errors import DeclarationChanged, InvalidDefinition, NoSuchTable, TableExists
from acid_platform.layout.names import refuse_shared_name, table_name
from acid_platform.layout.table_properties import refuse_promises
from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import PLATFORM_OWNER, DatabaseRecord, OwnerKind, ViewRecord
from acid_platform.metastore.rules.state import EarlierView, State
from acid_platform.metastore.rules.turn import Event, Turn, handles


@handles(ops.DeclareDatabase)
def create_database(turn: Turn, operation: ops.DeclareDatabase) -> None:
    name = operation.name.lower()
    if name in turn.state.databases:
        if operation.if_not_exists:
            return
        raise TableExists(f"database {name} exists; use if_not_exists, or another name")
    refuse_shared_name("the name of a database", name)
    made = DatabaseCreated(
        name,
        operation.comment,
        dict(operation.properties),
        operation.owner or PLATFORM_OWNER,
        operation.owner_kind,
    )
    _refuse_half_texts_of(made)
    refuse_promises(f"database {made.name}", made.properties)
    turn.record(made)


@handles(ops.AlterDatabase)
def alter_database(turn: Turn, operation: ops.AlterDatabase) -> DatabaseRecord:
    """Raises NoSuchTable, InvalidDefinition."""
    record = database(turn.state, operation.name)
    if operation.comment is not None:
        record = replace(record, comment=operation.comment)
    if operation.properties is not None:
        refuse_promises(f"database {record.name}", operation.properties)
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


def _refuse_promises_of(view: ViewRecord, properties: Mapping[str, str | None]) -> None:
    refuse_promises(view.name, properties, external=view.external is not None)


def refuse_half_texts(what: str, texts: Mapping[str, str]) -> None:
    """Raises InvalidDefinition for a text that can't be stored; `what` has these texts."""
    for name, text in texts.items():
        refuse_half_characters(f"{name}={text}", f"{what}:", InvalidDefinition)


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


@handles(ops.DeclareView)
def create_view(turn: Turn, operation: ops.DeclareView) -> None:
    """Raises TableExists, InvalidDefinition."""
    record = operation.view
    name = table_name(record.name)
    database = name.partition(".")[0]
    kind = "view" if record.external is None else "table"
    if name in turn.state.names:
        if kind == "table" and operation.if_not_exists:
            return
        raise TableExists(f"{name} is a table; give the {kind} another name")
    if name in turn.state.views and not operation.or_replace:
        if operation.if_not_exists:
            return
        how = "CREATE OR REPLACE VIEW" if kind == "view" else "use if_not_exists"
        raise TableExists(f"{kind} {name} exists; {how}, or use another name")
    _require_present(turn.state, operation)
    refuse_shared_name("the name of a view", name.partition(".")[2])
    if database not in turn.state.databases:
        raise InvalidDefinition(f"there is no database {database}; create_database({database!r})")
    refuse_half_texts(f"view {name}", {**record.properties, **record.comments})
    _refuse_promises_of(record, record.properties)
    turn.record(ViewCreated(replace(record, name=name, created=turn.now)))


def _require_present(state: State, operation: ops.DeclareView) -> None:
    """Raises DeclarationChanged unless what is replaced is what the change is based on, TableExists
    for a view in the place of an external table, or the other way round."""
    name = table_name(operation.view.name)
    present = state.views.get(name)
    if operation.read and (present is None or present.version != operation.read):
        raise DeclarationChanged(
            f"{name} was altered or made again since it was read; read it again"
        )
    if present is not None and (present.external is None) != (operation.view.external is None):
        what = "a view" if present.external is None else "an external table"
        raise TableExists(f"{name} is {what}; drop it, or use another name")


@handles(ops.DropView)
def drop_view(turn: Turn, operation: ops.DropView) -> None:
    """Raises NoSuchTable."""
    name = table_name(operation.name)
    if name not in turn.state.views:
        raise NoSuchTable(f"there is no view {name}; SHOW TABLES lists tables and views")
    turn.record(ViewDropped(name=name))


class ViewCreated(Event, kind="view"):
    view: ViewRecord

    def apply(self, state: State, _at: int) -> None:
        record = replace(self.view, version=state.moment())
        _keep_earlier(state, record.name, record.version)
        state.views[record.name] = record


class ViewDropped(Event, kind="view_dropped"):
    name: str

    def apply(self, state: State, _at: int) -> None:
        _keep_earlier(state, self.name, state.moment())
        del state.views[self.name]


def _keep_earlier(state: State, name: str, moment: int) -> None:
    earlier = state.views.get(name)
    if earlier is not None:
        state.earlier_views.append(EarlierView(earlier, moment))
