"""File formats of insert-only tables, from their table properties (F17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from acid_platform.base.table_properties import (
    CODEC,
    FIELD_DELIMITER,
    FILE_FORMAT,
    NULL_TEXT,
    TRANSACTIONAL_KIND,
)
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.types import LOCAL_ZONE, Column

FORMATS = FILE_FORMAT.values.choices
"""`text` is Hive's delimited text: fields are separated by \\x01 and NULL is \\N, unless the table
properties `field.delim` and `serialization.null.format` say otherwise."""

_FLAT = ("csv", "text")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The format of a table's data files; full ACID tables always use ORC."""

    name: str = "orc"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The `delimiter` and the `null` text of csv and text files."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> FileFormat:
        """The format in the table's properties. Raises InvalidDefinition for an unknown format."""
        name = FILE_FORMAT.text(properties)
        if name not in FORMATS:
            raise InvalidDefinition(
                f"{FILE_FORMAT.name}={name!r} is unknown; use {', '.join(FORMATS)}"
            )
        if name not in _FLAT:
            return cls(name)
        delimiter = FIELD_DELIMITER.stated(properties)
        if delimiter is None:
            delimiter = "," if name == "csv" else "\x01"
        null = NULL_TEXT.stated(properties)
        if null is None:
            null = "" if name == "csv" else "\\N"
        return cls(name, {"delimiter": delimiter, "null": null})

    @property
    def by_position(self) -> bool:
        """Whether columns of a file are identified by position, not by name."""
        return self.name in _FLAT

    def refuse(self, columns: tuple[Column, ...]) -> None:
        """Raises InvalidDefinition for a column that the format can't hold."""
        for column in columns:
            if self.name in _FLAT and (column.type.nested or column.type.kind == "binary"):
                raise InvalidDefinition(
                    f"{self.name} files can't store column {column}; use orc or parquet"
                )
            if self.name != "orc" and any(part.kind == LOCAL_ZONE for part in column.type.walk()):
                raise InvalidDefinition(
                    f"column {column}: {self.name} files can't distinguish an instant from a"
                    " timestamp; use orc"
                )


ACID_FORMAT = FileFormat()
"""The format of tables with full CRUD."""


def compression(properties: Mapping[str, str]) -> str:
    """The table's `orc.compress`, spelled as Spark and Arrow expect it."""
    codec = CODEC.text(properties)
    return "uncompressed" if codec == "none" else codec


def is_insert_only(properties: Mapping[str, str]) -> bool:
    """Whether the table is insert-only: its rows are only appended or overwritten (F5)."""
    return TRANSACTIONAL_KIND.text(properties) == "insert_only"
