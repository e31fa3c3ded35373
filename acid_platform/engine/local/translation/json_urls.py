"""Calls about texts that are JSON or URLs, and variants, which are texts of JSON here.

Java's parsers of both take more than the standards say. What DuckDB does not read is left to Spark,
unless the standards leave no doubt.
"""

from __future__ import annotations

import re
from functools import partial

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    DATE,
    STRING,
    duckdb_type,
    needs_spark,
    no_value,
    spark_name,
    text,
)
from acid_platform.engine.local.translation.signatures import add, row
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import INTEGRAL, HiveType

# --- JSON ----------------------------------------------------------------------------------------


def _of_json(value: str, read: str) -> str:
    unread = needs_spark("a text that may be JSON in Java's eyes")
    return (
        f"CASE WHEN {value} IS NULL THEN NULL WHEN NOT json_valid({value})"
        f" THEN {unread} ELSE {read} END"
    )


for _name, _kind, _gives, _call in (
    ("json_array_length", "ARRAY", "int", "json_array_length"),
    ("json_object_keys", "OBJECT", "strings", "json_keys"),
):
    _read = f"CASE WHEN TRY(json_type({{0}})) = '{_kind}' THEN TRY({_call}({{0}})) END"
    add(f"{_name}(text)", _gives, _of_json("{0}", _read))


_STEP = re.compile(r"\.([A-Za-z_]\w*)|\['([A-Za-z_]\w*)'\]|\[(\d{1,6})\]", re.ASCII)


def _path(path: Typed, least: int) -> str:
    """A path of names and numbers for DuckDB, of so many steps or more. Raises NeedsSpark."""
    written = str(path.literal)
    if not re.fullmatch(rf"\$({_STEP.pattern}){{{least},}}", written):
        raise NeedsSpark(f"JSON at the path {written!r}")
    steps = (
        f".{match[1] or match[2]}" if match[3] is None else f"[{match[3]}]"
        for match in _STEP.finditer(written)
    )
    return text("$" + "".join(steps))


@row("get_json_object(text, word)", gives="string")
def _at_path(value: Typed, path: Typed) -> str:
    return json_part(value.sql, _path(path, 1))


def json_part(value: str, at: str) -> str:
    """SQL of what stands at a path in a text that is JSON, as a text."""
    unsure = needs_spark("a number or a value of JSON that Java writes in another form")
    part = f"CAST(TRY(json_extract({value}, {at})) AS VARCHAR)"
    inner = rf"CASE WHEN regexp_matches({part}, '\d[.eE]|\d{{18}}') THEN {unsure} ELSE {part} END"
    read = (
        f"CASE TRY(json_type({value}, {at})) WHEN 'DOUBLE' THEN {unsure}"
        f" WHEN 'OBJECT' THEN {inner} WHEN 'ARRAY' THEN {inner}"
        f" ELSE TRY(json_extract_string({value}, {at})) END"
    )
    return f"CAST({_of_json(value, read)} AS VARCHAR)"


@row("to_json(nested)", gives="string")
def _as_json(value: Typed) -> str:
    return _written(value.sql, value.type, 0)


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


@row("variant_get|try_variant_get(variant, word)", gives="variant")
def _part_of_variant(value: Typed, path: Typed) -> str:
    return f"CAST(json_extract({value.sql}, {_path(path, 0)}) AS VARCHAR)"


@row("variant_get|try_variant_get(variant, word, word)")
def _typed_part_of_variant(value: Typed, path: Typed, kind: Typed) -> Typed:
    """What stands at a path, as a value of exactly that type."""
    at, name = _path(path, 0), str(kind.literal).lower()
    part = f"json_extract({value.sql}, {at})"
    tests = {"int": "IN ('BIGINT', 'UBIGINT')", "bigint": "IN ('BIGINT', 'UBIGINT')",
             "string": "= 'VARCHAR'", "boolean": "= 'BOOLEAN'"}  # fmt: skip
    if name not in tests:
        raise NeedsSpark(f"variant_get as {kind.literal}")
    own = HiveType(name)
    sql = f"TRY(CAST({part} AS {duckdb_type(own)}))"
    if own == STRING:
        sql = f"json_extract_string({value.sql}, {at})"
    unsure = needs_spark("a part of a variant of another type")
    found = f"json_type({value.sql}, {at})"
    cases = (
        f"WHEN {part} IS NULL OR {found} = 'NULL' THEN NULL"
        f" WHEN {found} {tests[name]} THEN coalesce({sql}, {unsure}) ELSE {unsure}"
    )
    return Typed(f"(CASE {cases} END)", own)


# --- URLs ----------------------------------------------------------------------------------------

_ENCODED = "url_encode({0})"
for _theirs, _javas in (("%20", "+"), ("%2A", "*"), ("~", "%7E")):
    _ENCODED = f"replace({_ENCODED}, '{_theirs}', '{_javas}')"
add("url_encode(text)", "string", _ENCODED)
for _name, _failure in (
    ("url_decode", no_value("[CANNOT_DECODE_URL] '{}' has a % without two digits", "{0}")),
    ("try_url_decode", needs_spark("url_decode of bytes that may be no text")),
):
    add(
        f"{_name}(text)", "string",
        "CASE WHEN {0} IS NULL THEN NULL WHEN NOT"
        f" regexp_full_match({{0}}, '([^%]|%[0-9A-Fa-f]{{{{2}}}})*', 's') THEN {_failure}"
        " WHEN NOT regexp_matches({0}, '%[089A-Fa-f]') THEN url_decode(replace({0}, '+', ' '))"
        f" ELSE {needs_spark('url_decode of bytes that may be no text')} END",
    )  # fmt: skip

_URL = (
    r"([A-Za-z][A-Za-z0-9+.-]*)://(([A-Za-z0-9:._-]+)@)?"
    r"((?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)"
    r"(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&''()*+,;=:@/-]*)?(\?[A-Za-z0-9._~!$&''()*+,;=:@/?-]*)?"
    r"(#[A-Za-z0-9._~!$&''()*+,;=:@/?-]*)?"
)
"""A URL without escapes whose parts Java finds as everybody does; quotes are those of SQL."""
_URL_PARTS = {
    "PROTOCOL": "{1}",
    "HOST": "{4}",
    "PATH": "{7}",
    "QUERY": "substring({8}, 2)",
    "REF": "substring({9}, 2)",
    "FILE": "{7} || {8}",
    "AUTHORITY": "{2} || {4} || {6}",
    "USERINFO": "{3}",
}
_FROM_GROUP = {"QUERY": 8, "REF": 9, "USERINFO": 2}
"""Parts that are NULL unless this group matches."""


def _part_of_url(url: Typed, part: Typed, key: Typed | None = None, *, fails: bool) -> str:
    word = str(part.literal)
    failure = no_value("[INVALID_URL] '{}' is no URL", url.sql) if fails else "NULL"
    if word not in _URL_PARTS:
        raise NeedsSpark(f"parse_url of {word}")

    def group(number: int) -> str:
        return f"regexp_extract({url.sql}, '^{_URL}$', {number})"

    sql = re.sub(r"\{(\d)\}", lambda m: group(int(m[1])), _URL_PARTS[word])
    absent = _FROM_GROUP.get(word)
    if absent is not None:
        sql = f"CASE WHEN {group(absent)} <> '' THEN {sql} END"
    if key is not None:
        wanted = key.literal
        if word != "QUERY" or not re.fullmatch(r"\w+", str(wanted), re.ASCII):
            raise NeedsSpark("parse_url with a key that is no literal word")
        asked = f"regexp_extract({group(8)}, '[?&]{wanted}=([^&]*)', 1)"
        sql = f"CASE WHEN regexp_matches({group(8)}, '[?&]{wanted}=') THEN {asked} END"
    unsure = needs_spark("a URL that Java may take apart in another way")
    return (
        f"CASE WHEN {url.sql} IS NULL THEN NULL"
        f" WHEN regexp_full_match({url.sql}, '{_URL}') THEN {sql}"
        f" WHEN regexp_matches({url.sql}, '^[^#?]* ') THEN {failure} ELSE {unsure} END"
    )


for _more in ("", ", word"):
    add(f"parse_url(text, word{_more})", "string", partial(_part_of_url, fails=True))
    add(f"try_parse_url(text, word{_more})", "string", partial(_part_of_url, fails=False))
