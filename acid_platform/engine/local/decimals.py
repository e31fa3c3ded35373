"""Dividing decimals exactly, half away from zero: DuckDB itself divides them as doubles."""

from __future__ import annotations

from acid_platform.engine.local.duckdb_types import MOST_DIGITS, decimal, duckdb_type
from acid_platform.layout.types import HiveType


def quotient_type(left: HiveType, right: HiveType) -> HiveType | None:
    """Spark's type of a quotient; None if it has to give up digits, or if DuckDB lacks room."""
    (p1, s1), (p2, s2) = left.sizes, right.sizes
    scale = max(6, s1 + p2 + 1)
    precision = p1 - s1 + s2 + scale
    room = (precision + scale, p1 + s1 + 1, p2 + s2 + 1)
    return decimal(precision, scale) if max(room) <= MOST_DIGITS else None


def mean_type(kind: HiveType) -> HiveType | None:
    """Spark's type of an average, likewise."""
    precision, scale = kind.sizes
    if precision + 14 + scale + 4 > MOST_DIGITS:
        return None
    return decimal(precision + 4, scale + 4)


def unscaled(sql: str, kind: HiveType) -> str:
    """The digits of a decimal as a whole number."""
    scale = kind.sizes[1]
    return f"CAST({sql} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS HUGEINT)"


def quotient(digits: str, divisor: str, kind: HiveType) -> str:
    """SQL of `digits / divisor`, whole numbers that are not NULL, as the digits of a decimal."""
    precision, scale = kind.sizes
    rest = f"abs({digits} % {divisor})"
    up = f"CASE WHEN 2 * {rest} >= abs({divisor}) THEN sign({digits}) * sign({divisor}) ELSE 0 END"
    whole = f"CAST({digits} // {divisor} + {up} AS DECIMAL({precision},0))"
    unit = f"CAST('0.{'0' * (scale - 1)}1' AS DECIMAL({scale},{scale}))"
    return f"CAST({whole} * {unit} AS {duckdb_type(kind)})"
