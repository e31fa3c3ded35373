"""Which partitions can have rows that a predicate accepts.

Pruning is conservative: a condition that Arrow does not evaluate exactly as Spark does keeps the
partition, so pruning never changes a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from sqlglot import exp

from acid_platform.layout.types import INTEGRAL, Column, HiveType
from acid_platform.predicates.analysis import columns_of, parsed
from acid_platform.predicates.arrow_predicates import predicate_or_none
from acid_platform.storage.arrow_numpy import filled, from_numpy, scalar_of
from acid_platform.storage.arrow_types import arrow_type, partition_value

_JUDGED = (*INTEGRAL, "decimal", "date", "string")
"""Kinds whose values both engines read alike from the name of a directory."""


def may_match(
    where: str | None, columns: Sequence[Column], partitions: Sequence[Sequence[str | None]]
) -> list[bool]:
    """For each partition, given by its values, whether rows of it can satisfy `where`.

    Raises InvalidExpression.
    """
    if where is None or not partitions:
        return [True] * len(partitions)
    named = columns_of(where)
    judged = tuple(
        column
        for column in columns
        if column.type.kind in _JUDGED and (named is None or column.name in named)
    )
    values = {
        column.name: _values((values[place] for values in partitions), column.type)
        for place, column in enumerate(columns)
        if column in judged
    }
    return [bool(one) for one in _may(parsed(where), judged, values, len(partitions))]


def _values(texts: Iterable[str | None], kind: HiveType) -> pa.Array:
    """The value of a partition column in each partition; many partitions share one."""
    places: dict[str | None, int] = {}
    index = [places.setdefault(text, len(places)) for text in texts]
    scalars = [scalar_of(partition_value(text, kind), arrow_type(kind)) for text in places]
    distinct = pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])
    return distinct.take(from_numpy(np.array(index)))


def _may(
    node: exp.Expr, columns: tuple[Column, ...], values: Mapping[str, pa.Array], count: int
) -> np.ndarray:
    """A mask (count,): False if the condition is false or NULL for all rows of the partition."""
    match node:
        case exp.Paren():
            return _may(node.this, columns, values, count)
        case exp.And() | exp.Or():
            left, right = (_may(side, columns, values, count) for side in (node.left, node.right))
            return np.asarray(left & right if isinstance(node, exp.And) else left | right)
    predicate = predicate_or_none(node, columns)
    if predicate is None:
        return np.ones(count, bool)
    answer = predicate.mask(values)
    if isinstance(answer, pa.Scalar):
        return np.full(count, bool(answer.as_py()))
    return filled(answer, False)
