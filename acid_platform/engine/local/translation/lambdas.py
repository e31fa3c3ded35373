"""Lambdas, maps and structs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.arrays import (
    array_of,
    arrays_of_call,
    distinct_of,
    element_of,
    has_element,
    map_types,
    null_with,
    struct_of_names,
    typed_as,
    values_of_call,
)
from acid_platform.engine.local.translation.casts import (
    Typed,
    as_condition,
    in_one_type,
)
from acid_platform.engine.local.translation.duckdb_sql import (
    BOOLEAN,
    INT,
    STRING,
    VOID,
    duckdb_type,
    identifier,
    no_value,
    ordered,
    spark_name,
    text,
)
from acid_platform.engine.local.translation.signatures import Construct
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import FLOATING, HiveType

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator


def map_of(key: HiveType, value: HiveType) -> HiveType:
    if VOID in (*key.walk(), *value.walk()):
        raise NeedsSpark("a map of NULLs without a type")
    if not ordered(key) or key.kind in FLOATING:
        raise NeedsSpark(f"a map with keys of {spark_name(key)}")
    return HiveType("map", (), (("key", key), ("value", value)))


# --- lambdas --------------------------------------------------------------------------------------


def _lambda(
    translator: Translator, node: exp.Expr, kinds: Sequence[HiveType], *sql: str
) -> tuple[Typed, list[str]]:
    """The body of a lambda, whose parameters have these types, and their names in DuckDB's SQL.

    `sql`: what the parameters are, if they have no names of their own.
    """
    if not isinstance(node, exp.Lambda) or len(node.expressions) != len(kinds):
        raise NeedsSpark(f"{node.sql('spark')} in the place of a lambda")
    names = [parameter.name.lower() for parameter in node.expressions]
    if len({*names}) < len(names) or any(name in translator.parameters for name in names):
        raise NeedsSpark(f"{node.sql('spark')}, which names a parameter twice")
    depth = len(translator.parameters)
    own = [f"p{depth + position}" for position in range(len(kinds))]
    given = (Typed(s, kind) for s, kind in zip(sql or own, kinds, strict=True))
    with translator.within(dict(zip(names, given, strict=True))):
        return translator.value(node.this), own


def _with_lambda(translator: Translator, node: exp.Expr, indexed: bool) -> tuple[Typed, Typed, str]:
    """The array of a call, the body of its lambda, and DuckDB's lambda with it.

    `indexed`: whether the lambda may have a second parameter, the position from 0.
    """
    parts = [node.this, node.expression] if isinstance(node, exp.Transform) else node.expressions
    if len(parts) != 2:
        raise NeedsSpark(f"{node.name} with {len(parts)} arguments")
    array, inner = translator.value(parts[0]), parts[1]
    if array.type.kind != "array":
        raise NeedsSpark(f"{node.sql('spark')}")
    depth = len(translator.parameters)
    names = (f"p{depth}", f"CAST(p{depth + 1} - 1 AS INTEGER)")
    kinds = (element_of(array), INT)
    with_index = indexed and isinstance(inner, exp.Lambda) and len(inner.expressions) == 2
    if with_index:
        body, own = _lambda(translator, inner, kinds, *names)
    else:
        body, own = _lambda(translator, inner, kinds[:1])
    return array, body, f"lambda {', '.join(own)}: {body.sql}"


def transform(translator: Translator, node: exp.Expr) -> Typed:
    array, body, inner = _with_lambda(translator, node, True)
    return typed_as(f"list_transform({array.sql}, {inner})", array_of(body.type))


def _filtered(translator: Translator, node: exp.Expr) -> Typed:
    array, body, inner = _with_lambda(translator, node, True)
    as_condition(body, node.sql("spark"))
    return typed_as(f"list_filter({array.sql}, {inner})", array.type)


def _tested(found: str, otherwise: str) -> Callable[[Translator, exp.Expr], Typed]:
    """`exists` and `forall`: what a test of one element decides, else NULL if one is unknown."""

    def call(translator: Translator, node: exp.Expr) -> Typed:
        array, body, inner = _with_lambda(translator, node, False)
        as_condition(body, node.sql("spark"))
        tests = f"list_transform({array.sql}, {inner})"
        decided = (
            f"CASE WHEN list_contains(t, {found}) THEN {found}"
            f" WHEN {has_element('t', 'NULL')} THEN NULL ELSE {otherwise} END"
        )
        result = f"list_transform([CAST({tests} AS BOOLEAN[])], lambda t: {decided})[1]"
        return typed_as(null_with((array,), result), BOOLEAN)

    return call


def _reduced(translator: Translator, node: exp.Expr) -> Typed:
    parts = node.expressions
    if len(parts) not in (3, 4):
        raise NeedsSpark(f"{node.name} with {len(parts)} arguments")
    array, start = translator.value(parts[0]), translator.value(parts[1])
    if array.type.kind != "array" or start.type == VOID:
        raise NeedsSpark(node.sql("spark"))
    body, own = _lambda(translator, parts[2], (start.type, element_of(array)))
    if body.type != start.type:
        raise NeedsSpark(f"{node.name} from {spark_name(start.type)} to {spark_name(body.type)}")
    kind = duckdb_type(start.type)
    inner = f"lambda {', '.join(own)}: CAST({body.sql} AS {kind})"
    result = Typed(f"list_reduce({array.sql}, {inner}, CAST({start.sql} AS {kind}))", start.type)
    if len(parts) == 4:
        last, (name, *_) = _lambda(translator, parts[3], (start.type,))
        result = Typed(f"list_transform([{result.sql}], lambda {name}: {last.sql})[1]", last.type)
    return typed_as(null_with((array,), result.sql), result.type)


def _zipped_with(translator: Translator, node: exp.Expr) -> Typed:
    if len(node.expressions) != 3:
        raise NeedsSpark(node.sql("spark"))
    left, right = (translator.value(part) for part in node.expressions[:2])
    if {left.type.kind, right.type.kind} != {"array"}:
        raise NeedsSpark(node.sql("spark"))
    pair = f"p{len(translator.parameters)}"
    kinds = element_of(left), element_of(right)
    body, _ = _lambda(translator, node.expressions[2], kinds, f"{pair}[1]", f"{pair}[2]")
    made = f"list_transform(list_zip({left.sql}, {right.sql}), lambda {pair}: {body.sql})"
    return typed_as(null_with((left, right), made), array_of(body.type))


# --- maps -----------------------------------------------------------------------------------------


def _made(keys: str, values: str, kind: HiveType) -> str:
    """A map of two lists. Spark fails if a key is NULL or stands twice."""
    null = no_value("[NULL_MAP_KEY] Cannot use null as map key")
    twice = no_value("[DUPLICATED_MAP_KEY] Duplicate map key was found")
    (_, key), _ = kind.children
    body = (
        f"CASE WHEN {has_element('k', 'NULL')} THEN {null}"
        f" WHEN list_unique(k) < len(k) THEN {twice} ELSE MAP(k, {values}) END"
    )
    return f"list_transform([CAST({keys} AS {duckdb_type(array_of(key))})], lambda k: {body})[1]"


def _map(translator: Translator, node: exp.Expr) -> Typed:
    values = values_of_call(translator, node)
    if not values or len(values) % 2:
        raise NeedsSpark(f"map with {len(values)} arguments")
    keys = in_one_type(values[::2], "map")
    contents = in_one_type(values[1::2], "map")
    kind = map_of(keys[0].type, contents[0].type)
    listed, own = (f"[{', '.join(value.sql for value in side)}]" for side in (keys, contents))
    return typed_as(_made(listed, own, kind), kind)


def _map_part(function: str, position: int) -> Callable[[Translator, exp.Expr], Typed]:
    def call(translator: Translator, node: exp.Expr) -> Typed:
        [value] = values_of_call(translator, node, 1)
        kind = map_types(node, value)[position]
        return typed_as(f"{function}({value.sql})", array_of(kind))

    return call


def _entries(translator: Translator, node: exp.Expr) -> Typed:
    [value] = values_of_call(translator, node, 1)
    kind = array_of(struct_of_names(("key", "value"), map_types(node, value)))
    return typed_as(f"map_entries({value.sql})", kind)


def _has_key(translator: Translator, node: exp.Expr) -> Typed:
    value, key = values_of_call(translator, node, 2)
    own, _ = map_types(node, value)
    if key.type != own:
        raise NeedsSpark(f"{spark_name(value.type)} with the key {spark_name(key.type)}")
    found = f"list_contains(map_keys({value.sql}), {key.sql})"
    return typed_as(null_with((value, key), found), BOOLEAN)


def _maps_joined(translator: Translator, node: exp.Expr) -> Typed:
    values = values_of_call(translator, node)
    kinds = {value.type for value in values}
    if len(kinds) != 1:
        raise NeedsSpark("map_concat of several types")
    map_types(node, values[0])
    keys, contents = (
        f"list_concat({', '.join(f'{part}({value.sql})' for value in values)})"
        for part in ("map_keys", "map_values")
    )
    return typed_as(null_with(values, _made(keys, contents, values[0].type)), values[0].type)


def _map_from_arrays(translator: Translator, node: exp.Expr) -> Typed:
    keys, contents = values_of_call(translator, node, 2)
    if {keys.type.kind, contents.type.kind} != {"array"}:
        raise NeedsSpark(node.sql("spark"))
    kind = map_of(element_of(keys), element_of(contents))
    unequal = no_value("[UNEQUAL] the keys and the values of a map are not as many")
    made = (
        f"CASE WHEN len({keys.sql}) <> len({contents.sql}) THEN {unequal}"
        f" ELSE {_made(keys.sql, contents.sql, kind)} END"
    )
    return typed_as(null_with((keys, contents), made), kind)


def _map_from_entries(translator: Translator, node: exp.Expr) -> Typed:
    [value] = arrays_of_call(node, *values_of_call(translator, node, 1))
    inner = element_of(value)
    if inner.kind != "struct" or len(inner.children) != 2:
        raise NeedsSpark(f"map_from_entries of {spark_name(value.type)}")
    (first, key), (second, content) = inner.children
    kind = map_of(key, content)
    keys, values = (
        f"list_transform({value.sql}, lambda s: struct_extract(s, {text(name)}))"
        for name in (first, second)
    )
    null = f"WHEN {has_element(value.sql, 'NULL')} THEN NULL"
    return typed_as(null_with((value,), f"CASE {null} ELSE {_made(keys, values, kind)} END"), kind)


def _with_entry(translator: Translator, node: exp.Expr) -> tuple[Typed, Typed, str]:
    """The map of a call, the body of its lambda, and the name of an entry in it."""
    if len(node.expressions) != 2:
        raise NeedsSpark(node.sql("spark"))
    value = translator.value(node.expressions[0])
    kinds, entry = map_types(node, value), f"p{len(translator.parameters)}"
    parts = f"struct_extract({entry}, 'key')", f"struct_extract({entry}, 'value')"
    body, _ = _lambda(translator, node.expressions[1], kinds, *parts)
    return value, body, f"lambda {entry}: {body.sql}"


def _map_filtered(translator: Translator, node: exp.Expr) -> Typed:
    value, body, inner = _with_entry(translator, node)
    as_condition(body, node.sql("spark"))
    kept = f"list_filter(map_entries({value.sql}), {inner})"
    return typed_as(f"map_from_entries({kept})", value.type)


def _new_keys(translator: Translator, node: exp.Expr) -> Typed:
    value, body, inner = _with_entry(translator, node)
    kind = map_of(body.type, map_types(node, value)[1])
    keys = f"list_transform(map_entries({value.sql}), {inner})"
    made = _made(keys, f"map_values({value.sql})", kind)
    return typed_as(null_with((value,), made), kind)


def _new_values(translator: Translator, node: exp.Expr) -> Typed:
    value, body, inner = _with_entry(translator, node)
    kind = map_of(map_types(node, value)[0], body.type)
    values = f"list_transform(map_entries({value.sql}), {inner})"
    return typed_as(null_with((value,), f"MAP(map_keys({value.sql}), {values})"), kind)


def _maps_zipped(translator: Translator, node: exp.Expr) -> Typed:
    if len(node.expressions) != 3:
        raise NeedsSpark(node.sql("spark"))
    left, right = (translator.value(part) for part in node.expressions[:2])
    (key, a), (other, b) = map_types(node, left), map_types(node, right)
    if key != other:
        raise NeedsSpark(node.sql("spark"))
    name = f"p{len(translator.parameters)}"
    parts = name, f"({left.sql})[{name}]", f"({right.sql})[{name}]"
    body, _ = _lambda(translator, node.expressions[2], (key, a, b), *parts)
    kind = map_of(key, body.type)
    both = f"list_concat(map_keys({left.sql}), map_keys({right.sql}))"
    keys = distinct_of(both, array_of(key))
    values = f"list_transform(k, lambda {name}: {body.sql})"
    return typed_as(null_with((left, right), _made(keys, values, kind)), kind)


def _text_to_map(translator: Translator, node: exp.Expr) -> Typed:
    values = values_of_call(translator, node, 1, 2, 3)
    signs = [*(value.literal for value in values[1:]), *(",", ":")[len(values) - 1 :]]
    if any(value.type != STRING for value in values) or not all(
        isinstance(sign, str) and len(sign) == 1 and sign not in "\\[](){}.*+?^$|" for sign in signs
    ):
        raise NeedsSpark("str_to_map by anything but a literal sign, which is no pattern")
    pair, inside = (text(str(sign)) for sign in signs)
    kind = map_of(STRING, STRING)
    pairs = f"string_split({values[0].sql}, {pair})"
    keys = f"list_transform({pairs}, lambda s: split_part(s, {inside}, 1))"
    contents = (
        f"list_transform({pairs}, lambda s:"
        f" CASE WHEN contains(s, {inside}) THEN substring(s, instr(s, {inside}) + 1) END)"
    )
    return typed_as(null_with(values[:1], _made(keys, contents, kind)), kind)


# --- structs --------------------------------------------------------------------------------------


def struct(translator: Translator, node: exp.Expr) -> Typed:
    names, values = [], []
    for position, part in enumerate(node.expressions, 1):
        inner = part.this if isinstance(part, exp.Alias) else part
        named = isinstance(part, exp.Alias | exp.Column | exp.Dot | exp.Identifier)
        names.append((part.alias or part.name) if named else f"col{position}")
        values.append(translator.value(inner))
    return _packed(names, values)


def _named_struct(translator: Translator, node: exp.Expr) -> Typed:
    values = values_of_call(translator, node)
    names = [value.literal for value in values[::2]]
    if not values or len(values) % 2 or not all(isinstance(name, str) for name in names):
        raise NeedsSpark("named_struct with a name that is no literal")
    return _packed([str(name) for name in names], values[1::2])


def _packed(names: Sequence[str], values: Sequence[Typed]) -> Typed:
    kind = struct_of_names(names, [value.type for value in values])
    fields = (f"{identifier(n)} := {value.sql}" for n, value in zip(names, values, strict=True))
    return typed_as(f"struct_pack({', '.join(fields)})", kind)


# --- what is translated ---------------------------------------------------------------------------

_PLAIN = "any type that has an order, but float and double"
_CALLS: tuple[tuple[str, str, Callable[..., Typed]], ...] = (
    ("filter(a, x -> b)", "arrays", _filtered),
    ("exists(a, x -> b)", "arrays", _tested("true", "false")),
    ("forall(a, x -> b)", "arrays", _tested("false", "true")),
    ("aggregate(a, b, (x, y) -> c)", "c of the type of b", _reduced),
    ("reduce(a, b, (x, y) -> c)", "c of the type of b", _reduced),
    ("zip_with(a, b, (x, y) -> c)", "arrays", _zipped_with),
    ("map(a, b)", f"keys of {_PLAIN}", _map),
    ("map_keys(a)", "maps", _map_part("map_keys", 0)),
    ("map_values(a)", "maps", _map_part("map_values", 1)),
    ("map_entries(a)", "maps", _entries),
    ("map_contains_key(a, b)", "maps", _has_key),
    ("map_concat(a, b)", "maps of one type", _maps_joined),
    ("map_from_arrays(a, b)", "arrays", _map_from_arrays),
    ("map_from_entries(a)", "arrays of structs", _map_from_entries),
    ("map_filter(a, (x, y) -> b)", "maps", _map_filtered),
    ("transform_keys(a, (x, y) -> b)", "maps", _new_keys),
    ("transform_values(a, (x, y) -> b)", "maps", _new_values),
    ("map_zip_with(a, b, (x, y, z) -> c)", "maps with keys of one type", _maps_zipped),
    ("str_to_map(a, ',', ':')", "text; the signs literals", _text_to_map),
    ("struct(a, b)", "all; fields in lower case", struct),
    ("named_struct('x', a)", "all; fields in lower case", _named_struct),
)
LAMBDA_CALLS = {
    shown.partition("(")[0]: Construct(shown, types, translate, ("this", "expressions"))
    for shown, types, translate in _CALLS
}
"""By the name of the function, which sqlglot leaves as it is written."""
