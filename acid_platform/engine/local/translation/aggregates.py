"""Aggregates, whose values don't depend on the order of the rows but for the last bits."""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.engine.local.translation.arithmetic import mean_type, quotient, unscaled
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    ROUNDED,
    STRING,
    VOID,
    decimal,
    duckdb_type,
    needs_spark,
    spark_name,
)
from acid_platform.engine.local.translation.signatures import Function, same_type
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType
from acid_platform.predicates.literals import MOST_DIGITS


def _sum(types: Sequence[HiveType]) -> HiveType:
    ((precision, scale),) = (kind.sizes for kind in types)
    return decimal(min(MOST_DIGITS, precision + 10), scale)


_BOUND = "greatest(abs(CAST(max({a}){over} AS HUGEINT)), abs(CAST(min({a}){over} AS HUGEINT)))"


def _sum_of_bigint(beyond: str = "") -> str:
    """Spark fails as soon as a partial sum overflows, in an order of its own.

    `beyond`: SQL of the value then, if it is one.
    """
    total = "sum({a}){over}"
    unsure = needs_spark("a sum of bigint that some orders of adding overflow")
    fits = f"{total} BETWEEN -9223372036854775808::HUGEINT AND 9223372036854775807::HUGEINT"
    over = f"WHEN NOT {fits} THEN {beyond} " if beyond else ""
    return (
        f"CASE {over}WHEN {_BOUND} * count({{a}}){{over}} < 9223372036854775807::HUGEINT"
        f" OR abs({total}) > 9223372036854775808::HUGEINT OR count({{a}}){{over}} = 0"
        f" THEN CAST({total} AS BIGINT) ELSE {unsure} END"
    )


def _mean_of_whole() -> str:
    """Spark adds doubles, which is exact up to 2^53."""
    unsure = needs_spark("an average of numbers whose sum no double holds")
    return (
        f"CASE WHEN count({{a}}){{over}} = 0 THEN NULL"
        f" WHEN {_BOUND} * count({{a}}){{over}} < 9007199254740992::HUGEINT"
        f" THEN CAST(sum({{a}}){{over}} AS DOUBLE) / count({{a}}){{over}} ELSE {unsure} END"
    )


def _mean_of_decimal(types: Sequence[HiveType]) -> str:
    digits = unscaled("CAST(sum({a}){over} AS " + duckdb_type(_sum(types)) + ")", _sum(types))
    mean = quotient(f"({digits} * 10000::HUGEINT)", "count({a}){over}", _mean(types))
    mark = ROUNDED if sum(_sum(types).sizes) + 4 > MOST_DIGITS else ""
    return f"CASE WHEN count({{a}}){{over}} > 0 THEN {mean} END{mark}"


def _mean(types: Sequence[HiveType]) -> HiveType:
    (kind,) = types
    mean = mean_type(kind)
    if mean is None:
        raise NeedsSpark(f"avg of {kind}")
    return mean


def _array(types: Sequence[HiveType]) -> HiveType:
    (kind,) = types
    if kind == VOID:
        raise NeedsSpark(f"an array of {spark_name(kind)}")
    return HiveType("array", (), (("element", kind),))


def _statistic(sql: str) -> str:
    """`sql`, of doubles; what is not finite is left to Spark."""
    unsure = needs_spark("a statistic of values that are infinite")
    cases = f"WHEN NOT isfinite({sql}) THEN {unsure}"
    return f"CASE {cases} ELSE {sql} END{ROUNDED}"


_COUNT = "CAST(regr_count({a}, {b}){over} AS HUGEINT)"


def _sum_of(sql: str) -> str:
    """The sum of a product over the pairs, of whole numbers and exactly."""
    both = f"CASE WHEN {{a}} IS NOT NULL AND {{b}} IS NOT NULL THEN CAST({sql} AS HUGEINT) END"
    return f"CAST(sum({both}){{over}} AS HUGEINT)"


def _deviations(x: str, y: str) -> str:
    """The number of pairs times the sum of products of deviations from the means."""
    return f"({_COUNT} * {_sum_of(f'{x} * {y}')} - {_sum_of(x)} * {_sum_of(y)})"


def _ratio(above: str, below: str, least: int = 1) -> str:
    """A quotient for `least` pairs or more; Spark's own may differ in its last bits."""
    quotient = f"CAST({above} AS DOUBLE) / CAST({below} AS DOUBLE)"
    unsure = needs_spark("a statistic of values that are all equal")
    cases = f"WHEN {_COUNT} < {least} THEN NULL WHEN {below} = 0 THEN {unsure}"
    return f"CASE WHEN {_COUNT} = 0 THEN NULL {cases} ELSE {quotient} END{ROUNDED}"


_XX, _XY, _YY = _deviations("{b}", "{b}"), _deviations("{a}", "{b}"), _deviations("{a}", "{a}")
_PAIRS = {
    "covar_pop": _ratio(_XY, f"({_COUNT} * {_COUNT})"),
    "covar_samp": _ratio(_XY, f"({_COUNT} * ({_COUNT} - 1))", 2),
    "regr_avgx": _ratio(_sum_of("{b}"), _COUNT),
    "regr_avgy": _ratio(_sum_of("{a}"), _COUNT),
    "regr_intercept": _ratio(
        f"({_sum_of('{a}')} * {_sum_of('{b} * {b}')} - {_sum_of('{b}')} * {_sum_of('{a} * {b}')})",
        _XX,
    ),
    "regr_slope": _ratio(_XY, _XX),
    "regr_sxx": _ratio(_XX, _COUNT),
    "regr_sxy": _ratio(_XY, _COUNT),
    "regr_syy": _ratio(_YY, _COUNT),
}
"""Statistics of pairs (y, x) of whole numbers."""


def _near_percentile(accuracy: str, several: bool) -> str:
    """Spark's is exact as long as it has few values; it then loses some, in an order of its own."""
    unsure = needs_spark("percentile_approx of many values")
    share = "p" if several else "{b}"
    rank = f"greatest(1, CAST(ceil(CAST({share} AS DOUBLE) * count({{a}}){{over}}) AS BIGINT))"
    found = f"list_sort(list({{a}}){{over}}, 'ASC', 'NULLS LAST')[{rank}]"
    if several:
        found = f"list_transform({{b}}, lambda p: {found})"
    return (
        f"CASE WHEN count({{a}}){{over}} > {accuracy} // 4 THEN {unsure}"
        f" WHEN count({{a}}){{over}} > 0 THEN {found} END"
    )


def _array_of_first(types: Sequence[HiveType]) -> HiveType:
    return _array(types[:1])


def _by_extreme(word: str) -> str:
    """`max_by` or `min_by`: of equal ones Spark takes the last row, in an order of its own."""
    unsure = needs_spark(f"{word}_by of equal values")
    ends = f"arg_{word}({{b}}, {{b}}, 2){{over}}"
    return (
        f"CASE WHEN len({ends}) > 1 AND {ends}[1] = {ends}[2] THEN {unsure}"
        f" ELSE arg_{word}_null({{a}}, {{b}}){{over}} END"
    )


def _mode(end: str, ties: bool = True) -> str:
    """The first or last of the most frequent values; `ties`: whether there may be several."""
    most = "list_filter(map_keys(h), lambda k: h[k] = list_max(map_values(h)))"
    value = f"list_{end}({most})"
    if not ties:
        unsure = needs_spark("mode of values of which several are the most frequent")
        value = f"CASE WHEN len({most}) > 1 THEN {unsure} ELSE {value} END"
    return f"list_transform([histogram({{a}}){{over}}], lambda h: {value})[1]"


def _array_of_doubles(_: Sequence[HiveType]) -> HiveType:
    return _array([DOUBLE])


AGGREGATES = (
    Function("count(*)", (), "count(*){over}", BIGINT, column="count(1)"),
    Function("count(a)", ("any",), "count({a}){over}", BIGINT),
    Function("count(DISTINCT a)", ("ordered",), "count(DISTINCT {a}){over}", BIGINT),
    Function("count_if(a)", ("condition",), "count(CASE WHEN {a} THEN 1 END){over}", BIGINT),
    Function("sum(a)", ("narrow",), "CAST(sum({a}){over} AS BIGINT)", BIGINT),
    Function("sum(a)", ("integral",), _sum_of_bigint(), BIGINT),
    Function("sum(a)", ("decimal",), "sum({a}){over}", _sum),
    Function("sum(a)", ("fraction",), "sum({a}){over}", DOUBLE),
    Function("sum(a)", ("null",), "sum({a}){over}", DOUBLE),
    Function("try_sum(a)", ("null",), "sum({a}){over}", DOUBLE),
    Function("avg(a)", ("integral",), _mean_of_whole(), DOUBLE),
    Function("avg(a)", ("decimal",), _mean_of_decimal, _mean),
    Function("avg(a)", ("fraction",), "avg({a}){over}", DOUBLE),
    Function("min(a)", ("ordered",), "min({a}){over}", same_type),
    Function("max(a)", ("ordered",), "max({a}){over}", same_type),
    Function("bool_and(a)", ("condition",), "bool_and({a}){over}", BOOLEAN),
    Function("bool_or(a)", ("condition",), "bool_or({a}){over}", BOOLEAN),
    Function(
        "collect_list(a)",
        ("any",),
        "coalesce(list_filter(list({a}){over}, lambda x: x IS NOT NULL), [])",
        _array,
    ),
    Function(
        "collect_set(a)",
        ("exact",),
        "list_sort(coalesce(list_distinct(list({a}){over}), []))",
        _array,
    ),
    *(
        Function(f"{word}(a)", ("condition",), f"bool_{end}({{a}}){{over}}", BOOLEAN)
        for word, end in (("every", "and"), ("some", "or"))
    ),
    Function("any(a)", ("condition",), "bool_or({a}){over}", BOOLEAN),
    *(
        Function(f"bit_{word}(a)", ("integral",), f"bit_{word}({{a}}){{over}}", same_type)
        for word in ("and", "or", "xor")
    ),
    Function("mean(a)", ("integral",), _mean_of_whole(), DOUBLE),
    Function("mean(a)", ("decimal",), _mean_of_decimal, _mean),
    Function("mean(a)", ("fraction",), "avg({a}){over}", DOUBLE),
    Function("try_avg(a)", ("integral",), _mean_of_whole(), DOUBLE),
    Function("try_avg(a)", ("fraction",), "avg({a}){over}", DOUBLE),
    Function("try_sum(a)", ("narrow",), "CAST(sum({a}){over} AS BIGINT)", BIGINT),
    Function("try_sum(a)", ("integral",), _sum_of_bigint("NULL"), BIGINT),
    Function("try_sum(a)", ("fraction",), "sum({a}){over}", DOUBLE),
    *(
        Function(f"{name}(a)", ("double",), _statistic(f"{sql}({{a}}){{over}}"), DOUBLE)
        for name, sql in (
            ("stddev", "stddev_samp"),
            ("std", "stddev_samp"),
            ("stddev_samp", "stddev_samp"),
            ("stddev_pop", "stddev_pop"),
            ("variance", "var_samp"),
            ("var_pop", "var_pop"),
        )
    ),
    *(
        # In a window, Spark's sums of products of means lose digits that these keep.
        Function(f"{name}(a, b)", ("exactly whole",) * 2, sql, DOUBLE, in_windows=False)
        for name, sql in _PAIRS.items()
    ),
    *(
        Function(
            f"{name}(a, b{', c' if not accuracy else ''})",
            ("small", shares) if accuracy else ("small", shares, "accuracy"),
            _near_percentile(accuracy or "{c}", shares == "shares"),
            _array_of_first if shares == "shares" else same_type,
        )
        for name in ("percentile_approx", "approx_percentile")
        for accuracy in ("10000", "")
        for shares in ("share", "shares")
    ),
    Function("max_by(a, b)", ("any", "exact"), _by_extreme("max"), same_type),
    Function("min_by(a, b)", ("any", "exact"), _by_extreme("min"), same_type),
    *(
        Function(call.format(name), takes, sql, STRING)
        for name in ("listagg", "string_agg")
        for call, takes, sql in (
            ("{}(a)", ("text",), "string_agg({a}, ''){over}"),
            ("{}(a, b)", ("text", "word"), "string_agg({a}, {b}){over}"),
        )
    ),
    *(
        Function(
            f"listagg(a) WITHIN GROUP (ORDER BY a{way})",
            ("text",),
            f"string_agg({{a}}, '' ORDER BY {{a}} {order}){{over}}",
            STRING,
            column=f"listagg(a, NULL) WITHIN GROUP (ORDER BY a {order})",
        )
        for way, order in (("", "ASC NULLS FIRST"), (" DESC", "DESC NULLS LAST"))
    ),
    Function(
        "percentile_disc(b) WITHIN GROUP (ORDER BY a)",
        ("exactly real", "share"),
        "quantile_disc({a}, {b}){over}",
        DOUBLE,
    ),
    Function("regr_count(a, b)", ("double", "double"), "regr_count({a}, {b}){over}", BIGINT),
    Function("median(a)", ("exactly real",), "quantile_cont({a}, 0.5){over}", DOUBLE),
    Function(
        "percentile(a, b)",
        ("exactly real", "share"),
        "quantile_cont({a}, {b}){over}",
        DOUBLE,
        column="percentile(a, b, 1)",
    ),
    Function("mode(a)", ("exact",), _mode("min", ties=False), same_type),
    Function("mode(a, false)", ("exact",), _mode("min", ties=False), same_type, column="mode(a)"),
    Function(
        "mode(a, true)",
        ("exact",),
        _mode("min"),
        same_type,
        column="mode() WITHIN GROUP (ORDER BY a DESC)",
    ),
    Function(
        "mode() WITHIN GROUP (ORDER BY a)",
        ("exact",),
        _mode("min"),
        same_type,
        column="mode() WITHIN GROUP (ORDER BY a DESC)",
    ),
    Function(
        "mode() WITHIN GROUP (ORDER BY a DESC)",
        ("exact",),
        _mode("max"),
        same_type,
        column="mode() WITHIN GROUP (ORDER BY a)",
    ),
    Function(
        "percentile(a, b)",
        ("exactly real", "shares"),
        "quantile_cont({a}, {b}){over}",
        _array_of_doubles,
        column="percentile(a, b, 1)",
    ),
    Function(
        "percentile_cont(b) WITHIN GROUP (ORDER BY a)",
        ("exactly real", "share"),
        "quantile_cont({a}, {b}){over}",
        DOUBLE,
    ),
    *(
        Function(f"{word}(a)", ("any",), f"{sql}({{a}}){{over}}", same_type)
        for word, sql in (
            ("first", "first"),
            ("first_value", "first"),
            ("any_value", "first"),
            ("last", "last"),
            ("last_value", "last"),
        )
    ),
    *(
        Function(
            f"{word}(a, true)",
            ("any",),
            "list_filter(list({a}){over}, lambda x: x IS NOT NULL)[" + position + "]",
            same_type,
            column=f"{word}(a)",
        )
        for word, position in (
            ("first", "1"),
            ("first_value", "1"),
            ("any_value", "1"),
            ("last", "-1"),
            ("last_value", "-1"),
        )
    ),
)
