"""Views: queries that have a name, out of one name space with the tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acid_platform.errors import InvalidDefinition, NoSuchTable, TableExists
from acid_platform.metastore.codec import decode, encode
from acid_platform.metastore.names import table_name
from acid_platform.metastore.records import ViewRecord
from acid_platform.metastore.rules.state import EarlierView, State
from acid_platform.metastore.rules.turn import Body, Turn


def create_view(turn: Turn, args: Body) -> dict[str, Any]:
    """Raises TableExists, InvalidDefinition."""
    record = decode(ViewRecord, args["view"])
    name = table_name(record.name)
    database = name.partition(".")[0]
    if name in turn.state.names:
        raise TableExists(f"{name} is a table; give the view another name")
    if name in turn.state.views and not args["or_replace"]:
        if args["if_not_exists"]:
            return {}
        raise TableExists(f"view {name} exists; CREATE OR REPLACE VIEW, or use another name")
    if database not in turn.state.databases:
        raise InvalidDefinition(f"there is no database {database}; create_database({database!r})")
    turn.record("view", view=encode(replace(record, name=name, created=turn.now)))
    return {}


def drop_view(turn: Turn, args: Body) -> dict[str, Any]:
    """Raises NoSuchTable."""
    name = table_name(args["name"])
    if name not in turn.state.views:
        raise NoSuchTable(f"there is no view {name}; SHOW TABLES lists tables and views")
    turn.record("view_dropped", name=name)
    return {}


def _view(state: State, at: int, body: Body) -> None:
    record = replace(decode(ViewRecord, body["view"]), version=state.moment())
    _keep_earlier(state, record.name, record.version)
    state.views[record.name] = record


def _view_dropped(state: State, at: int, body: Body) -> None:
    _keep_earlier(state, body["name"], state.moment())
    del state.views[body["name"]]


def _keep_earlier(state: State, name: str, moment: int) -> None:
    """What it was until now, for open snapshots (P28)."""
    earlier = state.views.get(name)
    if earlier is not None:
        state.earlier_views.append(EarlierView(earlier, moment))


APPLY = {"view": _view, "view_dropped": _view_dropped}

HANDLERS = {"create_view": create_view, "drop_view": drop_view}
