"""Names of databases as Hive's clients send them: `@catalog#database` (P34)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acid_platform.errors import NoSuchTable
from acid_platform.gateway.shapes import CATALOG

FIELDS = ("dbName", "dbname", "db_name", "databaseName")
"""The fields of requests that name a database."""
_EMPTY = "!"


def plain_name(name: str) -> str | None:
    """The database of `@hive#database`, and every other text as it is.

    `@hive#` names none, and `@hive#!` the empty text. Raises NoSuchTable for another catalog.
    """
    if not name.startswith("@") or "#" not in name:
        return name
    catalog, _, database = name[1:].partition("#")
    if catalog.lower() != CATALOG:
        raise NoSuchTable(f"there is no catalog {catalog}; the only one is {CATALOG}")
    if database == _EMPTY:
        return ""
    return database or None


def plain_names(arguments: Sequence[Any]) -> list[Any]:
    """A call's arguments with plain names: its first text, and the fields of its structs.

    Raises NoSuchTable.
    """
    plain = list(arguments)
    for number, argument in enumerate(plain):
        if isinstance(argument, str):
            plain[number] = plain_name(argument) if number == 0 else argument
            continue
        for each in argument if isinstance(argument, list) else [argument]:
            for field in FIELDS:
                name = getattr(each, field, None)
                if isinstance(name, str):
                    setattr(each, field, plain_name(name))
    return plain
