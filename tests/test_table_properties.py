"""The registry of table properties: every path that sets one refuses the same names and values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import acid_platform
from acid_platform import InvalidDefinition, Warehouse
from acid_platform.base.config import REGISTRY
from acid_platform.compaction.states import Layout
from acid_platform.layout import table_properties
from acid_platform.layout.formats import FORMATS
from acid_platform.layout.table_properties import TABLE_PROPERTIES, check, check_change

MISSPELT = [
    ("acid.histroy.retention", "30d", "did you mean acid.history.retention?"),
    ("ACID.history.retention", "30d", "did you mean acid.history.retention?"),
    ("acid.colour", "red", "leave it out"),
    ("compactor.hive.compactor.max.num.deltas", "5", "compactor.hive.compactor.max.num.delta?"),
    ("compactor.hive.compactor.worker.threads", "5", "a setting of the whole warehouse"),
    ("compactorthreshold.hive.compactor.delta.num.treshold", "5", "delta.num.threshold?"),
    ("compactorthreshold.hive.compactor.abortedtxn.threshold", "5", "whole warehouse"),
    ("orc.compres", "ZSTD", "would have no effect; did you mean orc.compress?"),
    ("orc.compression", "ZSTD", "did you mean orc.compress?"),
    ("Transactional", "true", "did you mean transactional?"),
    ("transactional.properties", "insert_only", "did you mean transactional_properties?"),
    ("no_auto_compactions", "true", "did you mean NO_AUTO_COMPACTION?"),
    ("skip.header.line.count", "1", "each line of a file is a row"),
    ("Skip.Footer.Line.Count", "2", "each line of a file is a row"),
]
NOT_ALLOWED = [
    ("acid.history.retention", "soon"),
    ("acid.conflict.detection", "column"),
    ("acid.write.distribution", "rows"),
    ("acid.layout", "hive5"),
    ("orc.compress", "ZIPP"),
    ("no_auto_compaction", "yes"),
    ("NO_CLEANUP", "1"),
    ("compactor.hive.compactor.max.num.delta", "1"),
    ("compactorthreshold.hive.compactor.delta.num.threshold", "many"),
    ("compactorthreshold.hive.compactor.delta.pct.threshold", "nan"),
]
KEPT = {
    "owner.team": "x",
    "orc.stripe.size": "1",
    "orc.compress.size": "262144",
    "serialization.format": "1",
    "compactor.mapreduce.map.memory.mb": "2048",
    "compactor.tez.queue.name": "q",
    "Acidity": "7",
    "skip.header.line.count": "0",
}


def _create(wh: Warehouse, properties: dict[str, str]) -> object:
    return wh.create_table("d.other", "id int", properties=properties)


def _create_by_sql(wh: Warehouse, properties: dict[str, str]) -> object:
    return wh.sql(f"CREATE TABLE d.other (id int) TBLPROPERTIES ({_pairs(properties)})")


def _create_from_query(wh: Warehouse, properties: dict[str, str]) -> object:
    return wh.sql(f"CREATE TABLE d.other TBLPROPERTIES ({_pairs(properties)}) AS SELECT 1 AS id")


def _alter(wh: Warehouse, properties: dict[str, str]) -> object:
    return wh.sql(f"ALTER TABLE d.t SET TBLPROPERTIES ({_pairs(properties)})")


def _alter_in_the_metastore(wh: Warehouse, properties: dict[str, str]) -> object:
    return wh.metastore.alter_table("d.t", properties=properties)


def _pairs(properties: dict[str, str]) -> str:
    return ", ".join(f"'{name}'='{text}'" for name, text in properties.items())


PATHS = [_create, _create_by_sql, _create_from_query, _alter, _alter_in_the_metastore]


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> object:
    with Warehouse.open(tmp_path_factory.mktemp("properties"), engine="local") as opened:
        opened.create_table("d.t", "id int")
        yield opened
        opened.metastore.stop()


@pytest.mark.more
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__.strip("_"))
def test_every_path_refuses_what_is_not_registered_and_values_out_of_range(
    wh: Warehouse, path: Callable[[Warehouse, dict[str, str]], object]
) -> None:
    for name, text, advice in MISSPELT:
        with pytest.raises(InvalidDefinition, match=re.escape(advice)):
            path(wh, {name: text})
    for name, text in NOT_ALLOWED:
        with pytest.raises(InvalidDefinition, match=f"(?i){re.escape(name)}.*allowed"):
            path(wh, {name: text})
    assert wh.tables() == ["d.t"]
    path(wh, KEPT)
    kept = wh.table("d.t" if "d.other" not in wh.tables() else "d.other").properties
    assert kept.items() >= KEPT.items()
    if "d.other" in wh.tables():
        wh.metastore.drop("d.other")


def test_a_compaction_that_is_asked_for_takes_the_properties_of_jobs_only(wh: Warehouse) -> None:
    with pytest.raises(InvalidDefinition, match="did you mean"):
        wh.metastore.request_compaction(
            "d.t", None, "major", properties={"compactor.job.queuename": "q"}
        )


@pytest.mark.parametrize(
    "name", [one.name for one in TABLE_PROPERTIES if one.fixed and one.name != "transactional"]
)
def test_what_files_were_written_by_can_t_be_changed_or_removed(name: str) -> None:
    other = {
        "transactional_properties": "insert_only",
        "acid.format": "csv",
        "bucketing_version": "2",
    }.get(name, "|")
    with pytest.raises(InvalidDefinition, match="would misread"):
        check_change("d.t", {}, {name: other})
    with pytest.raises(InvalidDefinition, match="would misread"):
        check_change("d.t", {name: other}, {name: None})
    check_change("d.t", {name: other}, {name: other.upper()})


def test_a_table_becomes_hive3_only_with_a_codec_that_hive3_reads() -> None:
    with pytest.raises(InvalidDefinition, match=r"Hive 3 can.t read"):
        check_change("d.t", {"orc.compress": "ZSTD"}, {"acid.layout": "hive3"})
    check_change("d.t", {"orc.compress": "ZSTD"}, {"acid.layout": "hive3", "orc.compress": "ZLIB"})
    check_change("d.t", {"acid.layout": "hive3", "orc.compress": "ZSTD"}, {"owner": "x"})


def test_defaults_are_allowed_and_the_enums_have_the_registered_words() -> None:
    for one in TABLE_PROPERTIES:
        one.value({})
    assert tuple(layout.value for layout in Layout) == table_properties.LAYOUT.values.choices
    assert set(FORMATS) == set(table_properties.FILE_FORMAT.values.choices)


@pytest.mark.more
def test_no_other_module_of_the_library_spells_a_property() -> None:
    """One fact, one place: a quoted property name stands in the registry only."""
    names = {one.name for one in TABLE_PROPERTIES} - {*REGISTRY}
    library = Path(acid_platform.__file__).parent
    spelt = {
        f"{path.relative_to(library)}: {name}"
        for path in library.rglob("*.py")
        if path.name not in ("table_properties.py", "config.py")
        for name in names
        if re.search(rf"[\"']{re.escape(name)}[\"']", path.read_text())
    }
    assert not spelt


def test_names_outside_of_the_platform_s_namespaces_are_not_judged() -> None:
    check("d.t", KEPT)
