"""Arrays: how they are made, read and computed.

DuckDB's own functions keep no order, skip NULLs or give NULL for what Spark refuses in some places.
Here stands for each call what is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation import intervals
from acid_platform.engine.local.translation.casts import (
    Typed,
    cast,
    in_one_type,
)
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BOOLEAN,
    DATE,
    INT,
    STRING,
    VOID,
    duckdb_type,
    needs_spark,
    no_value,
    ordered,
    spark_name,
    wider,
)
from acid_platform.engine.local.translation.signatures import Construct
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator

MOST_MADE = 1_000_000
"""Elements of an array that a call makes from numbers alone."""


def array_of(kind: HiveType) -> HiveType:
    if VOID in kind.walk():
        raise NeedsSpark("an array of NULLs without a type")
    return HiveType("array", (), (("element", kind),))


def struct_of_names(names: Sequence[str], kinds: Sequence[HiveType]) -> HiveType:
    if any(name != name.lower() for name in names) or len({*names}) < len(names):
        raise NeedsSpark(f"a struct with the fields {', '.join(names)}")
    if any(VOID in kind.walk() for kind in kinds):
        raise NeedsSpark("a struct with a NULL without a type")
    return HiveType("struct", (), tuple(zip(names, kinds, strict=True)))


# --- the values of a call ------------------------------------------------------------------------


def values_of_call(translator: Translator, node: exp.Expr, *counts: int) -> list[Typed]:
    values = [translator.value(part) for part in node.expressions]
    if counts and len(values) not in counts:
        raise NeedsSpark(f"{node.name} with {len(values)} arguments")
    return values


def arrays_of_call(node: exp.Expr, *values: Typed) -> list[Typed]:
    """The arrays in their common type. Raises NeedsSpark if one is no array."""
    if any(value.type.kind != "array" for value in values):
        kinds = ", ".join(spark_name(value.type) for value in values)
        raise NeedsSpark(f"{node.name} of {kinds}")
    return in_one_type(values, node.name)


def _with_element(
    node: exp.Expr, values: Sequence[Typed], null: bool = True
) -> tuple[Typed, Typed]:
    """An array and a value, both in the common type of its elements and the value.

    `null`: whether the value may be NULL without a type.
    """
    array, value = values
    [array] = arrays_of_call(node, array)
    kind = wider(element_of(array), value.type)
    if kind is None or (value.type == VOID and not null):
        raise NeedsSpark(f"{node.name} of {spark_name(array.type)} and {spark_name(value.type)}")
    return cast(array, array_of(kind)), cast(value, kind)


def element_of(array: Typed) -> HiveType:
    return array.type.children[0][1]


def map_types(node: exp.Expr, value: Typed) -> tuple[HiveType, HiveType]:
    if value.type.kind != "map":
        raise NeedsSpark(f"{node.name} of {spark_name(value.type)}")
    (_, key), (_, kind) = value.type.children
    return key, kind


def null_with(values: Sequence[Typed], result: str) -> str:
    """NULL where one of the values is, which DuckDB's functions of lists may skip."""
    nulls = " OR ".join(f"{value.sql} IS NULL" for value in values)
    return f"CASE WHEN {nulls} THEN NULL ELSE {result} END"


def typed_as(sql: str, kind: HiveType) -> Typed:
    return Typed(f"CAST({sql} AS {duckdb_type(kind)})", kind)


def _comparable(node: exp.Expr, kind: HiveType) -> None:
    """Raises NeedsSpark if values of the type are not known to be compared alike."""
    if not ordered(kind) or kind.kind in FLOATING:
        raise NeedsSpark(f"{node.name} of {spark_name(kind)}")


# --- arrays ---------------------------------------------------------------------------------------


def array(translator: Translator, node: exp.Array) -> Typed:
    values = values_of_call(translator, node)
    if not values:
        raise NeedsSpark("array() without an element")
    numbers = tuple(value.literal for value in values if isinstance(value.literal, int | Decimal))
    values = in_one_type(values, "array")
    kind = array_of(values[0].type)
    made = typed_as(f"[{', '.join(value.sql for value in values)}]", kind)
    return replace(made, literal=numbers) if len(numbers) == len(values) else made


def _simple(
    sql: str, kind: HiveType | None = None, compares: bool = False
) -> Callable[[Translator, exp.Expr], Typed]:
    """A call with one array; it gives one of the same type unless `kind` says another."""

    def call(translator: Translator, node: exp.Expr) -> Typed:
        [value] = values_of_call(translator, node, 1)
        [value] = arrays_of_call(node, value)
        if compares:
            _comparable(node, element_of(value))
        return typed_as(sql.format(value.sql), kind or value.type)

    return call


def _extreme(function: str) -> Callable[[Translator, exp.Expr], Typed]:
    def call(translator: Translator, node: exp.Expr) -> Typed:
        [value] = arrays_of_call(node, *values_of_call(translator, node, 1))
        _comparable(node, element_of(value))
        return typed_as(f"{function}({value.sql})", element_of(value))

    return call


def _size(translator: Translator, node: exp.Expr) -> Typed:
    [value] = values_of_call(translator, node, 1)
    if value.type.kind not in ("array", "map"):
        raise NeedsSpark(f"{node.name} of {spark_name(value.type)}")
    count = "len" if value.type.kind == "array" else "cardinality"
    return typed_as(f"{count}({value.sql})", INT)


def _searched(sql: str, kind: HiveType | None) -> Callable[[Translator, exp.Expr], Typed]:
    """A call with an array and a value that is looked for in it."""

    def call(translator: Translator, node: exp.Expr) -> Typed:
        array, value = _with_element(node, values_of_call(translator, node, 2), null=False)
        _comparable(node, value.type)
        result = sql.format(array.sql, value.sql)
        return typed_as(null_with((array, value), result), kind or array.type)

    return call


def _extended(first: bool) -> Callable[[Translator, exp.Expr], Typed]:
    def call(translator: Translator, node: exp.Expr) -> Typed:
        array, value = _with_element(node, values_of_call(translator, node, 2))
        lists = (f"[{value.sql}]", array.sql) if first else (array.sql, f"[{value.sql}]")
        return typed_as(null_with((array,), f"list_concat({', '.join(lists)})"), array.type)

    return call


def _distinct(array: str) -> str:
    """The first of equal elements, in order; NULLs are equal."""
    return f"list_filter({array}, lambda e, i: {_place('e', array)} = i)"


def _place(value: str, array: str) -> str:
    """The first place of a value, which may be NULL; list_position of NULL may be NULL."""
    return f"list_position({array}, {value})"


def has_element(array: str, value: str) -> str:
    return f"coalesce({_place(value, array)} > 0, false)"


def _of_two(sql: str) -> Callable[[Translator, exp.Expr], Typed]:
    """A set operation of two arrays, which keeps the order of the elements."""

    def call(translator: Translator, node: exp.Expr) -> Typed:
        left, right = arrays_of_call(node, *values_of_call(translator, node, 2))
        _comparable(node, element_of(left))
        result = sql.format(a=left.sql, b=right.sql, e="e")
        return typed_as(null_with((left, right), distinct_of(result, left.type)), left.type)

    return call


def distinct_of(array: str, kind: HiveType) -> str:
    """As `_distinct`, of an array whose SQL stands only once."""
    return f"list_transform([CAST({array} AS {duckdb_type(kind)})], lambda l: {_distinct('l')})[1]"


def _overlap(translator: Translator, node: exp.Expr) -> Typed:
    left, right = arrays_of_call(node, *values_of_call(translator, node, 2))
    _comparable(node, element_of(left))
    nulls = f"{has_element(left.sql, 'NULL')} OR {has_element(right.sql, 'NULL')}"
    empty = f"len({left.sql}) = 0 OR len({right.sql}) = 0"
    result = (
        f"CASE WHEN list_has_any({left.sql}, {right.sql}) THEN true WHEN {empty} THEN false"
        f" WHEN {nulls} THEN NULL ELSE false END"
    )
    return typed_as(null_with((left, right), result), BOOLEAN)


def _sorted(translator: Translator, node: exp.Expr) -> Typed:
    array, *given = values_of_call(translator, node, 1, 2)
    [array] = arrays_of_call(node, array)
    _comparable(node, element_of(array))
    way = "ASC"
    if given:
        if given[0].sql not in ("true", "false"):
            raise NeedsSpark(f"{node.name} in an order that is no literal")
        way = "ASC" if given[0].sql == "true" else "DESC"
    nulls = "LAST" if way == "DESC" or node.name.lower() == "array_sort" else "FIRST"
    if given and node.name.lower() == "array_sort":
        raise NeedsSpark("array_sort with an order")
    return typed_as(f"list_sort({array.sql}, '{way}', 'NULLS {nulls}')", array.type)


def _index(node: exp.Expr, value: Typed) -> str:
    if value.type.kind not in INTEGRAL or value.type == BIGINT:
        raise NeedsSpark(f"{node.name or 'an element'} at {spark_name(value.type)}")
    return cast(value, BIGINT).sql


def _element_at(fails: bool) -> Callable[[Translator, exp.Expr], Typed]:
    """`element_at`, or `try_element_at`, which gives NULL beyond the array."""

    def call(translator: Translator, node: exp.Expr) -> Typed:
        value, key = values_of_call(translator, node, 2)
        if value.type.kind == "map":
            return _of_key(node, value, key)
        [value] = arrays_of_call(node, value)
        index = _index(node, key)
        zero = no_value("[INVALID_INDEX_OF_ZERO] The index 0 is invalid")
        reason = "[INVALID_ARRAY_INDEX_IN_ELEMENT_AT] The index {} is out of bounds"
        beyond = no_value(reason, index)
        cases = f"WHEN {index} = 0 THEN {zero}"
        if fails:
            cases += f" WHEN abs({index}) > len({value.sql}) THEN {beyond}"
        found = f"CASE {cases} ELSE list_extract({value.sql}, {index}) END"
        return typed_as(null_with((value, key), found), element_of(value))

    return call


def _of_key(node: exp.Expr, value: Typed, key: Typed) -> Typed:
    own, kind = map_types(node, value)
    if key.type != own or not ordered(own) or own.kind in FLOATING:
        raise NeedsSpark(f"{spark_name(value.type)} with the key {spark_name(key.type)}")
    return typed_as(f"({value.sql})[{key.sql}]", kind)


def _from_zero(node: exp.Expr, value: Typed, key: Typed, fails: bool) -> Typed:
    [value] = arrays_of_call(node, value)
    index = _index(node, key)
    reason = "[INVALID_ARRAY_INDEX] The index {} is out of bounds"
    beyond = no_value(reason, index) if fails else "NULL"
    cases = f"WHEN {index} < 0 OR {index} >= len({value.sql}) THEN {beyond}"
    found = f"CASE {cases} ELSE list_extract({value.sql}, {index} + 1) END"
    return typed_as(null_with((value, key), found), element_of(value))


def subscript(translator: Translator, node: exp.Bracket) -> Typed:
    """`a[b]` of an array, from 0, or of a map."""
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise NeedsSpark(node.sql("spark"))
    value, key = translator.value(node.this), translator.value(node.expressions[0])
    if value.type.kind == "map":
        return _of_key(node, value, key)
    return _from_zero(node, value, key, True)


def _get(translator: Translator, node: exp.Expr) -> Typed:
    value, key = values_of_call(translator, node, 2)
    return _from_zero(node, value, key, False)


def _slice(translator: Translator, node: exp.Expr) -> Typed:
    values = values_of_call(translator, node, 3)
    [value] = arrays_of_call(node, values[0])
    first, length = (_index(node, given) for given in values[1:])
    zero = no_value("[INVALID_PARAMETER_VALUE.START] a slice begins at 0")
    short = no_value("[INVALID_PARAMETER_VALUE.LENGTH] a slice has less than no elements")
    begin = f"(CASE WHEN {first} < 0 THEN len({value.sql}) + {first} + 1 ELSE {first} END)"
    found = (
        f"CASE WHEN {first} = 0 THEN {zero} WHEN {length} < 0 THEN {short}"
        f" WHEN {begin} < 1 OR {length} = 0 THEN list_slice({value.sql}, 1, 0)"
        f" ELSE list_slice({value.sql}, {begin}, {begin} + {length} - 1) END"
    )
    return typed_as(null_with(values, found), value.type)


def _inserted(translator: Translator, node: exp.Expr) -> Typed:
    array, position, value = values_of_call(translator, node, 3)
    array, value = _with_element(node, (array, value))
    index, size = _index(node, position), f"len({array.sql})"
    zero = no_value("[INVALID_INDEX_OF_ZERO] The index 0 is invalid")
    unsure = needs_spark(f"array_insert beyond {MOST_MADE} elements")
    before = f"list_resize(list_slice({array.sql}, 1, {index} - 1), {index} - 1)"
    after = f"list_slice({array.sql}, {index}, {size})"
    kept = f"list_slice({array.sql}, 1, {size} + {index} + 1)"
    behind = f"list_slice({array.sql}, {size} + {index} + 2, {size})"
    padded = f"list_resize([{value.sql}], -{index} - {size})"
    found = (
        f"CASE WHEN {index} = 0 THEN {zero} WHEN abs({index}) > {MOST_MADE} THEN {unsure}"
        f" WHEN {index} > 0 THEN list_concat({before}, [{value.sql}], {after})"
        f" WHEN {size} + {index} + 1 >= 0 THEN list_concat({kept}, [{value.sql}], {behind})"
        f" ELSE list_concat({padded}, {array.sql}) END"
    )
    return typed_as(null_with((array, position), found), array.type)


def _repeated(translator: Translator, node: exp.Expr) -> Typed:
    value, times = values_of_call(translator, node, 2)
    count, kind = _index(node, times), array_of(value.type)
    if times.type != INT:
        raise NeedsSpark(f"array_repeat by {spark_name(times.type)}")
    unsure = needs_spark(f"array_repeat of more than {MOST_MADE} elements")
    made = f"list_transform(range(greatest({count}, 0)), lambda i: {value.sql})"
    found = f"CASE WHEN {count} > {MOST_MADE} THEN {unsure} ELSE {made} END"
    return typed_as(null_with((times,), found), kind)


def _joined(translator: Translator, node: exp.Expr) -> Typed:
    values = values_of_call(translator, node, 2, 3)
    if [value.type for value in values] != [array_of(STRING), *[STRING] * (len(values) - 1)]:
        raise NeedsSpark(f"array_join of {', '.join(spark_name(value.type) for value in values)}")
    if not isinstance(values[1].literal, str):
        raise NeedsSpark("array_join with a separator that is no literal")
    array, separator, *other = (value.sql for value in values)
    if other:
        array = f"list_transform({array}, lambda e: coalesce(e, {other[0]}))"
    joined = f"coalesce(array_to_string({array}, {separator}), '')"
    return typed_as(null_with(values, joined), STRING)


def _zipped(translator: Translator, node: exp.Expr) -> Typed:
    values = values_of_call(translator, node)
    if not values or any(value.type.kind != "array" for value in values):
        raise NeedsSpark("arrays_zip of anything but arrays")
    names = [
        part.name if isinstance(part, exp.Column) else str(position)
        for position, part in enumerate(node.expressions)
    ]
    if not all(isinstance(part, exp.Column | exp.Array) for part in node.expressions):
        raise NeedsSpark("arrays_zip of anything but columns and array(…)")
    kind = array_of(struct_of_names(names, [element_of(value) for value in values]))
    zipped = f"list_zip({', '.join(value.sql for value in values)})"
    return typed_as(null_with(values, zipped), kind)


def _flattened(translator: Translator, node: exp.Expr) -> Typed:
    [value] = arrays_of_call(node, *values_of_call(translator, node, 1))
    inner = element_of(value)
    if inner.kind != "array":
        raise NeedsSpark(f"flatten of {spark_name(value.type)}")
    result = f"CASE WHEN {has_element(value.sql, 'NULL')} THEN NULL ELSE flatten({value.sql}) END"
    return typed_as(result, inner)


def concatenated(values: Sequence[Typed]) -> Typed:
    """`concat` of arrays."""
    values = in_one_type(values, "concat")
    joined = f"list_concat({', '.join(value.sql for value in values)})"
    return typed_as(null_with(values, joined), values[0].type)


def _dates(first: Typed, last: Typed, by: intervals.Interval) -> Typed:
    """A sequence of dates by a literal interval."""
    if {first.type, last.type} != {DATE} or by.months + by.micros <= 0 or not by.days:
        raise NeedsSpark("a sequence of dates by parts of a day, or backwards")
    a, b = first.sql, last.sql
    count, step = f"(CAST({b} - {a} AS BIGINT) // {by.micros // 86_400_000_000 or 1})", ""
    step = f"{a} + CAST(i * {by.micros // 86_400_000_000} AS INTEGER)"
    if by.months:
        count = f"((year({b}) - year({a})) * 12 + month({b}) - month({a})) // {by.months}"
        step = f"CAST({a} + to_months(CAST(i * {by.months} AS INTEGER)) AS DATE)"
    unsure = needs_spark("a sequence of dates that is long, or goes backwards")
    made = f"list_filter(list_transform(range({count} + 1), lambda i: {step}), lambda d: d <= {b})"
    found = f"CASE WHEN {a} > {b} OR {count} > 100000 THEN {unsure} ELSE {made} END"
    return typed_as(null_with((first, last), found), array_of(DATE))


def _sequence(translator: Translator, node: exp.Expr) -> Typed:
    if len(node.expressions) == 3 and intervals.is_interval(node.expressions[2]):
        by = intervals.interval_of(node.expressions[2])
        assert by is not None
        start, end = map(translator.value, node.expressions[:2])
        return _dates(start, end, by)
    values = values_of_call(translator, node, 2, 3)
    if any(value.type.kind not in INTEGRAL for value in values):
        raise NeedsSpark(f"sequence of {', '.join(spark_name(value.type) for value in values)}")
    kind = in_one_type(values, "sequence")[0].type
    first, last, *steps = (cast(value, BIGINT).sql for value in values)
    step = steps[0] if steps else f"(CASE WHEN {first} <= {last} THEN 1 ELSE -1 END)"
    wrong = no_value("[ILLEGAL_SEQUENCE_BOUNDARIES] the step does not lead from start to stop")
    unsure = needs_spark(f"a sequence of more than {MOST_MADE} elements")
    bound = f"CAST({last} AS HUGEINT) - {first}"
    found = (
        f"CASE WHEN {first} = {last} THEN [{first}]"
        f" WHEN {step} = 0 OR ({step} > 0) <> ({first} < {last}) THEN {wrong}"
        f" WHEN abs({bound}) / abs(CAST({step} AS HUGEINT)) > {MOST_MADE} THEN {unsure}"
        f" ELSE generate_series({first}, {last}, {step}) END"
    )
    return typed_as(null_with(values, found), array_of(kind))


# --- what is translated ---------------------------------------------------------------------------

_PLAIN = "any type that has an order, but float and double"
_CALLS: tuple[tuple[str, str, Callable[..., Typed]], ...] = (
    ("size(a)", "arrays, maps", _size),
    ("cardinality(a)", "arrays, maps", _size),
    ("array_size(a)", "arrays", _simple("len({})", INT)),
    ("array_compact(a)", "arrays", _simple("list_filter({0}, lambda e: e IS NOT NULL)")),
    ("array_distinct(a)", _PLAIN, _simple(_distinct("{0}"), compares=True)),
    ("array_max(a)", _PLAIN, _extreme("list_max")),
    ("array_min(a)", _PLAIN, _extreme("list_min")),
    ("array_sort(a)", _PLAIN, _sorted),
    ("sort_array(a, true)", f"{_PLAIN}; the order a literal", _sorted),
    (
        "array_contains(a, b)",
        _PLAIN,
        _searched(
            "CASE WHEN list_contains({0}, {1}) THEN true WHEN "
            + has_element("{0}", "NULL")
            + " THEN NULL ELSE false END",
            BOOLEAN,
        ),
    ),
    ("array_position(a, b)", _PLAIN, _searched("coalesce(list_position({0}, {1}), 0)", BIGINT)),
    (
        "array_remove(a, b)",
        _PLAIN,
        _searched("list_filter({0}, lambda e: e IS NULL OR e <> {1})", None),
    ),
    ("array_append(a, b)", "arrays", _extended(False)),
    ("array_prepend(a, b)", "arrays", _extended(True)),
    ("array_insert(a, 1, b)", "arrays", _inserted),
    ("array_union(a, b)", _PLAIN, _of_two("list_concat({a}, {b})")),
    (
        "array_intersect(a, b)",
        _PLAIN,
        _of_two("list_filter({a}, lambda {e}: " + has_element("{b}", "{e}") + ")"),
    ),
    (
        "array_except(a, b)",
        _PLAIN,
        _of_two("list_filter({a}, lambda {e}: NOT " + has_element("{b}", "{e}") + ")"),
    ),
    ("arrays_overlap(a, b)", _PLAIN, _overlap),
    ("arrays_zip(a, b)", "arrays that are columns or array(…)", _zipped),
    ("array_repeat(a, 2)", "all", _repeated),
    ("array_join(a, ',', '-')", "arrays of text", _joined),
    ("slice(a, 1, 2)", "arrays", _slice),
    ("element_at(a, b)", "arrays, maps", _element_at(True)),
    ("try_element_at(a, b)", "arrays, maps", _element_at(False)),
    ("get(a, 0)", "arrays", _get),
    ("flatten(a)", "arrays of arrays", _flattened),
    ("sequence(a, b, c)", "whole numbers", _sequence),
)
ARRAY_CALLS = {
    shown.partition("(")[0]: Construct(shown, types, translate, ("this", "expressions"))
    for shown, types, translate in _CALLS
}
"""By the name of the function, which sqlglot leaves as it is written."""
