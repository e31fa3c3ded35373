"""Nested values of Arrow as a declared type has them, and why a table does not take a value or a
row, in one wording for both engines.

Values are taken apart by the type and put together again. Fields of structs match by name, ignoring
case, whoever brings them. A field that the rows lack becomes NULL, as a column that they lack does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from acid_platform.base.arguments import nearest_name
from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.errors import (
    AcidError,
    ConstraintViolated,
    SourceRowsAmbiguous,
    UnknownColumn,
    WrongType,
)
from acid_platform.layout.types import CHAR_TYPES, Column, HiveType
from acid_platform.values.arrow_types import (
    arrow_type,
    filled,
    from_numpy,
    is_any_list,
    nulls_of,
    offsets_of,
    scalar_of,
    values_of,
)


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

    def after(self, rows: int) -> Unfit:
        """The fault with its row counted from so many rows before."""
        self.row = None if self.row is None else self.row + rows
        return self

    def error(self, column: Column, table: str) -> AcidError:
        """As users see it."""
        named = f"{column.name}{self.path}"
        if self.unknown_field:
            return UnknownColumn(f"column {named!r} of {table}: {self.why}")
        where = [f"at {named}"] if self.path else []
        where += [] if self.row is None else [f"in row {self.row + 1}"]
        suffix = f" ({', '.join(where)})" if where else ""
        return WrongType(
            f"column {column.name!r} of {table} is {column.type}: {self.why}{suffix};"
            " convert it first"
        )


@lru_cache(4096)
def spelled_fields(names: Sequence[str], struct: HiveType) -> Mapping[str, str]:
    """For each field of the struct that `names` has: how it is spelled there.

    Raises Unfit for a name that the struct lacks, and for a field that is given twice.
    """
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


@contextmanager
def below(part: str, offsets: pa.Array | None = None) -> Iterator[None]:
    """Adds this part to the path of what the block refuses; `offsets` are those of the lists whose
    elements it converts."""
    try:
        yield
    except Unfit as fault:
        fault.path = part + fault.path
        if offsets is not None and fault.row is not None:
            fault.row = row_of(offsets, fault.row)
        raise


def row_of(offsets: pa.Array, position: int) -> int:
    """The row of a list or map array that holds the value at a position."""
    return bisect_right(values_of(offsets), position) - 1


LONGEST_SHOWN = 100
"""How many characters of a value the message of a violated constraint shows."""


def other_partition(table: str, column: str, value: str, partition: str) -> str:
    """What is wrong with a row that belongs to another partition than the one that is written."""
    return f"a row for {table} has {column}={value}, the partition has {partition}"


def refuse_other_partition(what: str) -> WrongType:
    return WrongType(f"{what}; correct the row, or write it into its own partition")


def refuse_too_long(what: str) -> WrongType:
    """`what`: such as `column c of db.t takes char(3), a value has 5 characters`."""
    return WrongType(f"{what}; cut it with left(value, length), or use a string column")


def constraint_violated(what: str) -> ConstraintViolated:
    """`what`: such as `constraint c of db.t, CHECK (n > 0), is violated by a row with n=-1`."""
    return ConstraintViolated(f"{what}; the statement wrote nothing")


def refuse_timestamp(what: str) -> WrongType:
    """`what`: such as `column c has 1969-12-31 23:59:59.5`."""
    return WrongType(
        f"{what}, which ORC files can't store (they would say 1970): round it to"
        " the second, or store it in an insert-only table of another format"
    )


def refuse_early_day(what: str) -> WrongType:
    """`what`: such as `column c has -290308-12-21`."""
    return WrongType(
        f"{what}, which ORC files can't store (they count early days in the Julian calendar): store"
        " NULL or a later day, or use an insert-only table of another format"
    )


def source_rows_ambiguous(
    table: str, count: int, key: tuple[int, int, int], on: str
) -> SourceRowsAmbiguous:
    """`count` source rows of a MERGE would change the row with the row id `key`."""
    return SourceRowsAmbiguous(
        f"MERGE into {table}: {count} source rows match one row of it"
        f" (row__id {key}); make the source unique in the columns of {on!r}"
    )


Leaf: TypeAlias = Callable[[pa.Array, HiveType], pa.Array]
"""Converts values that are not nested; raises Unfit."""
TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
BYTES_TYPES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def fitted(
    array: pa.Array, hive: HiveType, leaf: Leaf, timestamps: str = "us", of_file: bool = False
) -> pa.Array:
    """The values in the declared type; what is nested is taken apart, the rest goes to `leaf`.

    `timestamps` is the unit of the result. Values that files hold (`of_file`) may have fields that
    the type lacks, the keys of their maps are right, and their texts go to `leaf` even if they have
    the right type. Raises Unfit.
    """
    array = plain_values(array)
    target = arrow_type(hive, timestamps)
    unsure = CHAR_TYPES if of_file else ("map",)
    if array.type == target and not any(part.kind in unsure for part in hive.walk()):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)

    def inside(values: pa.Array, child: HiveType) -> pa.Array:
        return fitted(values, child, leaf, timestamps, of_file)

    match hive.kind:
        case "struct" if pa.types.is_struct(array.type):
            names = tuple(field.name for field in array.type)
            if not of_file:
                spelled_fields(names, hive)
            places = {name.lower(): index for index, name in enumerate(names)}
            children = []
            for (name, child), field in zip(hive.children, target, strict=True):
                if name not in places:
                    children.append(pa.nulls(len(array), field.type))
                    continue
                with below(f".{name}"):
                    children.append(inside(pc.struct_field(array, [places[name]]), child))
            return pa.StructArray.from_arrays(children, fields=list(target), mask=nulls_of(array))
        case "array" if is_any_list(array.type):
            offsets, elements = _elements(array)
            with below("[]", offsets):
                values = inside(elements, hive.children[0][1])
            return pa.ListArray.from_arrays(offsets, values, mask=nulls_of(array))
        case "map" if pa.types.is_map(array.type) or _is_entries(array.type):
            offsets, entries = _elements(array)
            (_, key), (_, item) = hive.children
            with below("[key]", offsets):
                keys = inside(pc.struct_field(entries, [0]), key)
            with below("[value]", offsets):
                items = inside(pc.struct_field(entries, [1]), item)
            if not of_file:
                require_keys(offsets, keys)
            return pa.MapArray.from_arrays(offsets, keys, items, mask=nulls_of(array))
    return leaf(array, hive)


def plain_values(array: pa.Array) -> pa.Array:
    """Without an encoding that no table has, nor views, which Arrow computes little with."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return plain_values(array.storage)
    if pa.types.is_dictionary(kind):
        return plain_values(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return plain_values(pc.run_end_decode(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        # A cast to short offsets looks at where a slice is, not only at how long.
        far = array.offset and array.get_total_buffer_size() >> 31
        return array.take(from_numpy(np.arange(len(array)))) if far else array
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(kind) else array


def is_one_of(kind: pa.DataType, tests: Sequence[Callable[[pa.DataType], bool]]) -> bool:
    return any(test(kind) for test in tests)


def _is_entries(kind: pa.DataType) -> bool:
    """Whether it is a map as Polars has it, a list of keys with values."""
    if not is_any_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return [field.name for field in kind.value_type] == ["key", "value"]


def _elements(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The offsets, int32 from 0 on, and the elements of lists or of a map, without those below a
    NULL.

    Casts no list, since pyarrow 26 makes wrong offsets of a list view, and takes no elements, for
    which it has no code if they are views.
    """
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        array = pa.ListArray.from_arrays(offsets_of(array), entries, mask=nulls_of(array))
    if pa.types.is_list(array.type) and len(array):
        ends = values_of(array.offsets)
        if not array.null_count or not np.diff(ends)[values_of(array.is_null())].any():
            first, last = int(ends[0]), int(ends[-1])
            offsets = from_numpy(ends - ends[0]) if first else offsets_of(array)
            return offsets, array.values.slice(first, last - first)
    lengths = filled(pc.list_value_length(array), 0).astype(np.int64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return from_numpy(ends).cast(pa.int32()), array.flatten()


def require_keys(offsets: pa.Array, keys: pa.Array) -> None:
    """Raises Unfit for a map with a NULL as key, or a key twice: engines keep different ones."""
    if keys.null_count:
        position = int(values_of(keys.is_null()).argmax())
        raise Unfit("a map has NULL as a key", row_of(offsets, position))
    bounds = values_of(offsets).astype(np.int64)
    rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    if len(rows) < 2 or np.diff(bounds).max() < 2:
        return
    if pa.types.is_nested(keys.type):
        texts = {text: number for number, text in enumerate(map(repr, keys.to_pylist()))}
        codes = np.array([texts[repr(key)] for key in keys.to_pylist()], np.int64)
    else:
        plain = (
            pc.add(keys, scalar_of(0.0, keys.type)) if pa.types.is_floating(keys.type) else keys
        )  # -0.0 is 0.0
        codes = values_of(pc.dictionary_encode(plain).indices).astype(np.int64)
    pairs = rows * (int(codes.max(initial=0)) + 1) + codes
    _, first = np.unique(pairs, return_index=True)
    if len(first) < len(pairs):
        again = np.ones(len(pairs), bool)
        again[first] = False
        position = int(again.argmax())
        raise Unfit(f"a map has the key {keys[position].as_py()!r} twice", int(rows[position]))
