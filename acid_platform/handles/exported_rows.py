"""INSERT OVERWRITE DIRECTORY: the rows of a query as files that belong to no table.

A directory that is written again is one that an earlier statement wrote, and nobody else: it has a
file that lists what was written. What is in any other directory stays.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from acid_platform.errors import InvalidDefinition, UnsupportedStatement
from acid_platform.layout.formats import FileFormat
from acid_platform.storage.files import Files
from acid_platform.tables.external_tables import readable_place
from acid_platform.write.exported_file import write_exported

if TYPE_CHECKING:
    from acid_platform.engine.results import Result
    from acid_platform.handles.warehouse import Warehouse

LIST = "_acid_exported"
"""The file with the names of the others. Hive and Spark read no file whose name begins so."""
_STAGED = "_acid_staged_"


def export_rows(warehouse: Warehouse, result: Result, directory: str, stored: FileFormat) -> int:
    """Writes the rows in place of those that an earlier export wrote there; returns their number.

    A reader may see none or a part of them meanwhile, as in Hive. Raises InvalidDefinition for a
    directory with other files, or one that a table uses; UnsupportedStatement for columns of one
    name; InvalidExpression for a text that can't be written.
    """
    where = readable_place(warehouse.metastore, "INSERT OVERWRITE DIRECTORY", directory)
    files, path = Files.of(where)
    before = _exported(files, path)
    columns = result.declared()
    if len({column.name for column in columns}) < len(columns):
        raise UnsupportedStatement(
            "INSERT OVERWRITE DIRECTORY: two columns of the query have one name; rename one with AS"
        )
    files.make_directory(path)
    prefix = f"{_STAGED}{uuid.uuid4().hex}_"
    staged = {}
    try:
        if result.engine == "spark":
            from acid_platform.engine.spark.exported_files import export_in_tasks

            staged = export_in_tasks(result.to_spark(), where, prefix, columns, stored)
        elif rows := write_exported(where, f"{prefix}0", columns, stored, result.batches()):
            staged = {f"{prefix}0": rows}
        names = {name: f"{number:06}_0" for number, name in enumerate(staged)}
        _put_list(files, path, {*before, *names.values()})
        for name in before:
            files.delete_file(f"{path}/{name}")
        for name, final in names.items():
            files.rename(f"{path}/{name}", f"{path}/{final}")
        _put_list(files, path, {*names.values()})
    finally:
        for info in files.children(path):
            if info.base_name.startswith(prefix):
                files.delete_file(info.path)
    return sum(staged.values())


def _exported(files: Files, path: str) -> list[str]:
    """The files that an earlier export wrote, which may go. Raises InvalidDefinition for others."""
    there = {info.base_name: info for info in files.children(path)}
    listed: list[str] = []
    if LIST in there:
        with suppress(ValueError, TypeError):  # a file of somebody else, which lists none of ours
            listed = [str(name) for name in json.loads(files.read(f"{path}/{LIST}"))]
    for name, info in sorted(there.items()):
        if (name not in (*listed, LIST) and not name.startswith(_STAGED)) or not info.is_file:
            raise InvalidDefinition(
                f"INSERT OVERWRITE DIRECTORY: {path} holds {name}, which no such statement wrote;"
                " name an empty directory, or move it away"
            )
    return [name for name in listed if name in there]


def _put_list(files: Files, path: str, names: set[str]) -> None:
    files.write(f"{path}/{LIST}", json.dumps(sorted(names)).encode())
