"""Views share a name space with tables, and survive a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from acid_platform import InvalidDefinition, NoSuchTable, TableExists
from acid_platform.base.clock import Moment
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.tables import DeclareView, DropView, RemoveDatabase
from acid_platform.metastore.records import ExternalFiles, ViewRecord
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.server.stored_kinds import live_rows, restore
from tests.declared import declare

VIEW = ViewRecord("db.v", "SELECT id FROM db.t AS t", (("id", "int"),))


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore.connect(tmp_path) as connected:
        connected.create_database("db")
        declare(connected, "db.t", str(tmp_path / "t"), [("id", "int")])
        connected.call(DeclareView(VIEW, False, False))
        yield connected
        connected.stop()


@pytest.mark.more
def test_a_view_takes_its_name_from_tables_and_views(metastore: Metastore) -> None:
    with pytest.raises(TableExists, match=r"view db\.v exists"):
        metastore.call(DeclareView(VIEW, False, False))
    metastore.call(DeclareView(VIEW, True, False))
    metastore.call(DeclareView(ViewRecord("DB.V", "SELECT 1 AS x", (("x", "int"),)), False, True))
    [view] = metastore.views()
    assert (view.name, view.query, view.columns) == ("db.v", "SELECT 1 AS x", (("x", "int"),))
    with pytest.raises(TableExists, match=r"db\.t is a table"):
        metastore.call(DeclareView(ViewRecord("db.t", "SELECT 1", (("x", "int"),)), False, False))
    with pytest.raises(TableExists, match=r"db\.v is a view"):
        declare(metastore, "db.v", "/nowhere", [("id", "int")])
    with pytest.raises(TableExists, match=r"db\.v is a view"):
        metastore.alter_table("db.t", rename="db.v")
    with pytest.raises(InvalidDefinition, match="no database nope"):
        metastore.call(DeclareView(ViewRecord("nope.v", "SELECT 1", (("x", "int"),)), False, False))


@pytest.mark.more
def test_a_database_with_a_view_is_not_empty(metastore: Metastore) -> None:
    metastore.drop("db.t")
    with pytest.raises(InvalidDefinition, match=r"holds db\.v"):
        metastore.call(RemoveDatabase("db"))
    metastore.call(DropView("db.v"))
    metastore.call(RemoveDatabase("db"))
    with pytest.raises(NoSuchTable, match=r"no view db\.v"):
        metastore.call(DropView("db.v"))


def test_P8_views_are_part_of_the_state_that_a_snapshot_keeps() -> None:
    machine = Machine()
    reads = (("default.t", (("id", "int"),)),)
    view = ViewRecord("v", "SELECT 1 AS x", (("x", "int"),), reads=reads)
    machine.handle(DeclareView(view, False, False), "r1", Moment(7, 0))
    kept = restore(live_rows(machine.state), {})
    assert kept.views == {
        "default.v": ViewRecord("default.v", "SELECT 1 AS x", (("x", "int"),), 7, 1, reads)
    }


def test_P8_external_tables_are_part_of_it_and_a_change_names_the_version_it_is_based_on() -> None:
    machine = Machine()
    files = ExternalFiles("raw/x", "text", {"field.delim": ","}, ("p",), {"p=1": "", "p=2": "/y"})
    view = ViewRecord("default.e", "", (("id", "int"), ("p", "int")), external=files)
    machine.handle(DeclareView(view, False, False), "r1", Moment(7, 0))
    kept = restore(live_rows(machine.state), {}).views["default.e"]
    assert kept == replace(view, created=7, version=kept.version)
    changes = (kept, kept.version), (kept, kept.version), (replace(VIEW, name="default.e"), 0)
    refusals = []
    for number, (change, read) in enumerate(changes):
        operation = DeclareView(change, False, True, read)
        [reply] = machine.handle(operation, f"c{number}", Moment(8, number)).replies
        refusals.append(reply.value.get("error", [None])[0])
    assert refusals == [None, "DeclarationChanged", "TableExists"]
