"""Calls about texts that are JSON or URLs.

Java's parsers of both take more than the standards say. What DuckDB does not read is left to Spark,
unless the standards leave no doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    BOOLEAN,
    DATE,
    INT,
    STRING,
    VARIANT,
    needs_spark,
    no_value,
    spark_name,
    text,
)
from acid_platform.engine.local.translation.signatures import Construct
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import INTEGRAL, HiveType

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator


def _texts(translator: Translator, node: exp.Expr, *counts: int) -> list[Typed]:
    values = [translator.value(part) for part in node.expressions]
    if len(values) not in counts or any(value.type != STRING for value in values):
        kinds = ", ".join(spark_name(value.type) for value in values)
        raise NeedsSpark(f"{node.name}({kinds})")
    return values


# --- JSON ----------------------------------------------------------------------------------------

_UNREAD = "a text that may be JSON in Java's eyes"


def _length(translator: Translator, node: exp.Expr) -> Typed:
    (value,) = (given.sql for given in _texts(translator, node, 1))
    read = f"CASE WHEN TRY(json_type({value})) = 'ARRAY' THEN TRY(json_array_length({value})) END"
    return Typed(f"CAST({_of_json(value, read)} AS INTEGER)", INT)


def _keys(translator: Translator, node: exp.Expr) -> Typed:
    (value,) = (given.sql for given in _texts(translator, node, 1))
    kind = HiveType("array", (), (("element", STRING),))
    read = f"CASE WHEN TRY(json_type({value})) = 'OBJECT' THEN TRY(json_keys({value})) END"
    return Typed(f"CAST({_of_json(value, read)} AS VARCHAR[])", kind)


def _of_json(value: str, read: str) -> str:
    return (
        f"CASE WHEN {value} IS NULL THEN NULL WHEN NOT json_valid({value})"
        f" THEN {needs_spark(_UNREAD)} ELSE {read} END"
    )


_STEP = re.compile(r"\.([A-Za-z_]\w*)|\['([A-Za-z_]\w*)'\]|\[(\d{1,6})\]", re.ASCII)


def _at_path(translator: Translator, node: exp.Expr) -> Typed:
    value, path = _texts(translator, node, 2)
    written = path.literal
    steps = "" if not isinstance(written, str) else written.removeprefix("$")
    if not isinstance(written, str) or not re.fullmatch(rf"\$({_STEP.pattern})+", written):
        raise NeedsSpark(f"get_json_object with the path {node.expressions[1].sql('spark')}")
    inside = "".join(
        f".{match[1] or match[2]}" if match[3] is None else f"[{match[3]}]"
        for match in _STEP.finditer(steps)
    )
    return Typed(json_part(value.sql, f"${inside}"), STRING)


def json_part(value: str, path: str) -> str:
    """SQL of what stands at a path in a text that is JSON, as a text."""
    at = text(path)
    unsure = needs_spark("a number or a value of JSON that Java writes in another form")
    part = f"TRY(json_extract({value}, {at}))"
    read = (
        f"CASE TRY(json_type({value}, {at})) WHEN 'DOUBLE' THEN {unsure}"
        f" WHEN 'OBJECT' THEN {_compact(part, unsure)} WHEN 'ARRAY' THEN {_compact(part, unsure)}"
        f" ELSE TRY(json_extract_string({value}, {at})) END"
    )
    return f"CAST({_of_json(value, read)} AS VARCHAR)"


def _compact(part: str, unsure: str) -> str:
    return (
        rf"CASE WHEN regexp_matches(CAST({part} AS VARCHAR), '\d[.eE]|\d{{18}}') THEN {unsure}"
        f" ELSE CAST({part} AS VARCHAR) END"
    )


def _as_json(translator: Translator, node: exp.Expr) -> Typed:
    if len(node.expressions) != 1:
        raise NeedsSpark("to_json with options")
    value = translator.value(node.expressions[0])
    if not value.type.nested:
        raise NeedsSpark(f"to_json of {spark_name(value.type)}")
    return Typed(f"CAST({_written(value.sql, value.type, 0)} AS VARCHAR)", STRING)


def _written(value: str, kind: HiveType, depth: int) -> str:
    """SQL of a value as JSON; NULL of NULL. Fields that are NULL are left out."""
    name = f"j{depth}"
    match kind.kind:
        case "string":
            return f"CAST(to_json({value}) AS VARCHAR)"
        case "boolean":
            return f"CAST({value} AS VARCHAR)"
        case "date":
            return f"'\"' || {cast(Typed(value, DATE), STRING).sql} || '\"'"
        case "array":
            inner = _written(name, kind.children[0][1], depth + 1)
            each = f"list_transform({value}, lambda {name}: coalesce({inner}, 'null'))"
            return f"'[' || array_to_string({each}, ',') || ']'"
        case "struct":
            fields = (
                f"{text(f'{chr(34)}{field}{chr(34)}:')} || "
                + _written(f"struct_extract({value}, {text(field)})", child, depth)
                for field, child in kind.children
            )
            joined = f"coalesce(array_to_string([{', '.join(fields)}], ','), '')"
            return f"CASE WHEN {value} IS NULL THEN NULL ELSE '{{' || {joined} || '}}' END"
        case "map" if kind.children[0][1] == STRING:
            inner = _written(f"struct_extract({name}, 'value')", kind.children[1][1], depth + 1)
            key = f"CAST(to_json(struct_extract({name}, 'key')) AS VARCHAR)"
            each = (
                f"list_transform(map_entries({value}),"
                f" lambda {name}: {key} || ':' || coalesce({inner}, 'null'))"
            )
            return f"'{{' || array_to_string({each}, ',') || '}}'"
        case _ if kind.kind in INTEGRAL:
            return f"CAST({value} AS VARCHAR)"
    raise NeedsSpark(f"to_json of {spark_name(kind)}")


def variant_part(value: Typed, path: Typed, kind: Typed | None = None) -> Typed:
    """`variant_get`: what stands at a path, as a value of exactly that type."""
    written = str(path.literal)
    if not re.fullmatch(rf"\$({_STEP.pattern})*", written):
        raise NeedsSpark(f"variant_get with the path {written!r}")
    at = text(
        "$"
        + "".join(
            f".{match[1] or match[2]}" if match[3] is None else f"[{match[3]}]"
            for match in _STEP.finditer(written)
        )
    )
    part = f"json_extract({value.sql}, {at})"
    if kind is None:
        return Typed(f"CAST({part} AS VARCHAR)", VARIANT)
    unsure = needs_spark("a part of a variant of another type")
    found = {
        "int": ("IN ('BIGINT', 'UBIGINT')", f"TRY(CAST({part} AS INTEGER))", INT),
        "bigint": ("IN ('BIGINT', 'UBIGINT')", f"TRY(CAST({part} AS BIGINT))", BIGINT),
        "string": ("= 'VARCHAR'", f"json_extract_string({value.sql}, {at})", STRING),
        "boolean": ("= 'BOOLEAN'", f"CAST({part} AS BOOLEAN)", BOOLEAN),
    }.get(str(kind.literal).lower())
    if found is None:
        raise NeedsSpark(f"variant_get as {kind.literal}")
    test, sql, own = found
    own_kind = f"json_type({value.sql}, {at})"
    cases = (
        f"WHEN {part} IS NULL OR {own_kind} = 'NULL' THEN NULL"
        f" WHEN {own_kind} {test} THEN coalesce({sql}, {unsure}) ELSE {unsure}"
    )
    return Typed(f"(CASE {cases} END)", own)


# --- URLs ----------------------------------------------------------------------------------------


def _encoded(translator: Translator, node: exp.Expr) -> Typed:
    (value,) = (given.sql for given in _texts(translator, node, 1))
    for theirs, javas in (("%20", "+"), ("%2A", "*"), ("~", "%7E")):
        value = value if "url_encode" in value else f"url_encode({value})"
        value = f"replace({value}, '{theirs}', '{javas}')"
    return Typed(value, STRING)


def _decoded(failing: bool) -> Callable[[Translator, exp.Expr], Typed]:
    def call(translator: Translator, node: exp.Expr) -> Typed:
        (value,) = (given.sql for given in _texts(translator, node, 1))
        failure = no_value("[CANNOT_DECODE_URL] '{}' has a % without two digits", value)
        unsure = needs_spark("url_decode of bytes that may be no text")
        plain = f"regexp_full_match({value}, '([^%]|%[0-9A-Fa-f]{{2}})*', 's')"
        ascii_only = f"NOT regexp_matches({value}, '%[089A-Fa-f]')"
        return Typed(
            f"CAST(CASE WHEN {value} IS NULL THEN NULL"
            f" WHEN NOT {plain} THEN {failure if failing else unsure}"
            f" WHEN {ascii_only} THEN url_decode(replace({value}, '+', ' ')) ELSE {unsure} END"
            " AS VARCHAR)",
            STRING,
        )

    return call


_URL = (
    r"([A-Za-z][A-Za-z0-9+.-]*)://(([A-Za-z0-9:._-]+)@)?"
    r"((?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)"
    r"(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&''()*+,;=:@/-]*)?(\?[A-Za-z0-9._~!$&''()*+,;=:@/?-]*)?"
    r"(#[A-Za-z0-9._~!$&''()*+,;=:@/?-]*)?"
)
"""A URL without escapes whose parts Java finds as everybody does; quotes are those of SQL."""
_URL_PARTS = {
    "PROTOCOL": ("{1}", False),
    "HOST": ("{4}", False),
    "PATH": ("{7}", False),
    "QUERY": ("substring({8}, 2)", True),
    "REF": ("substring({9}, 2)", True),
    "FILE": ("{7} || {8}", False),
    "AUTHORITY": ("{2} || {4} || {6}", False),
    "USERINFO": ("{3}", True),
}
_FROM_GROUP = {"QUERY": 8, "REF": 9, "USERINFO": 2}
"""Parts that are NULL unless this group matches."""


def _part_of_url(failing: bool) -> Callable[[Translator, exp.Expr], Typed]:
    def call(translator: Translator, node: exp.Expr) -> Typed:
        url, part, *key = _texts(translator, node, 2, 3)
        if not isinstance(part.literal, str) or part.literal not in _URL_PARTS:
            raise NeedsSpark(f"{node.name} of {node.expressions[1].sql('spark')}")

        def group(number: int) -> str:
            return f"regexp_extract({url.sql}, '^{_URL}$', {number})"

        sql = re.sub(r"\{(\d)\}", lambda m: group(int(m[1])), _URL_PARTS[part.literal][0])
        absent = _FROM_GROUP.get(part.literal)
        if absent is not None:
            sql = f"CASE WHEN {group(absent)} <> '' THEN {sql} END"
        if key:
            wanted = key[0].literal
            if part.literal != "QUERY" or not re.fullmatch(r"\w+", str(wanted), re.ASCII):
                raise NeedsSpark(f"{node.name} with a key that is no literal word")
            asked = f"regexp_extract({group(8)}, '[?&]{wanted}=([^&]*)', 1)"
            sql = f"CASE WHEN regexp_matches({group(8)}, '[?&]{wanted}=') THEN {asked} END"
        failure = no_value("[INVALID_URL] '{}' is no URL", url.sql)
        unsure = needs_spark("a URL that Java may take apart in another way")
        invalid = f"regexp_matches({url.sql}, '^[^#?]* ')"
        return Typed(
            f"CAST(CASE WHEN {url.sql} IS NULL THEN NULL"
            f" WHEN regexp_full_match({url.sql}, '{_URL}') THEN {sql}"
            f" WHEN {invalid} THEN {failure if failing else 'NULL'} ELSE {unsure} END AS VARCHAR)",
            STRING,
        )

    return call


_CALLS: tuple[tuple[str, str, Callable[..., Typed]], ...] = (
    ("json_array_length(a)", "text", _length),
    ("json_object_keys(a)", "text", _keys),
    ("get_json_object(a, '$.b[0]')", "text; a literal path of names and numbers", _at_path),
    ("to_json(a)", "arrays, maps and structs of text, whole numbers, dates, boolean", _as_json),
    ("url_encode(a)", "text", _encoded),
    ("url_decode(a)", "text", _decoded(True)),
    ("try_url_decode(a)", "text", _decoded(False)),
    ("parse_url(a, 'HOST', 'key')", "text; the part and the key literals", _part_of_url(True)),
    ("try_parse_url(a, 'HOST', 'key')", "text; the part and the key literals", _part_of_url(False)),
)
TEXT_CALLS = {
    shown.partition("(")[0]: Construct(shown, types, translate, ("this", "expressions"))
    for shown, types, translate in _CALLS
}
"""By the name of the function, which sqlglot leaves as it is written."""
