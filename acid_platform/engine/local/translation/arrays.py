"""Arrays, maps, structs and lambdas.

DuckDB's own functions keep no order, skip NULLs or give NULL for what Spark refuses in some places.
Here stands for each call what is the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.casts import (
    Typed,
    as_condition,
    cast,
    in_one_type,
    typed_as,
)
from acid_platform.engine.local.translation.dates import Interval
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    DATE,
    INT,
    STRING,
    VOID,
    array_of,
    duckdb_type,
    identifier,
    needs_spark,
    no_value,
    spark_name,
    text,
    translating,
)
from acid_platform.engine.local.translation.signatures import add, is_plain, row
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator

MOST_MADE = 1_000_000
"""Elements of an array that a call makes from numbers alone."""


def element_of(array: Typed) -> HiveType:
    return array.type.children[0][1]


# --- arrays ---------------------------------------------------------------------------------------


def _has(array: str, value: str = "NULL") -> str:
    """Whether the array has the value, which may be NULL."""
    return f"coalesce(list_position({array}, {value}) > 0, false)"


def _distinct(array: str) -> str:
    """The first of equal elements, in order; NULLs are equal."""
    return f"list_filter({array}, lambda e, i: list_position({array}, e) = i)"


def _distinct_of(array: str, kind: str) -> str:
    """As `_distinct`, of an array whose SQL stands only once."""
    return f"list_transform([CAST({array} AS {kind})], lambda l: {_distinct('l')})[1]"


_ZERO = no_value("[INVALID_INDEX_OF_ZERO] The index 0 is invalid")
_BEYOND = no_value("[INVALID_ARRAY_INDEX_IN_ELEMENT_AT] The index {} is out of bounds", "{1}")
_OUTSIDE = no_value("[INVALID_ARRAY_INDEX] The index {} is out of bounds", "{1}")
_SHORT = no_value("[INVALID_PARAMETER_VALUE.LENGTH] a slice has less than no elements")
_START = no_value("[INVALID_PARAMETER_VALUE.START] a slice begins at 0")
_FIRST = "(CASE WHEN {1} < 0 THEN len({0}) + {1} + 1 ELSE {1} END)"
_BEYOND_ZERO = "WHEN {1} < 0 OR {1} >= len({0}) THEN "
# fmt: off
add("size|cardinality|array_size(array)", "int", "len({0})")
add("size|cardinality(map)", "int", "cardinality({0})")
add("array_compact(array)", "0", "list_filter({0}, lambda e: e IS NOT NULL)")
add("array_distinct(P[])", "T[]", _distinct("{0}"))
add("array_max(P[])", "T", "list_max({0})")
add("array_min(P[])", "T", "list_min({0})")
add("array_sort(P[])", "T[]", "list_sort({0}, 'ASC', 'NULLS LAST')")
add("sort_array(P[])", "T[]", "list_sort({0}, 'ASC', 'NULLS FIRST')")
add("array_contains(P[], P)", "boolean", "CASE WHEN list_contains({0}, {1}) THEN true WHEN "
    + _has("{0}") + " THEN NULL ELSE false END", nulls="*")
add("array_position(P[], P)", "bigint", "coalesce(list_position({0}, {1}), 0)", nulls="*")
add("array_remove(P[], P)", "T[]", "list_filter({0}, lambda e: e IS NULL OR e <> {1})", nulls="*")
add("array_append(S[], S)", "T[]", "list_concat({0}, [{1}])", nulls="0")
add("array_prepend(S[], S)", "T[]", "list_concat([{1}], {0})", nulls="0")
for _name, _sql in {
    "union": "list_concat({0}, {1})",
    "intersect": "list_filter({0}, lambda e: " + _has("{1}", "e") + ")",
    "except": "list_filter({0}, lambda e: NOT " + _has("{1}", "e") + ")",
}.items():
    add(f"array_{_name}(P[], P[])", "T[]", _distinct_of(_sql, "{type}"), nulls="*")
add("arrays_overlap(P[], P[])", "boolean",
    "CASE WHEN list_has_any({0}, {1}) THEN true WHEN len({0}) = 0 OR len({1}) = 0 THEN false"
    f" WHEN {_has('{0}')} OR {_has('{1}')} THEN NULL ELSE false END", nulls="*")
add("array_join(strings, word)", "string", "coalesce(array_to_string({0}, {1}), '')", nulls="*")
add("array_join(strings, word, text)", "string",
    "coalesce(array_to_string(list_transform({0}, lambda e: coalesce(e, {2})), {1}), '')",
    nulls="*")
add("array_repeat(T, integer)", "T[]",
    f"CASE WHEN {{1}} > {MOST_MADE} THEN "
    + needs_spark(f"array_repeat of more than {MOST_MADE} elements")
    + " ELSE list_transform(range(greatest({1}, 0)), lambda i: {0}) END", nulls="1")
add("slice(array, index, index)", "0",
    f"CASE WHEN {{1}} = 0 THEN {_START} WHEN {{2}} < 0 THEN {_SHORT}"
    f" WHEN {_FIRST} < 1 OR {{2}} = 0 THEN list_slice({{0}}, 1, 0)"
    f" ELSE list_slice({{0}}, {_FIRST}, {_FIRST} + {{2}} - 1) END", nulls="*")
add("element_at(array, index)", "element",
    f"CASE WHEN {{1}} = 0 THEN {_ZERO} WHEN abs({{1}}) > len({{0}}) THEN {_BEYOND}"
    " ELSE list_extract({0}, {1}) END", nulls="*")
add("try_element_at(array, index)", "element",
    f"CASE WHEN {{1}} = 0 THEN {_ZERO} ELSE list_extract({{0}}, {{1}}) END", nulls="*")
add("get(array, index)", "element",
    f"CASE {_BEYOND_ZERO} NULL ELSE list_extract({{0}}, {{1}} + 1) END", nulls="*")
add("[](array, index)", "element",
    f"CASE {_BEYOND_ZERO} {_OUTSIDE} ELSE list_extract({{0}}, {{1}} + 1) END", nulls="*")
add("element_at|try_element_at|[](map, key)", "value", "({0})[{1}]")
add("concat(T[], T[]*)", "T[]", "list_concat({all})", nulls="*")
# fmt: on


@row("sort_array(P[], flag)", gives="T[]")
def _sorted(array: Typed, rises: Typed) -> str:
    way = "'ASC', 'NULLS FIRST'" if rises.sql == "true" else "'DESC', 'NULLS LAST'"
    return f"list_sort({array.sql}, {way})"


@row("array(any, any*)")
def _array(*given: Typed) -> Typed:
    numbers = tuple(value.literal for value in given if isinstance(value.literal, int | Decimal))
    values = in_one_type(given, "array")
    made = typed_as(f"[{', '.join(value.sql for value in values)}]", array_of(values[0].type))
    return replace(made, literal=numbers) if len(numbers) == len(values) else made


@row("array_insert(S[], index, S)", gives="T[]", nulls="01")
def _inserted(array: Typed, position: Typed, value: Typed) -> str:
    given, index, size = array.sql, position.sql, f"len({array.sql})"
    unsure = needs_spark(f"array_insert beyond {MOST_MADE} elements")
    before = f"list_resize(list_slice({given}, 1, {index} - 1), {index} - 1)"
    after = f"list_slice({given}, {index}, {size})"
    kept = f"list_slice({given}, 1, {size} + {index} + 1)"
    behind = f"list_slice({given}, {size} + {index} + 2, {size})"
    padded = f"list_resize([{value.sql}], -{index} - {size})"
    return (
        f"CASE WHEN {index} = 0 THEN {_ZERO} WHEN abs({index}) > {MOST_MADE} THEN {unsure}"
        f" WHEN {index} > 0 THEN list_concat({before}, [{value.sql}], {after})"
        f" WHEN {size} + {index} + 1 >= 0 THEN list_concat({kept}, [{value.sql}], {behind})"
        f" ELSE list_concat({padded}, {given}) END"
    )


@row("arrays_zip(word, array, any*)", nulls="*")
def _zipped(*given: Typed) -> Typed:
    names, values = _pairs(given, "arrays_zip")
    if any(value.type.kind != "array" for value in values):
        raise NeedsSpark("arrays_zip of anything but arrays")
    kind = array_of(_struct_of(names, [element_of(value) for value in values]))
    return Typed(f"list_zip({', '.join(value.sql for value in values)})", kind)


@row("flatten(array)", gives="element")
def _flattened(value: Typed) -> str:
    if element_of(value).kind != "array":
        raise NeedsSpark(f"flatten of {spark_name(value.type)}")
    return f"CASE WHEN {_has(value.sql)} THEN NULL ELSE flatten({value.sql}) END"


@row("sequence(day, day, interval)", nulls="01")
def _dates(first: Typed, last: Typed, step: Typed) -> Typed:
    by, a, b = step.span, first.sql, last.sql
    assert isinstance(by, Interval)
    if by.months + by.micros <= 0 or not by.days:
        raise NeedsSpark("a sequence of dates by parts of a day, or backwards")
    count = f"(CAST({b} - {a} AS BIGINT) // {by.micros // 86_400_000_000 or 1})"
    each = f"{a} + CAST(i * {by.micros // 86_400_000_000} AS INTEGER)"
    if by.months:
        count = f"((year({b}) - year({a})) * 12 + month({b}) - month({a})) // {by.months}"
        each = f"CAST({a} + to_months(CAST(i * {by.months} AS INTEGER)) AS DATE)"
    unsure = needs_spark("a sequence of dates that is long, or goes backwards")
    made = f"list_filter(list_transform(range({count} + 1), lambda i: {each}), lambda d: d <= {b})"
    found = f"CASE WHEN {a} > {b} OR {count} > 100000 THEN {unsure} ELSE {made} END"
    return Typed(found, array_of(DATE))


@row("sequence(integral, integral)", "sequence(integral, integral, integral)", nulls="*")
def _sequence(*values: Typed) -> Typed:
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
    return Typed(found, array_of(kind))


# --- lambdas --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lambda:
    """A lambda as an argument: it has a value once the types of its parameters are known."""

    translator: Translator
    node: exp.Lambda

    def body(self, kinds: Sequence[HiveType], *sql: str) -> tuple[Typed, list[str]]:
        """Its body, whose parameters have these types, and their names in DuckDB's SQL.

        `sql`: what the parameters are, if they have no names of their own.
        """
        shown = self.node.sql("spark")
        if len(self.node.expressions) != len(kinds):
            raise NeedsSpark(f"{shown} of {len(kinds)} values")
        names = [parameter.name.lower() for parameter in self.node.expressions]
        if len({*names}) < len(names) or any(name in self.translator.parameters for name in names):
            raise NeedsSpark(f"{shown}, which names a parameter twice")
        own = [f"p{self.depth + position}" for position in range(len(kinds))]
        given = (Typed(s, kind) for s, kind in zip(sql or own, kinds, strict=True))
        with self.translator.within(dict(zip(names, given, strict=True))):
            return self.translator.value(self.node.this), own

    @property
    def depth(self) -> int:
        return len(self.translator.parameters)


def _lambda(value: Typed) -> Lambda:
    assert isinstance(value.span, Lambda)
    return value.span


def _of_elements(array: Typed, given: Typed, indexed: bool = True) -> tuple[Typed, str]:
    """The body of a lambda of the elements, and DuckDB's lambda with it.

    `indexed`: whether it may have a second parameter, the position from 0.
    """
    inner = _lambda(given)
    names = (f"p{inner.depth}", f"CAST(p{inner.depth + 1} - 1 AS INTEGER)")
    if indexed and len(inner.node.expressions) == 2:
        body, own = inner.body((element_of(array), INT), *names)
    else:
        body, own = inner.body((element_of(array),))
    return body, f"lambda {', '.join(own)}: {body.sql}"


@row("transform(array, lambda)")
def _transformed(array: Typed, given: Typed) -> Typed:
    body, inner = _of_elements(array, given)
    return typed_as(f"list_transform({array.sql}, {inner})", array_of(body.type))


@row("filter(array, lambda)", gives="0")
def _filtered(array: Typed, given: Typed) -> str:
    body, inner = _of_elements(array, given)
    as_condition(body, _lambda(given).node.sql("spark"))
    return f"list_filter({array.sql}, {inner})"


def _tested(array: Typed, given: Typed, found: str, otherwise: str) -> str:
    """`exists` and `forall`: what a test of one element decides, else NULL if one is unknown."""
    body, inner = _of_elements(array, given, indexed=False)
    as_condition(body, _lambda(given).node.sql("spark"))
    tests = f"list_transform({array.sql}, {inner})"
    decided = (
        f"CASE WHEN list_contains(t, {found}) THEN {found}"
        f" WHEN {_has('t')} THEN NULL ELSE {otherwise} END"
    )
    return f"list_transform([CAST({tests} AS BOOLEAN[])], lambda t: {decided})[1]"


for _name, _ends in (("exists", ("true", "false")), ("forall", ("false", "true"))):
    _test = partial(_tested, found=_ends[0], otherwise=_ends[1])
    add(f"{_name}(array, lambda)", "boolean", _test, nulls="0")


@row(
    "aggregate|reduce(array, any, lambda)", "aggregate|reduce(array, any, lambda, lambda)",
    nulls="0",
)  # fmt: skip
def _reduced(array: Typed, start: Typed, given: Typed, finish: Typed | None = None) -> Typed:
    body, own = _lambda(given).body((start.type, element_of(array)))
    if body.type != start.type or start.type == VOID:
        raise NeedsSpark(f"aggregate from {spark_name(start.type)} to {spark_name(body.type)}")
    kind = duckdb_type(start.type)
    inner = f"lambda {', '.join(own)}: CAST({body.sql} AS {kind})"
    result = Typed(f"list_reduce({array.sql}, {inner}, CAST({start.sql} AS {kind}))", start.type)
    if finish is not None:
        last, (name, *_) = _lambda(finish).body((start.type,))
        result = Typed(f"list_transform([{result.sql}], lambda {name}: {last.sql})[1]", last.type)
    return result


@row("zip_with(array, array, lambda)", nulls="01")
def _zipped_with(left: Typed, right: Typed, given: Typed) -> Typed:
    pair = f"p{_lambda(given).depth}"
    body, _ = _lambda(given).body((element_of(left), element_of(right)), f"{pair}[1]", f"{pair}[2]")
    made = f"list_transform(list_zip({left.sql}, {right.sql}), lambda {pair}: {body.sql})"
    return Typed(made, array_of(body.type))


# --- maps -----------------------------------------------------------------------------------------


def _map_of(key: HiveType, value: HiveType) -> HiveType:
    if VOID in (*key.walk(), *value.walk()) or not is_plain(key):
        raise NeedsSpark(f"a map of {spark_name(key)} to {spark_name(value)}")
    return HiveType("map", (), (("key", key), ("value", value)))


def _made(keys: str, values: str, kind: HiveType) -> Typed:
    """A map of two lists. Spark fails if a key is NULL or stands twice."""
    null = no_value("[NULL_MAP_KEY] Cannot use null as map key")
    twice = no_value("[DUPLICATED_MAP_KEY] Duplicate map key was found")
    body = (
        f"CASE WHEN {_has('k')} THEN {null}"
        f" WHEN list_unique(k) < len(k) THEN {twice} ELSE MAP(k, {values}) END"
    )
    listed = duckdb_type(array_of(_parts(kind)[0]))
    return Typed(f"list_transform([CAST({keys} AS {listed})], lambda k: {body})[1]", kind)


def _parts(kind: HiveType) -> tuple[HiveType, HiveType]:
    """The types of a map's keys and values."""
    (_, key), (_, value) = kind.children
    return key, value


add("map_keys(map)", "key[]", "map_keys({0})")
add("map_values(map)", "value[]", "map_values({0})")
add("map_contains_key(map, key)", "boolean", "list_contains(map_keys({0}), {1})", nulls="*")


@row("map(any, any, any*)")
def _map(*values: Typed) -> Typed:
    if len(values) % 2:
        raise NeedsSpark(f"map with {len(values)} arguments")
    keys, contents = (in_one_type(values[side::2], "map") for side in (0, 1))
    listed, own = (f"[{', '.join(value.sql for value in side)}]" for side in (keys, contents))
    made = _made(listed, own, _map_of(keys[0].type, contents[0].type))
    return typed_as(made.sql, made.type)


@row("map_entries(map)")
def _entries(value: Typed) -> Typed:
    kind = array_of(_struct_of(("key", "value"), _parts(value.type)))
    return typed_as(f"map_entries({value.sql})", kind)


@row("map_concat(map, map*)", nulls="*")
def _maps_joined(*values: Typed) -> Typed:
    if len({value.type for value in values}) != 1:
        raise NeedsSpark("map_concat of several types")
    keys, contents = (
        f"list_concat({', '.join(f'{part}({value.sql})' for value in values)})"
        for part in ("map_keys", "map_values")
    )
    return _made(keys, contents, values[0].type)


@row("map_from_arrays(array, array)", nulls="*")
def _map_from_arrays(keys: Typed, contents: Typed) -> Typed:
    kind = _map_of(element_of(keys), element_of(contents))
    unequal = no_value("[UNEQUAL] the keys and the values of a map are not as many")
    test = f"len({keys.sql}) <> len({contents.sql})"
    made = _made(keys.sql, contents.sql, kind)
    return Typed(f"CASE WHEN {test} THEN {unequal} ELSE {made.sql} END", kind)


@row("map_from_entries(array)", nulls="0")
def _map_from_entries(value: Typed) -> Typed:
    inner = element_of(value)
    if inner.kind != "struct" or len(inner.children) != 2:
        raise NeedsSpark(f"map_from_entries of {spark_name(value.type)}")
    keys, values = (
        f"list_transform({value.sql}, lambda s: struct_extract(s, {text(name)}))"
        for name, _ in inner.children
    )
    made = _made(keys, values, _map_of(*_parts(inner)))
    return Typed(f"CASE WHEN {_has(value.sql)} THEN NULL ELSE {made.sql} END", made.type)


def _of_entries(value: Typed, given: Typed) -> tuple[Typed, str]:
    """The body of a lambda of keys and values, and DuckDB's lambda of an entry."""
    entry = f"p{_lambda(given).depth}"
    parts = f"struct_extract({entry}, 'key')", f"struct_extract({entry}, 'value')"
    body, _ = _lambda(given).body(_parts(value.type), *parts)
    return body, f"map_entries({value.sql}), lambda {entry}: {body.sql}"


@row("map_filter(map, lambda)", gives="0")
def _map_filtered(value: Typed, given: Typed) -> str:
    body, inner = _of_entries(value, given)
    as_condition(body, _lambda(given).node.sql("spark"))
    return f"map_from_entries(list_filter({inner}))"


@row("transform_keys(map, lambda)", nulls="0")
def _new_keys(value: Typed, given: Typed) -> Typed:
    body, inner = _of_entries(value, given)
    kind = _map_of(body.type, _parts(value.type)[1])
    return _made(f"list_transform({inner})", f"map_values({value.sql})", kind)


@row("transform_values(map, lambda)", nulls="0")
def _new_values(value: Typed, given: Typed) -> Typed:
    body, inner = _of_entries(value, given)
    kind = _map_of(_parts(value.type)[0], body.type)
    return Typed(f"MAP(map_keys({value.sql}), list_transform({inner}))", kind)


@row("map_zip_with(map, map, lambda)", nulls="01")
def _maps_zipped(left: Typed, right: Typed, given: Typed) -> Typed:
    (key, a), (other, b) = _parts(left.type), _parts(right.type)
    if key != other:
        raise NeedsSpark("map_zip_with of keys of several types")
    name = f"p{_lambda(given).depth}"
    parts = name, f"({left.sql})[{name}]", f"({right.sql})[{name}]"
    body, _ = _lambda(given).body((key, a, b), *parts)
    both = f"list_concat(map_keys({left.sql}), map_keys({right.sql}))"
    keys = _distinct_of(both, duckdb_type(array_of(key)))
    values = f"list_transform(k, lambda {name}: {body.sql})"
    return _made(keys, values, _map_of(key, body.type))


@row("str_to_map(text)", "str_to_map(text, word)", "str_to_map(text, word, word)", nulls="0")
def _text_to_map(value: Typed, *given: Typed) -> Typed:
    signs = [*(str(sign.literal) for sign in given), *(",", ":")[len(given) :]]
    if any(len(sign) != 1 or sign in "\\[](){}.*+?^$|" for sign in signs):
        raise NeedsSpark("str_to_map by anything but a literal sign, which is no pattern")
    pairs, inside = f"string_split({value.sql}, {text(signs[0])})", text(signs[1])
    keys = f"list_transform({pairs}, lambda s: split_part(s, {inside}, 1))"
    contents = (
        f"list_transform({pairs}, lambda s:"
        f" CASE WHEN contains(s, {inside}) THEN substring(s, instr(s, {inside}) + 1) END)"
    )
    return _made(keys, contents, _map_of(STRING, STRING))


# --- structs --------------------------------------------------------------------------------------


def _pairs(given: Sequence[Typed], shown: str) -> tuple[list[str], Sequence[Typed]]:
    """Names, and the values behind each."""
    names = [value.literal for value in given[::2] if isinstance(value.literal, str)]
    if len(names) * 2 != len(given):
        raise NeedsSpark(f"{shown} with a name that is no literal")
    return names, given[1::2]


def _struct_of(names: Sequence[str], kinds: Sequence[HiveType]) -> HiveType:
    if any(name != name.lower() for name in names) or len({*names}) < len(names):
        raise NeedsSpark(f"a struct with the fields {', '.join(names)}")
    if any(VOID in kind.walk() for kind in kinds):
        raise NeedsSpark("a struct with a NULL without a type")
    return HiveType("struct", (), tuple(zip(names, kinds, strict=True)))


@row("named_struct(word, any, any*)")
def _packed(*given: Typed) -> Typed:
    names, values = _pairs(given, "named_struct")
    if any(value.declared is not None for value in values):
        translating().told_fields = True
    kind = _struct_of(names, [value.type for value in values])
    fields = (f"{identifier(n)} := {value.sql}" for n, value in zip(names, values, strict=True))
    return typed_as(f"struct_pack({', '.join(fields)})", kind)
