"""Partition values as Spark spells them in the names of directories, and reads them there."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from acid_platform.errors import NeedsSpark
from acid_platform.layout.names import (
    DEFAULT_PARTITION,
    partition_name,
    partition_segment,
    text_of_moment,
)
from acid_platform.layout.types import FLOATING, INTEGRAL, TEXTS, Column, HiveType
from acid_platform.values.arrow_types import arrow_type, filled, scalar_of
from acid_platform.values.coercion import cast

_WHOLE_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
MOST_PARTITIONS = 4096
"""Rows of more partitions go to Spark, whose tasks write them in parallel."""


@dataclass(frozen=True, slots=True)
class RowPartitions:
    """The partition of each row is `names[index[i]]`; the names are in the order of their texts."""

    names: tuple[str, ...]
    index: np.ndarray
    """int64 (n,)"""

    @classmethod
    def ranked(cls, names: Sequence[str], index: np.ndarray) -> RowPartitions:
        """The partitions with their names in order."""
        order = sorted(range(len(names)), key=lambda i: texts_in(names[i]))
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        return cls(tuple(names[i] for i in order), rank[index])

    @classmethod
    def joined(cls, parts: Sequence[RowPartitions]) -> RowPartitions:
        """The partitions of the rows of all parts, one after the other."""
        names = list(dict.fromkeys(name for part in parts for name in part.names))
        place_of = {name: position for position, name in enumerate(names)}
        index = [
            np.array([place_of[name] for name in part.names], np.int64)[part.index]
            for part in parts
        ]
        return cls.ranked(names, np.concatenate(index))

    def take(self, chosen: np.ndarray) -> RowPartitions:
        """The partitions of some of the rows."""
        return RowPartitions(self.names, self.index[chosen])


def places_of(rows: pa.Table, columns: Sequence[Column]) -> RowPartitions:
    """The partitions of the rows; `columns` are the partition columns, some of the table's.

    Raises NeedsSpark for values whose text only Spark knows, and for too many partitions.
    """
    if not rows.num_rows:
        return RowPartitions((), np.zeros(0, np.int64))
    if not columns:
        return RowPartitions(("",), np.zeros(rows.num_rows, np.int64))
    partitions: list[tuple[str, ...]] = [()]
    index = np.zeros(rows.num_rows, np.int64)
    for column in columns:
        texts, codes = _texts(rows.column(column.name), column.type)
        pairs, index = np.unique(index * len(texts) + codes, return_inverse=True)
        partitions = [
            (*partitions[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.tolist()
        ]
        if len(partitions) > MOST_PARTITIONS:
            raise NeedsSpark(f"rows of more than {MOST_PARTITIONS} partitions")
    keys = [column.name for column in columns]
    names = []
    for partition in partitions:
        values = (None if text == DEFAULT_PARTITION else text for text in partition)
        names.append(partition_name(dict(zip(keys, values, strict=True))))
    return RowPartitions.ranked(names, index)


def texts_in(name: str) -> list[bytes]:
    """The texts in a partition's name. Spark sorts rows by their bytes before it numbers them."""
    segments = [partition_segment(segment) for segment in name.split("/")]
    return [(segment[1] or DEFAULT_PARTITION).encode() for segment in segments if segment]


def _texts(values: pa.ChunkedArray, kind: HiveType) -> tuple[list[str], np.ndarray]:
    """The distinct texts of the values, at least one, and the index of each value's text."""
    if kind.kind not in _SPELLED:
        raise NeedsSpark(f"the text of a partition column of type {kind}")
    if kind.kind in FLOATING:  # as keys, 0.0 and -0.0 are one value (P63)
        words = [0.0 if value == 0 else value for value in values.to_pylist()]
        codes = np.arange(len(values))
    else:
        encoded = values.combine_chunks().dictionary_encode()
        words = [*encoded.dictionary.to_pylist(), None]
        codes = filled(encoded.indices, len(words) - 1).astype(np.int64)
    texts: dict[str, int] = {}
    ranks = [
        texts.setdefault(text_of(word, kind) or DEFAULT_PARTITION, len(texts)) for word in words
    ]
    if not texts:
        return [DEFAULT_PARTITION], codes.astype(np.int64)
    return list(texts), np.array(ranks, np.int64)[codes]


def text_of(value: Any, kind: HiveType) -> str | None:
    """A value as Spark casts it to string. Raises NeedsSpark if only Spark knows the text."""
    if value is None:
        return None
    try:
        text = _SPELLED[kind.kind](value)
    except (KeyError, ValueError) as error:
        raise NeedsSpark(f"the text of {value!r} as {kind}") from error
    if "\0" in text:
        raise NeedsSpark("a partition value with a zero byte")
    return text


def partition_value(text: str | None, hive: HiveType) -> Any:
    """A partition value as Spark's try_cast reads it, as a Python value.

    None for NULL and for text that does not parse. `text` is the unescaped value.
    """
    if text is None:
        return None
    if hive.kind in TEXTS:
        if hive.kind == "char":
            text = text.rstrip(" ").ljust(hive.sizes[0])
        return text[: hive.sizes[0]] if hive.sizes else text
    stripped = text.strip()
    try:
        match hive.kind:
            case "tinyint" | "smallint" | "int" | "bigint":
                if not _WHOLE_NUMBER.fullmatch(stripped):
                    return None
                whole, limit = int(stripped), 1 << arrow_type(hive).bit_width - 1
                return whole if -limit <= whole < limit else None
            case "decimal" | "boolean":
                return cast(stripped, hive)[0]
            case "date":
                parts = _DATE.fullmatch(stripped)
                return datetime.date(*map(int, parts.groups())) if parts else None
            case "timestamp":
                return datetime.datetime.fromisoformat(stripped).replace(tzinfo=None)
            case "float" | "double":
                return scalar_of(float(stripped), arrow_type(hive)).as_py()
    except (ValueError, ArithmeticError, pa.ArrowException):
        return None
    return text.encode() if hive.kind == "binary" else None


def fixed_value(text: str | None, column: Column) -> pa.Scalar:
    """The value that a fixed text of a partition column stands for. Raises NeedsSpark."""
    value = partition_value(text, column.type)
    if text is not None and (value is None or text_of(value, column.type) != text):
        raise NeedsSpark(f"the value of {column.name}={text}")
    return scalar_of(value, arrow_type(column.type))


def _floating(value: float) -> str:
    """Java and Python print small whole numbers alike; ValueError for others."""
    if (value.is_integer() and 1 <= abs(value) < 1e7) or str(value) == "0.0":
        return repr(value)
    raise ValueError(value)


_SPELLED: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys(INTEGRAL, str),
    **dict.fromkeys(("string", "varchar"), str),
    **dict.fromkeys(("float", "double"), _floating),
    "boolean": lambda value: str(value).lower(),
    "date": lambda value: str(value.isoformat()),
    "timestamp": text_of_moment,
    "decimal": lambda value: f"{value:f}",
}
