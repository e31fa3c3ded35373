"""Formats of insert-only tables, out of table properties (F17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from acid_platform.errors import InvalidDefinition
from acid_platform.layout.types import LOCAL_ZONE, Column

PROPERTY = "acid.format"
FORMATS = ("orc", "parquet", "json", "csv", "text", "avro")
"""`text` is Hive's delimited text: fields end with \\x01 and NULL is \\N, unless the table's
properties `field.delim` and `serialization.null.format` say otherwise."""

_FLAT = ("csv", "text")


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How the data files of a table are stored. Full ACID tables are always ORC."""

    name: str = "orc"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """`delimiter` and `null` of csv and text."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> FileFormat:
        """Raises InvalidDefinition for a format that is not known."""
        name = properties.get(PROPERTY, "orc").lower()
        if name not in FORMATS:
            raise InvalidDefinition(f"{PROPERTY}={name!r} is unknown; use {', '.join(FORMATS)}")
        if name not in _FLAT:
            return cls(name)
        delimiter = properties.get("field.delim", "," if name == "csv" else "\x01")
        null = properties.get("serialization.null.format", "" if name == "csv" else "\\N")
        return cls(name, {"delimiter": delimiter, "null": null})

    @property
    def by_position(self) -> bool:
        """Whether a file knows its columns by their place, not by their name."""
        return self.name in _FLAT

    def refuse(self, columns: tuple[Column, ...]) -> None:
        """Raises InvalidDefinition for a column that the format can't hold."""
        for column in columns:
            if self.name in _FLAT and (column.type.nested or column.type.kind == "binary"):
                raise InvalidDefinition(
                    f"column {column} does not fit into {self.name} files; use orc or parquet"
                )
            if self.name != "orc" and any(one.kind == LOCAL_ZONE for one in column.type.walk()):
                raise InvalidDefinition(
                    f"column {column}: {self.name} files do not tell an instant from a timestamp;"
                    " use orc"
                )


ORC = FileFormat()


def is_insert_only(properties: Mapping[str, str]) -> bool:
    """Whether rows are only ever appended or overwritten (F5)."""
    return properties.get("transactional_properties", "default").lower() == "insert_only"
