"""Functions of Spark by the name and the arguments that were written: a line for each signature,
and what a call names.

Each line was computed in both engines over values of all its types (tests/engine/local). A call
that no line accepts is not translated. Those of arrays and maps, of dates, of patterns, of JSON and
URLs, and the aggregates have modules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import takewhile

from sqlglot import exp

from acid_platform.engine.local.translation import (  # two of them add to the table
    arithmetic,
    arrays,  # noqa: F401
    json_urls,  # noqa: F401
)
from acid_platform.engine.local.translation import computed_calls as computed
from acid_platform.engine.local.translation.aggregates import MOMENTS
from acid_platform.engine.local.translation.casts import Typed, cast, compared
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    INT,
    STRING,
    decimal,
    needs_spark,
    spark_name,
    text,
)
from acid_platform.engine.local.translation.signatures import SIGNATURES, called
from acid_platform.engine.local.translation.signatures import add as _
from acid_platform.errors import NeedsSpark
from acid_platform.predicates.grammar import ARGUMENTS, CALLED

_ROUNDED = needs_spark("a number that C and Java may round differently")
"""For functions of doubles: what is exact is computed, any other value is Spark's."""


# fmt: off
# --- text -----------------------------------------------------------------------------------------
_("ascii(string)", "int", "ascii({0})")
_("bit_length(bytes)", "int", "octet_length({0}) * 8")
_("bit_length(string)", "int", "strlen({0}) * 8")
_("octet_length(bytes)", "int", "octet_length({0})")
_("octet_length(string)", "int", "strlen({0})")
_("length|len|char_length|character_length(bytes)", "int", "octet_length({0})")
_("length|len|char_length|character_length(string)", "int", "length({0})")
_("upper|ucase(string)", "string", computed.cased("upper"))
_("lower|lcase(string)", "string", computed.cased("lower"))
_("trim(text)", "string", "trim({0}, ' ')")
_("btrim(text)", "string", "trim({0}, ' ')")
_("btrim(text, text)", "string", "trim({0}, {1})")
_("btrim(bytes)", "string", "trim(acid_decode({0}, 'UTF-8'), ' ')")
_("btrim(bytes, bytes)", "string", "trim(acid_decode({0}, 'UTF-8'), acid_decode({1}, 'UTF-8'))")
_("trim both(text)", "string", "trim({0}, ' ')")
_("trim leading|ltrim(text)", "string", "ltrim({0}, ' ')")
_("trim trailing|rtrim(text)", "string", "rtrim({0}, ' ')")
_("trim both(text, text)", "string", "trim({1}, {0})")
_("trim leading(text, text)", "string", "ltrim({1}, {0})")
_("trim trailing(text, text)", "string", "rtrim({1}, {0})")
_("ltrim(text, text)", "string", "ltrim({1}, {0})")
_("rtrim(text, text)", "string", "rtrim({1}, {0})")
_("char|chr(bigint)", "string",
  "CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} % 256 AS INTEGER)) END")
_("concat_ws(string, string*)", "string", "concat_ws({all}, NULL)")
_("concat()", "string", "''")
_("concat(bytes, bytes*)", "", computed.joined)
_("concat(string, string*)", "", computed.joined)
_("contains(bytes, bytes)", "boolean", "contains(hex({0}), hex({1}))")
_("startswith(bytes, bytes)", "boolean", "starts_with(hex({0}), hex({1}))")
_("endswith(bytes, bytes)", "boolean", "ends_with(hex({0}), hex({1}))")
_("contains(string, string)", "boolean", "contains({0}, {1})")
_("startswith(string, string)", "boolean", "starts_with({0}, {1})")
_("endswith(string, string)", "boolean", "ends_with({0}, {1})")
_("elt(int, string, string*)", "string", computed.chosen_text)
_("find_in_set(string, string)", "int",
  "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL WHEN contains({0}, ',') THEN 0"
  " ELSE coalesce(list_position(string_split({1}, ','), {0}), 0) END")
_("initcap(string)", "string", "acid_initcap({0})")
_("instr(string, string)", "int", "instr({0}, {1})")
_("instr(string, string, int)", "int", "acid_instr({all}, 1)")
_("instr(string, string, int, int)", "int", "acid_instr({all})")
_("locate|position(string, string)", "int", "instr({1}, {0})")
_("locate|position(string, string, digits)", "int",
  computed.located_text)
_("left(bytes, int)", "binary", "acid_substring_bytes({0}, 1, {1})")
_("left(string, int)", "string", "CASE WHEN {1} IS NOT NULL THEN left({0}, greatest({1}, 0)) END")
_("right(string, int)", "string", "CASE WHEN {1} IS NOT NULL THEN right({0}, greatest({1}, 0)) END")
_("levenshtein(string, string)", "int", "acid_levenshtein({all})")
_("levenshtein(string, string, digits)", "int",
  "CASE WHEN acid_levenshtein({0}, {1}) > {2} THEN -1 WHEN {2} IS NOT NULL"
  " THEN acid_levenshtein({0}, {1}) END")
_("lpad(bytes, int, bytes)", "binary", "acid_lpad_bytes({all})")
_("rpad(bytes, int, bytes)", "binary", "acid_rpad_bytes({all})")
_("lpad(string, count)", "string", "lpad({0}, {1}, ' ')")
_("rpad(string, count)", "string", "rpad({0}, {1}, ' ')")
_("lpad(string, count, pad)", "string", "lpad({all})")
_("rpad(string, count, pad)", "string", "rpad({all})")
_("repeat(string, count)", "string", "repeat({all})")
_("luhn_check(string)", "boolean", "acid_luhn_check({0})")
_("mask(text)", "string", "acid_mask({0}, 'X', 'x', 'n', NULL)")
_("mask(text, option)", "string", "acid_mask({all}, 'x', 'n', NULL)")
_("mask(text, option, option)", "string", "acid_mask({all}, 'n', NULL)")
_("mask(text, option, option, option)", "string", "acid_mask({all}, NULL)")
_("mask(text, option, option, option, option)", "string", "acid_mask({all})")
_("overlay(bytes, bytes, int)", "binary", "acid_overlay_bytes({all}, -1)")
_("overlay(bytes, bytes, int, int)", "binary", "acid_overlay_bytes({all})")
_("overlay(string, string, int)", "string", "acid_overlay({all}, -1)")
_("overlay(string, string, int, int)", "string", "acid_overlay({all})")
_("quote(string)", "string", "acid_quoted({0})")
_("replace(string, string)", "string", "replace({0}, {1}, '')")
_("replace(string, string, string)", "string", "replace({all})")
_("reverse(array)", "0", "list_reverse({0})")
_("reverse(bytes)", "binary", "acid_reversed_bytes({0})")
_("reverse(string)", "string", "acid_reversed_text({0})")
_("soundex(text)", "string", "acid_soundex({0})")
_("space(count)", "string", "repeat(' ', {0})")
_("split_part(string, string, int)", "string", "acid_split_part({all})")
_("substr|substring(bytes, int)", "binary",
  "acid_substring_bytes({all}, 2147483647)")
_("substr|substring(bytes, int, int)", "binary", "acid_substring_bytes({all})")
_("substr|substring(string, int)", "string", computed.part_of_text)
_("substr|substring(string, int, int)", "string", computed.part_of_text)
_("substring_index(string, string, int)", "string", "acid_substring_index({all})")
_("translate(string, string, string)", "string", "translate({all})")
_("is_valid_utf8(bytes)", "boolean", "acid_is_utf8({0})")
_("is_valid_utf8(string)", "boolean", "CASE WHEN {0} IS NOT NULL THEN true END")
_("make_valid_utf8(bytes)", "string", "acid_valid_utf8({0})")
_("make_valid_utf8|validate_utf8|try_validate_utf8(string)", "string", "{0}")
_("try_validate_utf8(bytes)", "string", "CASE WHEN acid_is_utf8({0}) THEN acid_valid_utf8({0}) END")
_("validate_utf8(bytes)", "string",
  "CASE WHEN acid_is_utf8({0}) THEN acid_valid_utf8({0}) WHEN {0} IS NOT NULL THEN "
  + needs_spark("bytes that are no UTF-8") + " END")
# --- bytes and hashes -----------------------------------------------------------------------------
_("base64(binary)", "string", "base64({0})")
_("to_base32(binary)", "string", "acid_base32_text({0})")
_("unbase64(text)", "binary", "acid_unbase64({0})")
_("bin(bigint)", "string", "bin({0})")
_("bin(decimal)", "string", lambda a: Typed(f'bin({cast(a, BIGINT).sql})', STRING))
_("hex(bytes)", "string", "hex({0})")
_("hex(bigint)", "string", "hex({0})")
_("hex(text)", "string", "hex({0})")
_("unhex(string)", "binary", "acid_unhex({0})")
_("encode(text, word)", "binary", "acid_encode({all})")
_("decode(binary, word)", "string", "acid_decode({all})")
_("decode(any, any, any*)", "", computed.decoded_case)
_("crc32(binary)", "bigint", "acid_crc32({0})")
_("md5(binary)", "string", "md5({0})")
_("sha|sha1(binary)", "string", "sha1({0})")
_("sha2(binary, int)", "string", "acid_sha2({all})")
_("hmac(binary, binary)", "binary", "acid_hmac_of({all}, 'SHA-256')")
_("hmac(binary, binary, word)", "binary", "acid_hmac_of({all})")
_("hash(any, any*)", "int", lambda *values: computed.hashed_values('hash', INT, values))
_("xxhash64(any, any*)", "bigint", lambda *values: computed.hashed_values('xx', BIGINT, values))
_("bit_count(boolean)", "int", "CAST({0} AS INTEGER)")
_("bit_count(bigint)", "int", "bit_count({0})")
_("getbit|bit_get(bigint, digits)", "tinyint", computed.bit_at)
for _name, _sign, _word in (
    ("shiftleft", "<<", "left"),
    ("shiftright", ">>", "right"),
    ("shiftrightunsigned", ">>>", "unsigned"),
):
    for _kind, _bits in (("int", "32"), ("long", "64")):
        _gives = "bigint" if _kind == "long" else "int"
        _(f"{_name}({_kind}, int)", _gives, f"acid_shift{_word}_{_bits}({{all}})")
        _(f"{_sign}({_kind}, int)", _gives, f"acid_shift{_word}_{_bits}({{all}})")
# --- numbers --------------------------------------------------------------------------------------
_NAN = "CASE WHEN isnan({0}) THEN {0} ELSE "
_NONE = "'nan'::DOUBLE"
for _name, _cases in {
    "acos": f"WHEN {{0}} = 1 THEN 0 WHEN abs({{0}}) > 1 THEN {_NONE}",
    "asin": f"WHEN {{0}} = 0 THEN {{0}} WHEN abs({{0}}) > 1 THEN {_NONE}",
    "acosh": f"WHEN {{0}} = 1 THEN 0 WHEN {{0}} < 1 THEN {_NONE}",
    "asinh": "WHEN {0} = 0 THEN {0}",
    "atanh": f"WHEN {{0}} = 0 THEN {{0}} WHEN abs({{0}}) > 1 THEN {_NONE}",
    "atan": "WHEN {0} = 0 THEN {0}",
    **dict.fromkeys(("sin", "tan"), f"WHEN {{0}} = 0 THEN {{0}} WHEN isinf({{0}}) THEN {_NONE}"),
    **dict.fromkeys(("cos", "sec"), f"WHEN {{0}} = 0 THEN 1 WHEN isinf({{0}}) THEN {_NONE}"),
    "sinh": "WHEN {0} = 0 OR isinf({0}) THEN {0}",
    "tanh": "WHEN {0} = 0 THEN {0} WHEN isinf({0}) THEN sign({0})",
    "cosh": "WHEN {0} = 0 THEN 1 WHEN isinf({0}) THEN abs({0})",
    "exp": "WHEN {0} = 0 THEN 1 WHEN isinf({0}) THEN greatest({0}, 0)",
    "expm1": "WHEN {0} = 0 THEN {0} WHEN isinf({0}) THEN greatest({0}, -1)",
    "ln|log": "WHEN {0} <= 0 THEN NULL WHEN {0} = 1 THEN 0 WHEN isinf({0}) THEN {0}",
    "log2": "WHEN {0} <= 0 THEN NULL WHEN {0} IN (1, 2) THEN {0} - 1 WHEN isinf({0}) THEN {0}",
    "log10": "WHEN {0} <= 0 THEN NULL WHEN {0} IN (1, 10, 100, 1000, 10000) THEN"
             " length(CAST({0} AS BIGINT)::VARCHAR) - 1 WHEN isinf({0}) THEN {0}",
    "log1p": "WHEN {0} <= -1 THEN NULL WHEN {0} = 0 OR isinf({0}) THEN {0}",
}.items():
    _(f"{_name}(double)", "double",
      "CASE WHEN {0} IS NULL THEN NULL WHEN isnan({0}) THEN {0} "
      + f"{_cases} ELSE {_ROUNDED} END")
_("atan2(double, double)", "double",
  "CASE WHEN {0} = 0 AND {1} >= 0 AND NOT isnan({1}) THEN 0"
  f" WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN {_ROUNDED} END")
_("pow|power(double, double)", "double", "acid_pow({0}, {1})")
_("cbrt(double)", "double", _NAN + "acid_cbrt({0}) END")
_("degrees(double)", "double", "{0} * 57.29577951308232::DOUBLE")
_("radians(double)", "double", "{0} * 0.017453292519943295::DOUBLE")
_("e()", "double", "2.718281828459045::DOUBLE")
_("pi()", "double", "3.141592653589793::DOUBLE")
_("rint(double)", "double", "round_even({0}, 0)")
_("sqrt(double)", "double", "CASE WHEN {0} < 0 THEN 'nan'::DOUBLE ELSE sqrt({0}) END")
_("sign|signum(double)", "double",
  _NAN + "CASE WHEN {0} > 0 THEN 1 WHEN {0} < 0 THEN -1 ELSE {0} END END")
_("factorial(int)", "bigint", "CASE WHEN {0} BETWEEN 0 AND 20 THEN factorial({0}) END")
_("conv(string, int, int)", "string", "acid_conv({all})")
_("format_number(bigint, integer)", "string",
  lambda a, digits: computed.grouped_digits(cast(a, decimal(19, 0)), digits))
_("format_number(decimal, integer)", "string", computed.grouped_digits)
_("format_number(double, integer)", "string", "acid_format_double({all})")
_("width_bucket(double, double, double, bigint)", "bigint", "acid_width_bucket({all})")
_("abs(number)", "", arithmetic.absolute)
_("isnan(double)", "boolean", "coalesce(isnan({0}), false)")
for _name in ("ceil", "ceiling", "floor"):
    _word = _name.removesuffix("ing")
    _(f"{_name}(bigint)", "bigint", "{0}")
    _(f"{_name}(decimal)", "", lambda a, word=_word: computed.whole_of_decimal(a, word))
    _(f"{_name}(double)", "bigint", computed.whole_of_double(_word))
    _(f"{_name}(decimal, digits)", "", lambda a, to, word=_word: computed.rounded_to(a, to, word))
_("round(decimal)", "", lambda a: computed.rounded_to(a, None, "round"))
_("round(decimal, digits)", "", lambda a, to: computed.rounded_to(a, to, "round"))
_("round(integer)", "int", "{0}")
_("round(long)", "bigint", "{0}")
_("round(integer, digits)", "int", "acid_round_whole({all}, 0)")
_("round(long, digits)", "bigint", "acid_round_whole({all}, 0)")
_("round(real)", "float", _NAN + "acid_round_double(CAST({0} AS DOUBLE), 0) END")
_("round(real, digits)", "float", _NAN + "acid_round_double(CAST({0} AS DOUBLE), {1}) END")
_("round(float)", "double", _NAN + "acid_round_double({0}, 0) END")
_("round(float, digits)", "double", _NAN + "acid_round_double({all}) END")
_("bround(integer, digits)", "int", "acid_round_whole({all}, 1)")
_("bround(long, digits)", "bigint", "acid_round_whole({all}, 1)")
_("bround(float, digits)", "double", _NAN + "acid_bround_double({all}) END")
for _name, _node in (("add", exp.Add), ("subtract", exp.Sub), ("multiply", exp.Mul)):
    _(f"try_{_name}(number, number)", "", lambda a, b, node=_node: computed.tried(node, a, b))
_("try_divide(number, number)", "", lambda a, b: computed.tried(exp.Div, a, b))
_("try_mod(number, number)", "", lambda a, b: computed.tried(exp.Mod, a, b))
_("negative(number)", "", arithmetic.negated)
_("positive(number)", "0", "{0}")
_("~(integral)", "0", "~{0}")
_("pmod(number, number)", "", computed.positive_rest)
_("bround(decimal, digits)", "", lambda a, to: computed.rounded_to(a, to, "bround"))
_("to_number|try_to_number(text, word)", "", computed.read_number)
_("to_char|to_varchar(any, word)", "", computed.as_text)
_("try_add(day, int)", "", lambda a, b: called("date_add", a, b))
_("try_subtract(day, int)", "", lambda a, b: called("date_sub", a, b))
_("try_add(any, interval)", "", lambda a, by: computed.tried_move(a, by, False))
_("try_subtract(any, interval)", "", lambda a, by: computed.tried_move(a, by, True))
_("time_bucket(interval, moment)", "timestamp", computed.bucket_of)
_("time_bucket(interval, moment, moment)", "timestamp", computed.bucket_of)
_("jaro_winkler_similarity(string, string)", "double", computed.jaro_winkler)
_("width_bucket(interval, interval, interval, bigint)", "bigint", computed.bucket_of_intervals)
_("sign|signum(interval)", "double", computed.sign_of_interval)
_("hypot(double, double)", "double", "acid_hypot({all})")
_("bitmap_bit_position(bigint)", "bigint",
  "CASE WHEN {0} > 0 THEN ({0} - 1) % 32768 ELSE -({0} % 32768) END")
_("bitmap_bucket_number(bigint)", "bigint",
  "CASE WHEN {0} > 0 THEN 1 + ({0} - 1) // 32768 ELSE {0} // 32768 END")
_("bitmap_count(bytes)", "bigint",
  "CASE WHEN octet_length({0}) = 0 THEN 0 ELSE bit_count({0}::BIT) END")
_("from_base32(text)", "binary", "acid_unbase32({0})")
# --- vectors, XML and variants --------------------------------------------------------------------
_("vector_inner_product(floats, floats)", "float", "acid_vector_product({all})")
_("vector_l2_distance(floats, floats)", "float", "acid_vector_distance({all})")
_("vector_norm(floats, real)", "float", "acid_vector_norm({all})")
_("vector_normalize(floats, real)", "floats", "acid_vector_normalized({all})")
_("xpath(text, word)", "strings", "acid_xpath({all})")
_("xpath_boolean(text, word)", "boolean", "acid_xpath_boolean({all})")
_("xpath_string(text, word)", "string", "acid_xpath_string({all})")
_("xpath_double|xpath_number(text, word)", "double", "acid_xpath_number({all})")
_("xpath_float(text, word)", "float", "acid_xpath_number({all})")
for _name, _gives in (("short", "smallint"), ("int", "int"), ("long", "bigint")):
    _(f"xpath_{_name}(text, word)", _gives, computed.exactly_whole("acid_xpath_number({all})"))
_("parse_json(text)", "variant", "acid_variant({0})")
_("is_valid_variant(variant)", "boolean", "CASE WHEN {0} IS NOT NULL THEN true END")
_("is_variant_null(variant)", "boolean", "coalesce(json_type({0}) = 'NULL', false)")
_("schema_of_variant(variant)", "string", "acid_variant_schema({0})")
# --- formats --------------------------------------------------------------------------------------
_("to_binary|try_to_binary(text, word)", "binary", computed.as_binary)
_("format_string|printf(word, any*)", "string", computed.printed_format)
# --- conditions and NULL --------------------------------------------------------------------------
_("approx_count_distinct(exact)", "bigint", computed.near_count, aggregate=True, windows=False)
_("isnull(any)", "boolean", "{0} IS NULL")
_("isnotnull(any)", "boolean", "{0} IS NOT NULL")
_("equal_null(any, any)", "boolean", lambda a, b: compared('IS NOT DISTINCT FROM', a, b))
_("nanvl(real, real)", "float", "CASE WHEN isnan({0}) THEN {1} ELSE {0} END")
_("nanvl(fraction, fraction)", "double", "CASE WHEN isnan({0}) THEN {1} ELSE {0} END")
_("nanvl(wide, wide)", "double", "CASE WHEN isnan({0}) THEN {1} ELSE {0} END")
_("nullifzero(number)", "0", "nullif({0}, 0)")
_("zeroifnull(any)", "", computed.zero_for_null)
_("typeof(any)", "string", lambda a: Typed(text(spark_name(a.type)), STRING))
_("assert_true(boolean)", "void", computed.asserted)
_("raise_error(string)", "void", computed.raised)
_("uuid()", "string", "uuid()")
_("if(boolean, T, T)", "", lambda test, a, b: Typed(
    f"(CASE WHEN {test.sql} THEN {a.sql} ELSE {b.sql} END)", a.type))
_("coalesce(T, T*)", "", computed.first_known)
_("nvl|ifnull(T, T)", "", computed.first_known)
_("nvl2(any, T, T)", "", lambda test, a, b: Typed(
    f"(CASE WHEN ({test.sql} IS NOT NULL) THEN {a.sql} ELSE {b.sql} END)", a.type))
_("nullif(any, any)", "", lambda a, b: Typed(
    f"(CASE WHEN {compared('=', a, b).sql} THEN NULL ELSE {a.sql} END)", a.type))
for _name in ("greatest", "least"):
    _(f"{_name}(T, T, T*)", "", partial(computed.extreme, _name))
_("collation(text)", "string", "'SYSTEM.BUILTIN.UTF8_BINARY'")
# fmt: on


# --- what a call names ----------------------------------------------------------------------------

Call = tuple[str, tuple[exp.Expr, ...]]
_PARTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Overlay: ("this", "expression", "from_", "for_"),
    exp.Substring: ("this", "start", "length"),
    exp.Ceil: ("this", "decimals"),
    exp.Floor: ("this", "decimals"),
    exp.Initcap: ("this",),
    exp.Decode: ("this", "charset"),
    exp.Encode: ("this", "charset"),
}
"""The arguments of nodes that do not tell them, in their order."""
_SKIPPING = ("first", "first_value", "any_value", "last", "last_value")
"""What may stand before IGNORE NULLS as an aggregate."""


def arguments_of(node: exp.Expr) -> Call | None:
    """The name of a call as it was written, in lower case, and its arguments; None for others."""
    called, given = node.meta.get(CALLED), node.meta.get(ARGUMENTS)
    match node:
        case exp.GroupConcat() if isinstance(node.this, exp.Order):
            return None
        case exp.Anonymous() if node.name == "shiftrightunsigned" and not called:
            return ">>>", tuple(node.expressions)
        case exp.Anonymous():
            return _by_position(node.name.lower(), node.expressions)
        case _ if called and given is not None:
            return called, tuple(given)
        case exp.IgnoreNulls() if (inner := arguments_of(node.this)) and inner[0] in _SKIPPING:
            return inner[0], (*inner[1], exp.true())
        case exp.Transform():
            return "transform", (node.this, node.expression)
        case exp.StrPosition() if called == "position":
            return "locate", (node.args["substr"], node.this)
        case exp.Chr() | exp.DecodeCase():
            return called or "", tuple(node.expressions)
        case exp.Trim() if node.args.get("expression") or node.args.get("position"):
            word = (node.args.get("position") or "BOTH").upper()
            given = [node.args["expression"]] if node.args.get("expression") else []
            return f"trim {word.lower()}", (*given, node.this)
        case exp.Trim():
            return "trim", (node.this,)
        case exp.BitwiseLeftShift() | exp.BitwiseRightShift():
            word = "<<" if isinstance(node, exp.BitwiseLeftShift) else ">>"
            return word, (node.this, node.expression)
        case exp.Any() if isinstance(node.this, exp.Paren):
            return "any", (node.this.this,)
        case exp.CurrentTimestamp() | exp.CurrentDate() if node.this is None:
            return node.sql_name().lower(), ()
    if type(node) not in _PARTS:
        return None
    return called or "", tuple(
        node.args[part] for part in _PARTS[type(node)] if node.args.get(part)
    )


_PARAMETERS = {
    "mask": (("str",), ("upperchar", "X"), ("lowerchar", "x"), ("digitchar", "n"), ("otherchar",))
}
"""The names of arguments, and what they are if they are left out, of calls that take names."""


def _by_position(name: str, given: Sequence[exp.Expr]) -> Call:
    """The call with its arguments in their places. Raises NeedsSpark for a name that is not known,
    or twice."""
    if not any(isinstance(part, exp.Kwarg) for part in given):
        return name, tuple(given)
    places = {known: tuple(default) for known, *default in _PARAMETERS.get(name, ())}
    named = dict(
        zip(places, takewhile(lambda part: not isinstance(part, exp.Kwarg), given), strict=False)
    )
    for part in given[len(named) :]:
        known = part.name.lower()
        if not isinstance(part, exp.Kwarg) or known not in places or known in named:
            raise NeedsSpark(f"{part.sql('spark')} in {name}")
        named[known] = part.expression
    if next(iter(places)) not in named:
        raise NeedsSpark(f"{name} without its first argument")
    defaults = {
        known: exp.Literal.string(*default) if default else exp.null()
        for known, default in places.items()
    }
    return name, tuple(named.get(known, defaults[known]) for known in places)


def call_of(node: exp.Expr) -> Call | None:
    """As `arguments_of`, with the name and the arguments that the table of functions has."""
    match node:
        case exp.Extract():
            return f"extract {node.this.name.upper()}", (node.expression,)
        case exp.WithinGroup() if (inner := arguments_of(node.this)) is not None:
            return _within(inner[0], node.expression, inner[1])
        case exp.GroupConcat() if isinstance(node.this, exp.Order):
            if node.args.get("separator") or node.this.this != node.this.expressions[0].this:
                return None
            return _within("listagg", node.this, ())
        case exp.RegexpLike() if node.meta.get(ARGUMENTS) is None:
            return "rlike", (node.this, node.expression)
        case exp.DPipe():
            return "concat", tuple(node.flatten())
        case exp.BitwiseNot():
            return "~", (node.this,)
        case exp.Bracket(expressions=[key]) if not isinstance(key, exp.Slice):
            return "[]", (node.this, key)
        case exp.Tuple():
            return "named_struct", _named(node.expressions)
    written = arguments_of(node)
    if written is None:
        return None
    match written:
        case ("struct", parts):
            return "named_struct", _named(parts)
        case ("arrays_zip", parts):
            return "arrays_zip", _zipped(parts)
        case (("date_part" | "datepart"), (exp.Literal(is_string=True) as field, value)):
            return f"extract {field.name.upper()}", (value,)
        case (("dateadd" | "timestampadd" | "datediff" | "timestampdiff") as name, (unit, *rest)):
            if len(rest) == 2:
                plain = isinstance(unit, exp.Var | exp.Column) and len(unit.name.split(".")) == 1
                if not plain or (isinstance(unit, exp.Column) and len(unit.parts) > 1):
                    raise NeedsSpark(f"the unit {unit.sql('spark')}")
                return f"{name} {unit.name.upper()}", tuple(rest)
        case (name, (exp.Star(),)):
            return f"{name} *", ()
        case (name, (exp.Distinct() as distinct, *others)):
            return f"{name} distinct", (*distinct.expressions, *others)
    return written


def _within(name: str, order: exp.Order, arguments: Sequence[exp.Expr]) -> Call | None:
    """A call WITHIN GROUP: its order is its first argument."""
    [term, *others] = order.expressions
    descends = bool(term.args.get("desc"))
    if others or bool(term.args.get("nulls_first")) == descends:
        return None
    return f"{name} within{' desc' * descends}", (term.this, *arguments)


def _named(parts: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
    """The fields of a struct behind their names."""
    named: list[exp.Expr] = []
    for position, part in enumerate(parts, 1):
        tells = isinstance(part, exp.Alias | exp.Column | exp.Dot | exp.Identifier)
        name = (part.alias or part.name) if tells else f"col{position}"
        named += (exp.Literal.string(name), part.this if isinstance(part, exp.Alias) else part)
    return tuple(named)


def _zipped(parts: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
    if not all(isinstance(part, exp.Column | exp.Array) for part in parts):
        raise NeedsSpark("arrays_zip of anything but columns and array(…)")
    names = (p.name if isinstance(p, exp.Column) else str(i) for i, p in enumerate(parts))
    pairs = zip(map(exp.Literal.string, names), parts, strict=True)
    return tuple(node for pair in pairs for node in pair)


def is_momentary(node: exp.Expr) -> bool:
    """Whether the value depends on the moment of the statement."""
    return (arguments_of(node) or ("",))[0] in MOMENTS


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it is a call of an aggregate of the table."""
    call = call_of(node)
    return call is not None and call[0] in SIGNATURES and SIGNATURES[call[0]][0].aggregate
