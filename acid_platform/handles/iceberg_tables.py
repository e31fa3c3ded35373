"""Opening a table of Iceberg by pyiceberg, so that nothing in the table chooses code (P67).

pyiceberg imports and calls what some properties name, such as `py-io-impl`, and takes properties
from the table's metadata and from the catalog's server. Here a table's files are opened with the
properties of the catalog alone, and of these only the importing user's own configuration may name
code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa

from acid_platform.base.paths import is_uri
from acid_platform.errors import ImportRefused
from acid_platform.handles.iceberg_files import BoundedFiles, plain_place
from acid_platform.handles.own_files import OwnFiles

_METADATA = ".metadata.json"


def of_file(place: str) -> Any:
    """The table of a metadata file, or of a directory whose `version-hint.text` names one."""
    table, serializers = import_module("pyiceberg.table"), import_module("pyiceberg.serializers")
    noop = import_module("pyiceberg.catalog.noop")
    files = BoundedFiles(import_module("pyiceberg.io").load_file_io({}, place))
    if not place.endswith(_METADATA):
        place = _newest(files, place)
    return table.StaticTable(
        identifier=("static-table", place),
        metadata=serializers.FromInputFile.table_metadata(files.new_input(place)),
        metadata_location=place,
        io=files,
        catalog=noop.NoopCatalog("static-table"),
    )


def _newest(files: Any, directory: str) -> str:
    """The metadata file that the hint of a directory names. Raises ImportRefused."""
    hint = f"{directory.rstrip('/')}/metadata/version-hint.text"
    with files.new_input(hint).open() as stream:
        text = stream.read(1 << 12).decode("utf-8").strip()
    name = text if text.endswith(_METADATA) else f"{'v' * text.isnumeric()}{text}{_METADATA}"
    if "/" in name:
        raise ImportRefused(f"{hint} names {name!r}, which is no file beside it")
    return f"{directory.rstrip('/')}/metadata/{name}"


def catalog_of(name: str) -> Any:
    """The catalog that the user's configuration describes."""
    catalog = import_module("pyiceberg.catalog").load_catalog(name)
    config = import_module("pyiceberg.utils.config").Config()
    own = config.get_catalog_config(name) or {}

    def without_code(properties: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for key, value in properties.items()
            if not _names_code(key) or own.get(key) == value
        }

    open_files = catalog._load_file_io
    catalog.properties = without_code(catalog.properties)
    catalog._load_file_io = lambda properties=None, location=None: BoundedFiles(
        open_files(without_code(properties or {}), location)
    )
    catalog.own_settings = own
    return catalog


def of_catalog(catalog: Any, name: str, files_in: Iterable[str]) -> Any:
    """A table of `catalog_of`.

    Raises ImportRefused for a metadata file on this machine: whoever serves the catalog may name
    any, so it has to be below a place that the user has named.
    """
    table = catalog.load_table(name)
    place = plain_place(table.metadata_location)
    own = catalog.own_settings
    if not is_uri(place) and not str(own.get("uri")).startswith("sqlite:"):
        allowed = [plain_place(one) for one in (own.get("warehouse"), *files_in) if one]
        if not allowed:
            raise ImportRefused(
                f"iceberg {name}: its catalog names the file {place} of this machine, and could"
                " name any: if it belongs to the table, allow its place by --files-in PLACE"
                " (files_in=[…]), or set the catalog's warehouse in pyiceberg's configuration"
            )
        OwnFiles(f"iceberg {name}", tuple(allowed)).require(place)
    known = {**catalog.properties, **getattr(table, "config", {})}
    kept = {
        key: value
        for key, value in table.io.properties.items()
        if known.get(key) == value or table.properties.get(key) != value
    }
    table.io = catalog._load_file_io(kept, table.metadata_location)
    return table


def _names_code(key: str) -> bool:
    """Whether a property may name a class or function."""
    return "impl" in key.lower() or key.lower().partition(".")[0] == "auth"


def place_of(table: Any) -> str:
    """The directory above that of the metadata file: a location in the metadata proves nothing.

    Raises ImportRefused for a metadata file in no directory, as a catalog's server may call it.
    """
    directory, _, _ = plain_place(table.metadata_location).rpartition("/")
    if not (place := directory.removesuffix("/metadata")).strip("/"):
        raise ImportRefused(f"its metadata file {table.metadata_location} is in no directory of it")
    return place


def rows_of(table: Any, scan: Any, snapshots: Iterable[Any], own: OwnFiles) -> pa.RecordBatchReader:
    """The rows of a scan that reads these snapshots. Raises ImportRefused for a file elsewhere."""
    module = import_module("pyiceberg.io.pyarrow")
    table.io.own = own
    for snapshot in snapshots:
        own.require(plain_place(snapshot.manifest_list))
        own.require_all(plain_place(each.manifest_path) for each in snapshot.manifests(table.io))
    tasks = list(scan.plan_files())
    for task in tasks:
        own.require_all(plain_place(file.file_path) for file in (task.file, *task.delete_files))
    projection = scan.projection()
    schema = module.schema_to_pyarrow(projection)
    reader = module.ArrowScan(table.metadata, table.io, projection, scan.row_filter)
    batches = reader.to_record_batches(tasks)
    return pa.RecordBatchReader.from_batches(schema, batches).cast(schema)
