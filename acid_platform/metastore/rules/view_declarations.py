"""Views: named queries, in the same name space as the tables."""

from __future__ import annotations

from dataclasses import replace

from acid_platform.errors import (
    DeclarationChanged,
    InvalidDefinition,
    NoSuchTable,
    TableExists,
)
from acid_platform.layout.declarable import refuse_path_trouble
from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import ViewRecord
from acid_platform.metastore.rules.database_declarations import refuse_half_texts
from acid_platform.metastore.rules.events import Event
from acid_platform.metastore.rules.state import EarlierView, State
from acid_platform.metastore.rules.turn import Turn, handles
from acid_platform.metastore.table_names import table_name


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
    refuse_path_trouble("the name of a view", name.partition(".")[2])
    if database not in turn.state.databases:
        raise InvalidDefinition(f"there is no database {database}; create_database({database!r})")
    refuse_half_texts(f"view {name}", {**record.properties, **record.comments})
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
    """Keeps the present view for open snapshots (P28)."""
    earlier = state.views.get(name)
    if earlier is not None:
        state.earlier_views.append(EarlierView(earlier, moment))
