"""Fields of structs match by name, ignoring case, whichever kind of rows brings them.

A field that the rows lack becomes NULL, as a column that they lack does. A field that the table
lacks, or that the rows have twice, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from acid_platform.base.visible import nearest_name
from acid_platform.errors import AcidError, UnknownColumn, WrongType
from acid_platform.layout.types import Column, HiveType


class Unfit(Exception):
    """A value that the declared type does not take: why, where inside of the column, which row.

    `path` is the way below the column, such as `.o[].name`; `row` counts from 0, None if unknown.
    """

    def __init__(self, why: str, row: int | None = None, unknown_field: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.row = row
        self.path = ""
        self.unknown_field = unknown_field

    def below(self, part: str, row: int | None) -> Unfit:
        """The fault as the type around it sees it: one step longer, at a row of that type."""
        self.path = part + self.path
        self.row = row
        return self

    def error(self, column: Column, table: str) -> AcidError:
        """As users see it."""
        place = f"{column.name}{self.path}"
        if self.unknown_field:
            return UnknownColumn(f"column {place!r} of {table}: {self.why}")
        where = [f"at {place}"] if self.path else []
        where += [] if self.row is None else [f"in row {self.row + 1}"]
        suffix = f" ({', '.join(where)})" if where else ""
        return WrongType(
            f"column {column.name!r} of {table} is {column.type}: {self.why}{suffix};"
            " convert it first"
        )


@lru_cache(4096)
def spelled_fields(names: Sequence[str], struct: HiveType) -> Mapping[str, str]:
    """For each field of the struct that `names` has: how it is spelled there. Raises Unfit."""
    fields = [name for name, _ in struct.children]
    spelled: dict[str, str] = {}
    for name in names:
        field = name.lower()
        if field not in fields:
            near = nearest_name(field, fields)
            hint = f"; did you mean {near!r}?" if near else ""
            raise Unfit(
                f"no field {name!r}; its fields are {', '.join(fields)}{hint}", unknown_field=True
            )
        if field in spelled:
            raise Unfit(
                f"the field {field!r} is given twice, as {spelled[field]!r} and {name!r}",
                unknown_field=True,
            )
        spelled[field] = name
    return MappingProxyType(spelled)
