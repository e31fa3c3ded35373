"""A warehouse with one table of one committed delta."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform.base.location import Location
from acid_platform.metastore.client.metastore import Metastore
from tests.cli.small import Small
from tests.declared import declare


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    for name in ("ACID_WAREHOUSE", "ACID_METASTORE"):
        monkeypatch.delenv(name, raising=False)
    place = Location.of(tmp_path / "wh")
    with Metastore.connect(place.metastore, root=place.warehouse) as metastore:
        metastore.create_database("db")
        columns = [("id", "int"), ("v", "string")]
        where, kind = f"{place.warehouse}/db.db/t", {"transactional": "true"}
        declare(metastore, "db.t", where, columns, properties=kind)
        made = Small(Path(place.warehouse), metastore)
        made.insert((1, "A"), (2, "B"))
        yield made
        metastore.stop()
