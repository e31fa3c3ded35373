"""Aggregates, whose values don't depend on the order of the rows but for the last bits, and the
functions of windows alone, named `over …` in the table."""

from __future__ import annotations

from functools import partial

from acid_platform.engine.interface import moment
from acid_platform.engine.local.translation.arithmetic import mean_type, quotient, unscaled
from acid_platform.engine.local.translation.casts import Typed, as_key, cast, typed_as
from acid_platform.engine.local.translation.duckdb_sql import (
    ROUNDED,
    decimal,
    duckdb_type,
    needs_spark,
    text,
    wider,
)
from acid_platform.engine.local.translation.signatures import add
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType
from acid_platform.predicates.analysis import MOST_DIGITS


def _sum_type(kind: HiveType) -> HiveType:
    precision, scale = kind.sizes
    return decimal(min(MOST_DIGITS, precision + 10), scale)


def _sum_of_decimal(value: Typed) -> Typed:
    kind = _sum_type(value.type)
    return typed_as(f"sum({value.sql}){{over}}", kind)


_BOUND = "greatest(abs(CAST(max({0}){over} AS HUGEINT)), abs(CAST(min({0}){over} AS HUGEINT)))"


def _sum_of_bigint(beyond: str = "") -> str:
    """Spark fails as soon as a partial sum overflows, in an order of its own.

    `beyond`: SQL of the value then, if it is one.
    """
    total = "sum({0}){over}"
    unsure = needs_spark("a sum of bigint that some orders of adding overflow")
    fits = f"{total} BETWEEN -9223372036854775808::HUGEINT AND 9223372036854775807::HUGEINT"
    over = f"WHEN NOT {fits} THEN {beyond} " if beyond else ""
    return (
        f"CASE {over}WHEN {_BOUND} * count({{0}}){{over}} < 9223372036854775807::HUGEINT"
        f" OR abs({total}) > 9223372036854775808::HUGEINT OR count({{0}}){{over}} = 0"
        f" THEN CAST({total} AS BIGINT) ELSE {unsure} END"
    )


def _mean_of_whole() -> str:
    """Spark adds doubles, which is exact up to 2^53."""
    unsure = needs_spark("an average of numbers whose sum no double holds")
    return (
        f"CASE WHEN count({{0}}){{over}} = 0 THEN NULL"
        f" WHEN {_BOUND} * count({{0}}){{over}} < 9007199254740992::HUGEINT"
        f" THEN CAST(sum({{0}}){{over}} AS DOUBLE) / count({{0}}){{over}} ELSE {unsure} END"
    )


def _mean_of_decimal(value: Typed) -> Typed:
    total, kind = _sum_type(value.type), mean_type(value.type)
    if kind is None:
        raise NeedsSpark(f"avg of {value.type}")
    digits = unscaled(f"CAST(sum({value.sql}){{over}} AS {duckdb_type(total)})", total)
    mean = quotient(f"({digits} * 10000::HUGEINT)", f"count({value.sql}){{over}}", kind)
    mark = ROUNDED if sum(total.sizes) + 4 > MOST_DIGITS else ""
    case = f"CASE WHEN count({value.sql}){{over}} > 0 THEN {mean} END{mark}"
    return typed_as(f"{case}", kind)


def _statistic(sql: str) -> str:
    """`sql`, of doubles; what is not finite is left to Spark."""
    unsure = needs_spark("a statistic of values that are infinite")
    cases = f"WHEN NOT isfinite({sql}) THEN {unsure}"
    return f"CASE {cases} ELSE {sql} END{ROUNDED}"


_COUNT = "CAST(regr_count({0}, {1}){over} AS HUGEINT)"


def _sum_of(sql: str) -> str:
    """The sum of a product over the pairs, of whole numbers and exactly."""
    both = f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN CAST({sql} AS HUGEINT) END"
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


_XX, _XY, _YY = _deviations("{1}", "{1}"), _deviations("{0}", "{1}"), _deviations("{0}", "{0}")
_PAIRS = {
    "covar_pop": _ratio(_XY, f"({_COUNT} * {_COUNT})"),
    "covar_samp": _ratio(_XY, f"({_COUNT} * ({_COUNT} - 1))", 2),
    "regr_avgx": _ratio(_sum_of("{1}"), _COUNT),
    "regr_avgy": _ratio(_sum_of("{0}"), _COUNT),
    "regr_intercept": _ratio(
        f"({_sum_of('{0}')} * {_sum_of('{1} * {1}')} - {_sum_of('{1}')} * {_sum_of('{0} * {1}')})",
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
    share = "p" if several else "{1}"
    rank = f"greatest(1, CAST(ceil(CAST({share} AS DOUBLE) * count({{0}}){{over}}) AS BIGINT))"
    found = f"list_sort(list({{0}}){{over}}, 'ASC', 'NULLS LAST')[{rank}]"
    if several:
        found = f"list_transform({{1}}, lambda p: {found})"
    return (
        f"CASE WHEN count({{0}}){{over}} > {accuracy} // 4 THEN {unsure}"
        f" WHEN count({{0}}){{over}} > 0 THEN {found} END"
    )


def _by_extreme(word: str) -> str:
    """`max_by` or `min_by`: of equal ones Spark takes the last row, in an order of its own."""
    unsure = needs_spark(f"{word}_by of equal values")
    ends = f"arg_{word}({{1}}, {{1}}, 2){{over}}"
    return (
        f"CASE WHEN len({ends}) > 1 AND {ends}[1] = {ends}[2] THEN {unsure}"
        f" ELSE arg_{word}_null({{0}}, {{1}}){{over}} END"
    )


def _mode(end: str, ties: bool = True) -> str:
    """The first or last of the most frequent values; `ties`: whether there may be several."""
    most = "list_filter(map_keys(h), lambda k: h[k] = list_max(map_values(h)))"
    value = f"list_{end}({most})"
    if not ties:
        unsure = needs_spark("mode of values of which several are the most frequent")
        value = f"CASE WHEN len({most}) > 1 THEN {unsure} ELSE {value} END"
    return f"list_transform([histogram({{0}}){{over}}], lambda h: {value})[1]"


def _numbered(function: str, value: str, count: Typed) -> str:
    """A function of a window with a number from 1."""
    number = count.literal
    if not isinstance(number, int) or not 0 < number < 1_000_000_000:
        raise NeedsSpark(f"{function} by {number}")
    if not value:
        return f"{function}({number}){{over}}"
    return f"{function}({value}, {number}{{nulls}}){{over}}"


def _shifted(
    function: str, value: Typed, offset: Typed | None = None, default: Typed | None = None
) -> str:
    arguments = [value.sql]
    if offset is not None:
        if abs(int(str(offset.literal))) >= 1_000_000_000:
            raise NeedsSpark(f"{function} by {offset.literal}")
        arguments.append(str(offset.literal))
    if default is not None:
        if wider(value.type, default.type) != value.type:
            raise NeedsSpark(f"{function} with a default of another type")
        arguments.append(cast(default, value.type).sql)
    return f"{function}({', '.join(arguments)}{{nulls}}){{over}}"


def _now() -> str:
    return text(moment().replace(tzinfo=None).isoformat(" "))


def _count_of_rows(*values: Typed) -> str:
    """The SQL of `count(DISTINCT a, b)`: rows with a NULL are not counted."""
    whole = " AND ".join(f"{value.sql} IS NOT NULL" for value in values)
    fields = ", ".join(f"f{i} := {as_key(value).sql}" for i, value in enumerate(values))
    return f"count(DISTINCT CASE WHEN {whole} THEN struct_pack({fields}) END){{over}}"


def _mode_of(value: Typed, ends: Typed) -> str:
    sql = _mode("min", ties=ends.sql == "true")
    return sql.format(value.sql, over="{over}")


def _end_of(value: Typed, ignores: Typed, end: str) -> str:
    if ignores.sql != "true":
        return f"{'first' if end == '1' else 'last'}({value.sql}){{over}}"
    return f"list_filter(list({value.sql}){{over}}, lambda x: x IS NOT NULL)[{end}]"


# fmt: off
_ = partial(add, aggregate=True)
_("count *()", "bigint", "count(*){over}")
_("count(any)", "bigint", "count({0}){over}")
_("count distinct(ordered)", "bigint", "count(DISTINCT {0}){over}")
_("count distinct(ordered, ordered, ordered*)", "bigint", _count_of_rows)
_("count_if(condition)", "bigint", "count(CASE WHEN {0} THEN 1 END){over}")
for _name in ("sum", "try_sum"):
    _(f"{_name}(narrow)", "bigint", "sum({0}){over}")
    _(f"{_name}(integral)", "bigint", _sum_of_bigint("NULL" if _name == "try_sum" else ""))
    _(f"{_name}(fraction)", "double", "sum({0}){over}")
    _(f"{_name}(null)", "double", "sum({0}){over}")
_("sum(decimal)", "", _sum_of_decimal)
_("avg|mean|try_avg(integral)", "double", _mean_of_whole())
_("avg|mean(decimal)", "", _mean_of_decimal)
_("avg|mean|try_avg(fraction)", "double", "avg({0}){over}")
_("min(ordered)", "0", "min({0}){over}")
_("max(ordered)", "0", "max({0}){over}")
_("bool_and|every(condition)", "boolean", "bool_and({0}){over}")
_("bool_or|some|any(condition)", "boolean", "bool_or({0}){over}")
_("collect_list|array_agg(any)", "0[]",
  "coalesce(list_filter(list({0}){over}, lambda x: x IS NOT NULL), [])")
_("collect_set(exact)", "0[]", "list_sort(coalesce(list_distinct(list({0}){over}), []))")
for _name in ("bit_and", "bit_or", "bit_xor"):
    _(f"{_name}(integral)", "0", f"{_name}({{0}}){{over}}")
for _name, _sql in (("stddev|std|stddev_samp", "stddev_samp"), ("stddev_pop", "stddev_pop"),
                    ("variance|var_samp", "var_samp"), ("var_pop", "var_pop")):
    _(f"{_name}(double)", "double", _statistic(f"{_sql}({{0}}){{over}}"))
for _name, _sql in _PAIRS.items():  # in a window, Spark's sums lose digits that these keep
    _(f"{_name}(exactly whole, exactly whole)", "double", _sql, windows=False)
_("regr_count(double, double)", "bigint", "regr_count({0}, {1}){over}")
for _kind, _gives in (("share", "0"), ("shares", "0[]")):
    _(f"percentile_approx|approx_percentile(small, {_kind})", _gives,
      _near_percentile("10000", _kind == "shares"))
    _(f"percentile_approx|approx_percentile(small, {_kind}, accuracy)", _gives,
      _near_percentile("{2}", _kind == "shares"))
    _(f"percentile(exactly real, {_kind})", "double" + _gives[1:],
      "quantile_cont({0}, {1}){over}")
_("percentile_cont within(exactly real, share)", "double", "quantile_cont({0}, {1}){over}")
_("percentile_disc within(exactly real, share)", "double", "quantile_disc({0}, {1}){over}")
_("median(exactly real)", "double", "quantile_cont({0}, 0.5){over}")
for _name in ("max", "min"):
    _(f"{_name}_by(kept, exact)", "0", _by_extreme(_name))
_("listagg|string_agg(text)", "string", "string_agg({0}, ''){over}")
_("listagg|string_agg(text, word)", "string", "string_agg({0}, {1}){over}")
_("listagg within(text)", "string", "string_agg({0}, '' ORDER BY {0} ASC NULLS FIRST){over}")
_("listagg within desc(text)", "string", "string_agg({0}, '' ORDER BY {0} DESC NULLS LAST){over}")
_("mode(exact)", "0", _mode("min", ties=False))
_("mode(exact, flag)", "0", _mode_of)
_("mode within(exact)", "0", _mode("min"))
_("mode within desc(exact)", "0", _mode("max"))
for _name, _end in (("first|first_value|any_value", "1"), ("last|last_value", "-1")):
    _(f"{_name}(kept)", "0", "first({0}){over}" if _end == "1" else "last({0}){over}")
    _(f"{_name}(kept, flag)", "0", partial(_end_of, end=_end))
for _name, _gives in (("rank", "int"), ("dense_rank", "int"), ("percent_rank", "double"),
                      ("cume_dist", "double")):
    _(f"over {_name}(any*)", _gives, f"{_name}(){{over}}")  # arguments mean nothing
_("over row_number()", "int", "row_number(){over}")
_("over ntile(digits)", "int", partial(_numbered, "ntile", ""))
for _name in ("lag", "lead"):
    for _more in ("", ", digits", ", digits, any"):
        _(f"over {_name}(any{_more})", "0", partial(_shifted, _name))
for _kinds in ("any", "any, flag"):
    _(f"over first|over first_value|over any_value({_kinds})", "0",
      lambda value, _=None: _shifted("first_value", value))
    _(f"over last|over last_value({_kinds})", "0",
      lambda value, _=None: _shifted("last_value", value))
_("over nth_value(any, digits)", "0", lambda value, at: _numbered("nth_value", value.sql, at))
add("current_timestamp|now()", "timestamp", _now)
add("current_date|curdate()", "date", _now)
# fmt: on
MOMENTS = ("current_timestamp", "now", "current_date", "curdate")
"""One moment in UTC in all of a statement."""
