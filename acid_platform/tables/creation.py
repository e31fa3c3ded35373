"""Making a new, empty table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.layout.declarable import refuse_names
from acid_platform.metastore.operations.tables import DeclareTable
from acid_platform.metastore.records import TableRecord
from acid_platform.storage.durability import make_root
from acid_platform.storage.files import Files
from acid_platform.tables.declaration import Declaration
from acid_platform.tables.locations import new_location

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore


def create(
    metastore: Metastore,
    name: str,
    declared: Declaration,
    location: str | None = None,
    if_not_exists: bool = False,
) -> TableRecord:
    """Registers the table and makes its directory; a missing database is made.

    `location`: see `locations.new_location`. Raises InvalidDefinition, TableExists,
    WarehouseNotWritable.
    """
    refuse_names(name, location)
    metastore.create_database(name.partition(".")[0], if_not_exists=True)
    where = new_location(metastore, name, location)
    make_root(*Files.of(where))  # before anybody can commit into it (P27)
    declaration = declared.record(name, metastore.places.inward(where))
    record = metastore.call(DeclareTable(declaration, if_not_exists))
    make_root(*Files.of(record.location))
    return record
