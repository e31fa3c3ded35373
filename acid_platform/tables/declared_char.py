"""CHAR in files that an adopted table declares as another text.

Hive strips the trailing blanks of such a value; ORC's library for C++, and so Arrow, does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from acid_platform.errors import InvalidDefinition
from acid_platform.layout.types import Column, HiveType, parse_type
from acid_platform.orc.pyorc_rows import orc_schema
from acid_platform.scan.footers import is_acid
from acid_platform.storage.files import Files


def require_declared_char(
    files: Files, table: str, paths: Iterable[str], columns: Sequence[Column]
) -> None:
    """Raises InvalidDefinition for a CHAR of one of the ORC files that is declared otherwise."""
    if not any(kind.kind in _OTHERS for column in columns for kind in column.type.walk()):
        return
    for path in paths:
        stored: dict[str, HiveType] = {}
        with suppress(InvalidDefinition):  # a union, say, which its reader refuses
            stored = _stored(files, path, columns)
        for column in columns:
            kind = stored.get(column.name)
            if kind is not None and _hides_char(kind, column.type):
                raise InvalidDefinition(
                    f"{table}: {path} holds column {column.name} as {kind}, and {column.type} would"
                    f" show its blanks in some engines; declare it as {kind}, or copy the rows with"
                    " Hive if other files hold another type"
                )


_OTHERS = ("string", "varchar")


def _stored(files: Files, path: str, columns: Sequence[Column]) -> dict[str, HiveType]:
    fields = parse_type(orc_schema(files, path)).children
    if is_acid([name for name, _ in fields]):
        fields = fields[5][1].children
    if all(name.startswith("_col") for name, _ in fields):
        return {column.name: kind for column, (_, kind) in zip(columns, fields, strict=False)}
    return dict(fields)


def _hides_char(stored: HiveType, declared: HiveType) -> bool:
    if stored.kind == "char":
        return declared.kind in _OTHERS
    if stored.kind != declared.kind:
        return False
    if stored.kind == "struct":
        own = dict(stored.children)
        return any(name in own and _hides_char(own[name], kind) for name, kind in declared.children)
    pairs = zip(stored.children, declared.children, strict=False)
    return any(_hides_char(one, other) for (_, one), (_, other) in pairs)
