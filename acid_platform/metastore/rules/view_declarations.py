"""Views: named queries, in the same name space as the tables."""

from __future__ import annotations

from dataclasses import replace

from acid_platform.errors import InvalidDefinition, NoSuchTable, TableExists
from acid_platform.layout.declarable import refuse_path_trouble
from acid_platform.metastore.operations.tables import (
    DeclareView,
    DropView,
)
from acid_platform.metastore.rules import events
from acid_platform.metastore.rules.state import EarlierView, State
from acid_platform.metastore.rules.turn import Effects, Handlers, Turn
from acid_platform.metastore.table_names import table_name


def create_view(turn: Turn, operation: DeclareView) -> None:
    """Raises TableExists, InvalidDefinition."""
    record = operation.view
    name = table_name(record.name)
    database = name.partition(".")[0]
    if name in turn.state.names:
        raise TableExists(f"{name} is a table; give the view another name")
    if name in turn.state.views and not operation.or_replace:
        if operation.if_not_exists:
            return
        raise TableExists(f"view {name} exists; CREATE OR REPLACE VIEW, or use another name")
    refuse_path_trouble("the name of a view", name.partition(".")[2])
    if database not in turn.state.databases:
        raise InvalidDefinition(f"there is no database {database}; create_database({database!r})")
    turn.record(events.ViewCreated(replace(record, name=name, created=turn.now)))


def drop_view(turn: Turn, operation: DropView) -> None:
    """Raises NoSuchTable."""
    name = table_name(operation.name)
    if name not in turn.state.views:
        raise NoSuchTable(f"there is no view {name}; SHOW TABLES lists tables and views")
    turn.record(events.ViewDropped(name=name))


def _view(state: State, _at: int, event: events.ViewCreated) -> None:
    record = replace(event.view, version=state.moment())
    _keep_earlier(state, record.name, record.version)
    state.views[record.name] = record


def _view_dropped(state: State, _at: int, event: events.ViewDropped) -> None:
    _keep_earlier(state, event.name, state.moment())
    del state.views[event.name]


def _keep_earlier(state: State, name: str, moment: int) -> None:
    """Keeps the present view for open snapshots (P28)."""
    earlier = state.views.get(name)
    if earlier is not None:
        state.earlier_views.append(EarlierView(earlier, moment))


APPLY: Effects = {
    events.ViewCreated: _view,
    events.ViewDropped: _view_dropped,
}

HANDLERS: Handlers = {
    DeclareView: create_view,
    DropView: drop_view,
}
