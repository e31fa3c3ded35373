"""Expressions for every operator and every row of the table of functions, over the columns of
values.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sqlglot import exp

from acid_platform.engine.local.translation import queries  # noqa: F401  which fills the table
from acid_platform.engine.local.translation.signatures import SIGNATURES, Signature

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "any": ("ta", "sb", "ma", "la", "ba", "za", "ea", "da"),
    "kept": ("ta", "sb", "ma", "la", "ba", "za", "ea", "da"),
    "text": ("sa", "va", "ca", "sb"),
    "string": ("sa", "sb", "va", "ca", "ia", "da", "za", "ea"),
    "bytes": ("ba", "bb"),
    "binary": ("ba", "sa", "vb", "bb"),
    "int": ("ta", "ib", "ha", "5"),
    "narrow": ("ta", "hb", "ib"),
    "integer": ("ia", "ib"),
    "long": ("la", "lb"),
    "bigint": ("la", "ib", "ta", "3"),
    "integral": ("ta", "ha", "ia", "la"),
    "double": ("xa", "fb", "da", "ia", "ka"),
    "float": ("xa", "xb"),
    "fraction": ("fa", "xa"),
    "wide": ("xa", "ib", "da"),
    "decimal": ("da", "ka", "wa"),
    "number": ("ta", "ha", "ia", "la", "da", "fa", "xa", "ka"),
    "boolean": ("za", "zb"),
    "condition": ("za",),
    "date": ("ea", "mb", "ga"),
    "timestamp": ("ma", "eb", "ga"),
    "day": ("ea",),
    "moment": ("ma",),
    "array": ("na", "oa", "pa"),
    "floats": ("array(fa, 1.0F)", "array(float(ta), float(tb))"),
    "real": ("1.0F", "2.0F"),
    "variant": ("parse_json(ja)",),
    "T": ("ia", "lb", "da"),
    "T[]": ("na", "array(ib, lb)"),
    "S": ("ia", "lb", "da", "null"),
    "S[]": ("na", "array(ib, lb)", "array(da, db)"),
    "P": ("ia", "lb"),
    "P[]": ("na", "array(ib, lb)"),
    "strings": ("oa", "ob"),
    "map": ("qa", "qb"),
    "key": ("'a'", "sb"),
    "nested": ("na", "qa", "ra"),
    "lambda": ("x -> x is null", "(x, y) -> y is null", "(x, y, z) -> y is null"),
    "index": ("1", "2", "tb", "-1"),
    "flag": ("true", "false"),
    "when": ("ea", "ma"),
    "ordered": ("ta", "la", "da", "fa", "xa", "sa", "ca", "va", "za", "ea", "ma", "ba"),
    "exact": ("ta", "la", "da", "sa", "ca", "va", "za", "ea", "ma", "ba"),
    "exactly whole": ("ta", "ib"),
    "small": ("ta", "hb", "ia"),
    "interval": ("interval '3' day", "interval 90 minutes", "interval '-1-2' year to month"),
    "exactly real": ("ta", "hb", "ia"),
    "share": ("0", "0.3", "0.5", "1"),
    "shares": ("array(0.25, 0.75)",),
    "null": ("null",),
    "word": ("'UTF-8'", "'SHA-512'", "'US-ASCII'", "'UTF-16BE'"),
    "option": ("'Q'", "null", "'ä'"),
    "digits": ("0", "1", "2", "7", "-1", "-2", "30"),
    "count": ("0", "1", "2", "7"),
    "accuracy": ("1000",),
    "pad": ("'*'", "'äb'"),
}
"""Values of every kind that a function takes."""


_NUMBERS = ("t", "h", "i", "l", "d", "k", "w", "f", "x")
_WHOLE = ("t", "h", "i", "l")
_ALL = (*_NUMBERS, "s", "c", "v", "z", "e", "m", "b")
_TUPLED = (*_NUMBERS, "s", "z", "e", "m", "b")
_ORDERED = ("=", "<", "<=>")
_LITERALS = (
    "5", "-1", "1.5", "5.00", "99999999999", "1e0", "'ab'", "'5'", "'1.5'", "'2020-02-29'",
    "'2020-02-29 12:34:56.789'", "date '2020-02-29'", "timestamp '1970-01-01 00:00:00'",
    "true", "null", "'abcdefg'", "5L", "1.5D", "99999999999999999999",
)  # fmt: skip


def _pairs(letters: tuple[str, ...], operator: str) -> Iterator[str]:
    for x, y in itertools.product(letters, letters):
        yield f"{x}a {operator} {y}b"


def _of_each(template: str, letters: tuple[str, ...] = _ALL) -> Iterator[str]:
    yield from (template.format(a=f"{x}a", b=f"{x}b") for x in letters)


def _compared(operator: str) -> list[str]:
    if operator in _ORDERED:
        literals = [f"{x}a {operator} {one}" for x in _ALL for one in _LITERALS]
        return [*_pairs(_ALL, operator), *literals]
    return list(_of_each(f"{{a}} {operator} {{b}}"))


_PATTERNS = (
    "a", "b$", "^[a-z]+", "(\\\\w)(\\\\d)?", ".", "(.)(.)", "[^a-z0-9]", "\\\\s", "\\\\S+?",
    "(?:a|ab)(b?)",
    "(\\\\d+)-(\\\\d+)", "[\\\\w.-]+", "\u00fc|\u65e5", "(a|Ab)+", "[A-Zb-]{1,2}",
    "-?\\\\d{4}", "\\\\W", "e.", "x*",
)  # fmt: skip
"""Patterns of Java as a literal of SQL writes them."""


_SPANS = (
    "interval '1' day", "interval 3 hours", "interval '90' minute", "interval 30 seconds",
    "interval '2' month", "interval '1-2' year to month", "interval 1 week", "interval -5 days",
    "interval '1 02:03:04.5' day to second", "interval '10:20' hour to minute",
    "interval '1.5' second", "interval 1 day 2 hours", "interval 100 milliseconds",
)  # fmt: skip
CASTS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)",
         "decimal(3,1)", "decimal(38,0)", "decimal(20,10)", "string", "boolean", "date",
         "timestamp", "binary")  # fmt: skip
CONSTRUCTS: dict[type[exp.Expr], list[str]] = {
    exp.Literal: ["1", "1.50", "0.05", "1e3", "'te xt'", "'it\\'s'",
                  "'a\\\\b\\nc'", "12345678901", "100.0"],
    exp.HexString: ["X''", "x'61'", "X'0aFF'",
                    *(f"ba {operator} X'{digits}'" for operator in ("=", "<>", "<", ">=", "<=>")
                      for digits in ("", "00", "61", "7f", "80", "FF00")),
                    "ba in (X'', X'61')", "ba between X'' and X'80'", "not (ba = X'61')"],
    exp.Boolean: ["true", "false"],
    exp.Null: ["null"],
    exp.Column: [*_of_each("{a}"), "t.ia"],
    exp.Dot: ["t.ia"],
    exp.Paren: ["(ia)", "(((la)))"],
    exp.And: ["za and zb", "za and zb and ia > 0", "ib <> 0 and ia / ib > 1", "za and null"],
    exp.Or: ["za or zb", "za or zb or ia > 0", "ib = 0 or ia % ib > 1", "za or null"],
    exp.Not: ["not za", "not (ia > ib)", "not sa like 'a%'", "ia not in (1, 5)"],
    exp.EQ: _compared("="),
    exp.NEQ: _compared("<>"),
    exp.LT: _compared("<"),
    exp.LTE: _compared("<="),
    exp.GT: _compared(">"),
    exp.GTE: _compared(">="),
    exp.NullSafeEQ: _compared("<=>"),
    exp.NullSafeNEQ: list(_of_each("{a} is distinct from {b}")),
    exp.Is: [*_of_each("{a} is null"), *_of_each("{a} is not null"), "za is true", "za is false",
             "za is not true", "(ia > ib) is false"],
    exp.Between: [*_of_each("{a} between {b} and {b}"), "ia between -1 and 5",
                  "da between 0 and ia",
                  "ea between '1970-01-01' and '2020-12-31'", "xa between 0 and 2.5"],
    exp.In: [*_of_each("{a} in ({b}, {b})"), "ia in (1, 5, null)", "ia in (1.5, 5)", "sa in ('a')",
             "ca in ('ab', 'abcde', 'abcdefg')", "da in (1.5, 5)", "ia in (la, 5)",
             "xa in (0, 1.5)",
             "ea in ('1970-01-01', date '2020-02-29')", "la not in (0, null)", "ia in ('5', '1')",
             "va in ('ab', 'ab ')", "ka in (1.5, 0.1)", "wa in (5, -7)",
             *_of_each("({a}, id) in (({b}, id))", _TUPLED),
             *_of_each("(id & 1, {a}) not in ((0, {b}), (1, {a}))", _TUPLED),
             "(ia, sa) in ((1, 'ab'), (5, ''), (cast(null as int), cast(null as string)))",
             "(ia, sa) in ((la, sb))", "(ia, za) in ((ib, true), (ib, zb)) or za",
             "ra in (rb)", "ra in (rb, struct(5 as p, 'a' as q))", "ra not in (rb)",
             "(xa, fa) in ((xb, fb), (xa, fb))", "(ca, ia) in (('ab', 1))"],
    exp.Like: ["sa like 'a%'", "sa like '_b%'", "ca like 'ab%'", "ca like 'ab'", "sa like ''",
               "sa like '%'", "sa like '日本_x'", "va not like 'a_'", "sa like 'A%'"],
    exp.ILike: ["sa ilike 'AB%'", "va ilike '_B%'", "ca not ilike 'A'", "sa ilike ''"],
    exp.Escape: ["sa like 'a/%' escape '/'",
                 "sa like '%|_%' escape '|'", "va ilike 'A/%' escape '/'"],
    exp.Add: [*_pairs(_NUMBERS, "+"), "ia + 1", "da + 1", "da + 1.25", "xa + 1.5", "wa + null",
              "ea + interval '30' day", "ea + interval -2 weeks", "interval 5 months + ea",
              "ea + interval 1 year", "ka + ka", "ka + 1.5",
              *(f"{x} + {i}" for x in ("ea", "ma") for i in _SPANS),
              *(f"{i} + ea" for i in _SPANS)],
    exp.Sub: [*_pairs(_NUMBERS, "-"), "ia - 1", "1 - la", "da - 1", "ea - interval '1' year",
              "ea - interval 7 days", "ka - 0.1234567890123",
              *(f"{x} - {i}" for x in ("ea", "ma") for i in _SPANS)],
    exp.Mul: [*_pairs(_NUMBERS, "*"), "ia * 2", "da * 2", "da * 1.5", "ka * 0.0001000000",
              "ka * ka", "ka * 0.1234567891234567"],
    exp.Div: [*_pairs(_NUMBERS, "/"), "ia / 2", "1 / ia", "xa / 0", "da / 3", "wa / 7",
              "da / 2.5", "2 / wb", "ka / 3", "ka / da", "da / ka",
              "cast(da as decimal(17,2)) * 100 / cast(db as decimal(27,2))",
              "cast(da as decimal(38,2)) / cast(db as decimal(37,2))",
              "wa / cast(1234567890123456789012345678901234567 as decimal(38,0))"],
    exp.Identifier: ["transform(na, x -> x + 1)", "transform(array(ra), x -> x.p)"],
    exp.IntDiv: [*_pairs(_NUMBERS, "div"), "ia div 2"],
    exp.Mod: [*_pairs(_NUMBERS, "%"), "ia % 2", "mod(la, 3)"],
    exp.Neg: ["-5", "-1.5", *_of_each("-{a}", _NUMBERS)],
    exp.BitwiseAnd: list(_pairs(_WHOLE, "&")),
    exp.BitwiseOr: list(_pairs(_WHOLE, "|")),
    exp.BitwiseXor: list(_pairs(_WHOLE, "^")),
    exp.Case: [*_of_each("case when za then {a} else {b} end"), "case when za then ia else la end",
               "case when za then ia end", "case ia when 1 then 'a' when 5 then 'b' else sa end",
               "case when za then da else ia end", "case when za then fa else xa end",
               "case when ib <> 0 then ia / ib end", "case when za then ea else ma end",
               "case when za then fa else ia end", "case when za then da else wa end",
               "case when za then ia else 1.5 end", "case when za then null else sa end"],
    exp.Cast: [f"cast({x}a as {kind})" for x in _ALL for kind in CASTS]
    + ["cast('2020-01-31' as date)", "cast('12' as int)", "cast(1.5 as decimal(5,3))",
       "cast('2020-01-31 10:11:12' as timestamp)", "cast(null as int)", "5L", "2.5BD", "1.5D",
       "cast(1.0 as int)", "cast(1.5 as int)", "cast(300 as tinyint)"],
}  # fmt: skip


def _each(form: str, *choices: tuple[str, ...]) -> list[str]:
    return [form.format(*chosen) for chosen in itertools.product(*choices)]


_ARRAYS = ("na", "oa", "pa")
_PATTERNS_OF_DATES = (
    "yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "dd/MM/yyyy", "yyyyMMdd", "yyyy-M-d", "yyyy", "yyyy-MM",
)  # fmt: skip
_UNITS_OF_DATES = (
    "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND",
    "MICROSECOND",
)  # fmt: skip
_TIMES = ("2014", "ha"), ("12", "ta"), ("28", "tb"), ("6", "hb"), ("30",), ("45.887", "60", "da")
CALLS: dict[str, list[str]] = {
    # dates
    "extract MONTH": _each("date_part('{}', {})", ("year", "DOY", "seconds", "w"), ("ea", "ma")),
    "extract QUARTER": _each("datepart('{}', {})", ("month", "HR", "dow"), ("ea", "ma")),
    "date_trunc": _each("date_trunc('{}', {})", (*_UNITS_OF_DATES, "yy", "mon", "dd", "x"),
                        ("ma", "eb", "ga")),
    "trunc": _each("trunc({}, '{}')", ("ea", "ma", "ga"),
                   ("year", "YY", "quarter", "MM", "week", "day", "x")),
    "next_day": _each("next_day({}, '{}')", ("ea", "ma"),
                      ("MO", "tue", "WEDNESDAY", "th", "FR", "sa", "Sun")),
    "months_between": [*_each("months_between({}, {})", ("ea", "ma", "ga"), ("eb", "mb")),
                       *_each("months_between({}, {}, {})", ("ea", "ma"), ("mb",),
                              ("true", "false"))],
    "make_date": _each("make_date({}, {}, {})", ("2020", "ha", "ta"), ("2", "ta"), ("29", "hb")),
    **{name: [*_each(name + "({}, {}, {}, {}, {}, {})", *_TIMES),
              *([] if name.endswith("ltz") else [f"{name}(ea)"])]
       for name in ("make_timestamp", "make_timestamp_ltz", "try_make_timestamp",
                    "try_make_timestamp_ltz")},
    **{name: [*_each(name + "({}, '{}')", ("ga", "sa"), _PATTERNS_OF_DATES), f"{name}(ea)",
              f"{name}(ma)", f"{name}(ma, 'yyyy')", f"{name}(ga)"]
       for name in ("to_date", "to_timestamp", "to_timestamp_ltz", "try_to_date",
                    "try_to_timestamp", "unix_timestamp", "to_unix_timestamp")},
    "from_unixtime": ["from_unixtime(ia)", "from_unixtime(la)", "from_unixtime(ta, 'yyyy/MM')"],
    "dateadd": [*_each("dateadd({}, {}, {})", _UNITS_OF_DATES, ("ta",), ("ma",)),
                "dateadd(ea, ib)", "dateadd(ma, 3)"],
    "timestampadd DAY": _each("timestampadd({}, {}, {})", _UNITS_OF_DATES, ("ta", "-10", "ib"),
                          ("ea", "ma")),
    "datediff": [*_each("datediff({}, {}, {})", _UNITS_OF_DATES, ("ma",), ("mb",)),
                 "datediff(ea, eb)", "datediff(ma, ga)"],
    "timestampdiff DAY": _each("timestampdiff({}, {}, {})", _UNITS_OF_DATES, ("ea", "ma"),
                           ("eb", "mb")),
    # arrays
    **{name: [f"{name}({x})" for x in (*_ARRAYS, "qa")] for name in ("size", "cardinality")},
    **{name: [f"{name}({x})" for x in _ARRAYS]
       for name in ("array_size", "array_compact", "array_distinct", "array_max",
                    "array_min", "array_sort")},
    "sort_array": _each("sort_array({}{})", _ARRAYS, ("", ", true", ", false")),
    **{name: [*_each(name + "(na, {})", ("ib", "1", "lb", "ta")),
              *_each(name + "(oa, {})", ("sb", "'a'", "cb")), f"{name}(pa, xb)"]
       for name in ("array_contains", "array_position", "array_remove")},
    **{name: [*_each(name + "(na, {})", ("ib", "1", "lb", "null")), f"{name}(oa, sb)",
              f"{name}(pa, xb)"]
       for name in ("array_append", "array_prepend")},
    "array_insert": _each("array_insert(na, {}, {})",
                          ("1", "2", "5", "-1", "-2", "-5", "0", "tb"), ("ib", "null")),
    **{name: [f"{name}(na, nb)", f"{name}(oa, ob)", f"{name}(na, array(1, 2, null))",
              f"{name}(na, array(lb))"]
       for name in ("array_union", "array_intersect", "array_except", "arrays_overlap")},
    "arrays_zip": ["arrays_zip(na, ob)", "arrays_zip(na, nb, pa)", "arrays_zip(array(ia), na)"],
    "array_repeat": _each("array_repeat({}, {})", ("sa", "ia", "na"), ("2", "0", "-1", "tb")),
    "array_join": [*_each("array_join(oa, {})", ("','", "sb")),
                   *_each("array_join(oa, ',', {})", ("'-'", "sb"))],
    "slice": _each("slice({}, {}, {})", ("na", "oa"), ("1", "2", "-2", "-9", "tb", "0"),
                   ("2", "0", "ta")),
    **{name: [*_each(name + "({}, {})", ("na", "oa"), ("1", "-1", "5", "tb", "0")),
              f"{name}(qa, 'a')", f"{name}(qa, sb)"]
       for name in ("element_at", "try_element_at")},
    "get": _each("get({}, {})", ("na", "oa"), ("0", "1", "tb", "-1", "ib")),
    "flatten": ["flatten(array(na, nb))", "flatten(array(na))", "flatten(array(oa, null, ob))"],
    "sequence": [*_each("sequence({}, {})", ("1", "ta"), ("5", "tb")),
                 *_each("sequence({}, {}, {})", ("1", "ta"), ("10", "lb"), ("2", "tb")),
                 *_each("sequence({}, {}, {})", 
                        ("date'2018-01-31'", "date'2018-01-01'", "date'2020-02-29'"),
                        ("date'2018-05-30'", "ea", "date'2020-02-29'"),
                        ("interval 1 month", "interval '0-5' year to month", "interval 7 days")),
                 "sequence(10, 1, -3)", "sequence(1, 10, -1)", "sequence(1L, 5L)"],
    # lambdas
    "filter": ["filter(na, x -> x % 2 = 1)", "filter(na, (x, i) -> x > i)",
               "filter(na, x -> x is not null)", "filter(oa, x -> x = sb)",
               "filter(pa, x -> x > 0)"],
    **{name: [f"{name}(na, x -> x % 2 = 0)", f"{name}(na, x -> x is null)",
              f"{name}(na, x -> x > ib)", f"{name}(oa, x -> x like 'a%')"]
       for name in ("exists", "forall")},
    **{name: [f"{name}(na, 0L, (x, y) -> x + y)", f"{name}(oa, '', (x, y) -> concat(x, y))",
              f"{name}(na, 0L, (x, y) -> x + coalesce(y, 0), x -> x * 10)",
              f"{name}(pa, 0D, (x, y) -> x + y)", f"{name}(na, ib, (x, y) -> greatest(x, y))",
              f"{name}(na, cast(null as int), (x, y) -> coalesce(x, y))"]
       for name in ("aggregate", "reduce")},
    "zip_with": ["zip_with(na, nb, (x, y) -> x > y)", "zip_with(na, ob, (x, y) -> y)",
                 "zip_with(oa, ob, (x, y) -> concat(x, y))", "zip_with(na, ob, (x, y) -> (x, y))",
                 "zip_with(na, nb, (x, y) -> coalesce(x, y))"],
    # maps
    "map": ["map('a', ia, 'b', ib)", "map(sa, ia)", "map(1.0, '2', 3.0, '4')",
            "map(ia, sa, 5, 'x')", "map('a', na)"],
    **{name: [f"{name}(qa)"] for name in ("map_keys", "map_values", "map_entries")},
    "map_contains_key": ["map_contains_key(qa, 'a')", "map_contains_key(qa, sb)"],
    "map_concat": ["map_concat(qa, qb)", "map_concat(qa)", "map_concat(qa, map('zz', ib))"],
    "map_from_arrays": ["map_from_arrays(oa, na)", "map_from_arrays(na, nb)",
                        "map_from_arrays(array('a', 'b'), array(ia, ib))"],
    "map_from_entries": ["map_from_entries(map_entries(qa))",
                         "map_from_entries(array(struct(ia as k, 'a'), struct(ib as k, 'b')))"],
    "map_filter": ["map_filter(qa, (x, y) -> y > 1)", "map_filter(qa, (x, y) -> x = 'a')",
                   "map_filter(qa, (x, y) -> y is null)"],
    "transform_keys": ["transform_keys(qa, (x, y) -> concat(x, 'x'))",
                       "transform_keys(qa, (x, y) -> length(x))"],
    "transform_values": ["transform_values(qa, (x, y) -> y + 1)",
                         "transform_values(qa, (x, y) -> concat(x, 'x'))"],
    "map_zip_with": ["map_zip_with(qa, qb, (x, y, z) -> coalesce(y, 0) + coalesce(z, 0))",
                     "map_zip_with(qa, qb, (x, y, z) -> concat(x, 'x'))"],
    "str_to_map": ["str_to_map('a:1,b:2,c:3', ',', ':')", "str_to_map(sa)",
                   "str_to_map(ua, '&', '=')"],
    # texts
    "json_array_length": ["json_array_length(ja)"],
    "json_object_keys": ["json_object_keys(ja)"],
    "get_json_object": _each("get_json_object(ja, '{}')",
                             ("$.a", "$.b", "$.a.b", "$.a.b[0]", "$[0].a", "$[0]", "$[2][0]")),
    "to_json": [f"to_json({value})" for value in (
        "struct(ia, sb)", "na", "oa", "qa", "ra", "array(ra, rb)", "struct(za, na)", "struct(ea)")],
    **{name: [f"{name}(ua)", f"{name}(sa)"]
       for name in ("url_encode", "url_decode", "try_url_decode")},
    **{name: [*_each(name + "(ua, '{}')", ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE",
                                           "AUTHORITY", "USERINFO")),
              f"{name}(ua, 'QUERY', 'x')", f"{name}(ua, 'QUERY', 'y')"]
       for name in ("parse_url", "try_parse_url")},
    # conditions, patterns and what else had a form of its own
    "concat": ["sa || sb", "sa || 'x' || ca", "sa || null"],
    "~": list(_of_each("~{a}", _WHOLE)),
    "[]": ["na[0]", "na[tb]", "na[5]", "oa[1]", "qa['a']", "qa[sb]", "array(na, nb)[0][1]"],
    "rlike": [f"{x} rlike '{p}'" for x in ("sa", "ca", "va") for p in _PATTERNS],
    "regexp_extract": [
        f"regexp_extract({x}, '{p}', {group})"
        for x in ("sa", "ca", "va") for p in _PATTERNS for group in (0, 1, 2)
    ] + ["regexp_extract(sa, '(a)(b)?')", "regexp_extract(null, 'a', 0)"],
    "regexp_replace": [
        f"regexp_replace({x}, '{p}', '{by}')"
        for x in ("sa", "ca", "va") for p in _PATTERNS
        for by in ("", "-", "<$0>", "$1\\\\$1{}\\\\\\\\x")
    ] + ["regexp_replace(sa, 'a', 'b', 1)"],
    "date_format": [
        f"date_format({x}, '{p}')" for x in ("ea", "ma", "mb") for p in (
            "y", "yy", "yyyy-MM-dd", "yyyy/M/d", "yyyyMMdd", "MMM MMMM", "D DDD", "E EE EEE EEEE",
            "HH:mm:ss", "H:m:s", "hh:mm a", "h", "S", "SS", "SSS", "SSSS", "SSSSSS", "", "% %d",
            "yyyy\\'T\\'HH", "\\'o\\'\\'clock\\' h", "d.M.yyyy, HH \u00e4",
        )
    ] + ["date_format('2016-04-08', 'y')", "date_format(sa, 'yyyy')", "date_format(null, 'y')"],
    "extract YEAR": [f"extract({unit} from {i})" for i in _SPANS for unit in (
        "year", "month", "days", "hours", "minute", "seconds")] + [
        f"extract({unit} from {x}a)" for x in "em" for unit in (
        "year", "YR", "QUARTER", "qtr", "month", "mons", "week", "W", "day", "D", "hour", "HRS",
        "minute", "mins", "second", "SECS", "yearofweek", "dow", "DAYOFWEEK_ISO", "doy")],
    "named_struct": ["(ia, sb)", "(1, sa)", "(ia, (ib, sa))", "struct(ia, sb)", "struct(1, 'a')",
                     "struct(ia as x, sb)", "struct(ca, va)", "named_struct('a', ia, 'b', sb)",
                     "named_struct('a', named_struct('b', ia)).a.b"],
    "array": ["array(ia, lb)", "array(sa, 'x', null)", "array(xa, fb)", "array(da, ib)",
                "array(ia, null)", "array(ea, mb)", "array(na, nb)", "array(za)", "array(ca, va)"],
    "transform": ["transform(na, x -> x + ib)", "transform(na, (x, i) -> x * i)",
                    "transform(oa, x -> concat(x, sb))", "transform(pa, x -> x * 2)",
                    "transform(na, x -> x > ib)", "transform(array(na, nb), x -> size(x))",
                    "transform(na, x -> transform(nb, y -> x + y))",
                    "transform(na, x -> array(x, ib))", "transform(oa, x -> x is null)"],
    "if": ["if(za, ia, lb)", "if(ia > 0, sa, ca)", "if(za, null, 1)", "if(za, da, 2)"],
    "coalesce": [*_of_each("coalesce({a}, {b})"), "coalesce(ia, la, 0)", "nvl(sa, 'x')",
                   "ifnull(da, 0)", "coalesce(null, ia)", "coalesce(ca, va, sa)"],
    "nullif": [*_of_each("nullif({a}, {b})"), "nullif(ia, 5)", "nullif(ca, 'ab')"],
    "nvl2": ["nvl2(ia, sa, sb)", "nvl2(ia, 1, lb)"],
    "greatest": [*_of_each("greatest({a}, {b})"), "greatest(ia, lb, 3)", "greatest(da, ib)"],
    "least": [*_of_each("least({a}, {b})"), "least(ia, lb, 3)", "least(fa, xb)"],
}  # fmt: skip
"""More calls than those of each signature, by the name of the function."""


def of_row(row: Signature) -> list[str]:
    """Calls with values of all types that an aggregate takes."""
    choices = [ARGUMENTS[takes] for takes in row.takes]
    if row.takes[-1:] == ("flag",) and row.name != "mode":  # which the parser takes alone
        choices[-1] = ("true",)
    form = _form(row.name, len(choices))
    return [form.format(*each, all=", ".join(each)) for each in itertools.product(*choices)]


def scalar() -> Iterator[tuple[str, list[str]]]:
    """The operators, and the rows of the table that are no aggregates, with expressions of each."""
    for node, expressions in CONSTRUCTS.items():
        yield node.__name__, expressions
    yield from signatures()


def _aggregates() -> list[Signature]:
    rows = itertools.chain(*SIGNATURES.values())
    return [row for row in rows if row.aggregate and not row.name.startswith("over ")]


def aggregates() -> Iterator[tuple[str, list[str]]]:
    for row in _aggregates():
        yield row.name, of_row(row)


def of_pairs() -> list[str]:
    """Statistics that are exact here, but for the rounding of a quotient."""
    return [call for row in _aggregates() if "exactly whole" in row.takes for call in of_row(row)]


_OF_ORDER = ("collect", "array_agg", "first", "last", "any_value", "listagg", "string_agg")


def without_order() -> list[str]:
    """The aggregates whose value may depend on the order of the rows: last bits, elements, or which
    of 0.0 and -0.0."""
    return [
        call
        for row in _aggregates()
        for call in of_row(row)
        if row.name.startswith(_OF_ORDER)
        or {*row.takes} & {"double", "fraction", "exactly real"}
        or call in ("min(fa)", "min(xa)", "max(fa)", "max(xa)")
    ]


_FRAMES = (
    "",
    " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    " ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
)
WINDOWS: dict[str, tuple[str, ...]] = {
    "row_number()": ("",),
    "rank()": ("",),
    "dense_rank()": ("",),
    "lag(ia)": ("",),
    "lead(sa, 2)": ("",),
    "lag(ia, 1, 0)": ("",),
    "first_value(sa)": _FRAMES,
    "last_value(da)": _FRAMES,
    "sum(ha)": _FRAMES,
    "count(sa)": _FRAMES,
    "min(xa)": _FRAMES,
    "max(ea)": _FRAMES,
    "avg(ia)": _FRAMES,
    "ntile(3)": ("",),
    "ntile(100)": ("",),
    "percent_rank()": ("",),
    "cume_dist()": ("",),
    "nth_value(ia, 2)": _FRAMES,
    "nth_value(sa, 3) ignore nulls": _FRAMES,
    "first_value(ia) ignore nulls": _FRAMES,
    "last_value(sa) ignore nulls": _FRAMES,
    "first(ia)": _FRAMES,
    "lag(ia) ignore nulls": ("",),
    "lead(sa, 2) ignore nulls": ("",),
    "lag(ia, -1)": ("",),
    "bit_xor(ia)": _FRAMES,
}
"""Window functions with the frames that they take."""


_MOMENTS = ("now", "current_timestamp", "uuid")
"""Which have another value in each statement."""


def signatures() -> Iterator[tuple[str, list[str]]]:
    """Calls of every row of the table: each argument of each kind, beside others."""
    for name, rows in SIGNATURES.items():
        if rows[0].aggregate or name.startswith("rows of ") or name in _MOMENTS:
            continue
        calls = []
        for row in rows:
            choices = [ARGUMENTS[kind.removesuffix("*")] for kind in row.takes]
            form = _form(name, len(choices))
            for turn in range(min(5, max(map(len, choices), default=1))):
                for shift in (0, 1) if len(choices) > 1 else (0,):
                    chosen = [
                        each[(turn + shift * position) % len(each)]
                        for position, each in enumerate(choices)
                    ]
                    calls.append(form.format(*chosen, all=", ".join(chosen)))
        yield name, sorted({*calls, *_MORE.get(name, ()), *CALLS.get(name, ())})


_XML = (
    "concat('<a x=\"', ia, '\"><b>', ib, '</b></a>')",
    "concat('<a><b>1</b> t <b>', ta, '</b></a>')",
    "'<a><b>b1<c>in</c>tail</b><b/><c>c</c></a>'", "'<a><b>1.5</b></a>'", "'<a> <b> 7 </b> </a>'",
    "concat('<a><b>', repeat('9', tb & 3), '</b></a>')", "cast(null as string)",
)  # fmt: skip


_MORE = {
    **{name: [f"{name}({x}, '{p}')" for x in ("sa", "va") for p in _PATTERNS]
       for name in ("regexp", "regexp_count", "regexp_substr", "regexp_instr")},
    "regexp_extract_all": [f"regexp_extract_all({x}, '{p}', {group})"
                           for x in ("sa", "va") for p in _PATTERNS for group in (0, 1, 2)],
    **{name: [f"{name}({x}, '{p}')" for x in ("sa", "va", "ca")
              for p in ("a%", "_b%", "%\\\\%", "A\\_", "", "%", "M%R", "%\u65e5%")]
       for name in ("like", "ilike")},
    **{name: [f"{name}('%s, %d%% of %s\\n', sa, {x}, {y})" for x in ("ta", "ha", "ia", "la")
              for y in ("za", "ib", "vb", "ca")]
       for name in ("format_string", "printf")},
    **{name: [f"{name}(sa, 'utf-8')", f"{name}(ca, 'UTF-8')"]
       for name in ("to_binary", "try_to_binary", "encode")},
    "sha2": [f"sha2({x}, {bits})" for x in ("sa", "ba") for bits in (0, 224, 256, 384, 512)],
    "conv": [f"conv({x}, {base}, {to})" for x in ("sa", "ia", "'-ff'", "'zz1'")
             for base, to in ((10, 16), (16, 10), (16, -10), (10, 2), (36, 10), (1, 10))],
    "decode": ["decode(ia, 1, 'one', 5, sa, 'other')", "decode(sa, va, 'x', null, 'y')",
               "decode(da, ib, xa, xb)"],
    "concat": ["concat(sa, va, 'x')", "concat(sa)", "concat(na, nb)", "concat(ba, bb)"],
    "round": ["round(da, 1)", "round(wa, 2)", "round(ka, 0)", "round(da, -1)", "round(wa, -3)"],
    "substring": ["substring(sa, 2)", "substring(sa, 0, 2)", "substring(va, -2, 1)"],
    **{name: [f"{name}({value}, '{form}')" for value, form in (
        ("454", "999"), ("ia", "9"), ("da", "9D00"), ("da", "99,999,999.00S"), ("ha", "99999MI"),
        ("12454", "99G999"), ("-12454.8", "99G999D9S"), ("78.12", "$99.99"), ("ea", "yyyy/MM"),
        ("ba", "base64"), ("ba", "hex"), ("ba", "utf-8"), ("wa", "$99999"))]
       for name in ("to_char", "to_varchar")},
    **{name: [f"{name}({value}, '{form}')" for value in ("sa", "cast(ia as string)", "'-5'",
                                                         "'12,454.80-'", "'$78.12'", "'7-'")
              for form in ("9", "0S", "999", "99G999D99S", "$99.99", "9MI", "99999")]
       for name in ("to_number", "try_to_number")},
    **{name: [f"{name}({x}, {i})" for x in ("ea", "ma") for i in _SPANS[:10]]
       for name in ("try_add", "try_subtract")},
    **{name: [f"{name}({xml}, '{path}')" for xml in _XML for path in (
        "a/b/text()", "a/b", "/a/@x", "a", "x/y", "sum(a/b)")]
       for name in ("xpath", "xpath_boolean", "xpath_string", "xpath_double", "xpath_number",
                    "xpath_float", "xpath_short", "xpath_int", "xpath_long")},
    **{name: [f"{name}(parse_json({json}), '{path}'{kind})" for json in ("ja", "'[1, \"x\", true]'")
              for path in ("$.a", "$.b", "$.a.b[0]", "$[0]", "$[1]", "$.a.b[2].c")
              for kind in (", 'int'", ", 'bigint'", ", 'string'", ", 'boolean'")]
       for name in ("variant_get", "try_variant_get")},
    "is_variant_null": ["is_variant_null(parse_json(ja))", "is_variant_null(parse_json('null'))",
                        "is_variant_null(variant_get(parse_json(ja), '$.a'))"],
    "is_valid_variant": ["is_valid_variant(parse_json(ja))", "is_valid_variant(null)"],
    "schema_of_variant": [f"schema_of_variant(parse_json({json}))" for json in (
        "ja", """'[{"b":true,"a":0}, {"a":1, "b":false}]'""", "'[null]'", "'[]'")],
    **{name: [f"{name}(array({x}F, {y}F), array({z}F, {x}F))" for x in (0, -1, 3.0)
              for y in (1, 4.0, 2047) for z in (1.5, 5, 100)]
       for name in ("vector_inner_product", "vector_l2_distance")},
    **{name: [f"{name}(array({x}F, {y}F), {n})" for x in (3.0, -6, 5) for y in (4, 8.0, 12, 0)
              for n in ("1.0F", "2.0F", "float('inf')")]
       for name in ("vector_norm", "vector_normalize")},
    "width_bucket": [f"width_bucket({i} '{x}' {u}, {i} '{y}' {u}, {i} '{z}' {u}, {n})"
                     for i in ("interval",) for u in ("year", "day") for x in (0, 1, 5, -3)
                     for y, z in ((0, 10), (10, 0), (3, 3)) for n in (1, 10)],
    "from_base32": ["from_base32('MZXW6YTBOI======')", "from_base32(to_base32(ba))"],
    "bitmap_count": ["bitmap_count(ba)", "bitmap_count(x'FFFF')", "bitmap_count(X'0')"],
    "hypot": ["hypot(3, 4)", "hypot(ia, 0)", "hypot(tb, ta)"],
    "split": [f"split({x}, '{p}')" for x in ("sa", "va") for p in _PATTERNS],
    "time_bucket": [f"time_bucket({i}, {x})" for x in ("ma", "ma, mb") for i in _SPANS[:11]],
    "day": ["day(timestamp_ntz'2009-07-30 12:00:00.123456789')", "day(null)"],
    "hash": ["hash(na, oa, sa)", "hash(array(la), array(ta), array(hb))",
             "hash(sa, ia, la, ba, za, ea, ma)", "hash(sa)", "hash(null, ia)"],
    "xxhash64": ["xxhash64(na, oa, sa)", "xxhash64(array(la), array(ta), array(hb))",
                 "xxhash64(sa, ia, la, ba, za, ea, ma)", "xxhash64(repeat(sa, 7))"],
    "pow": [f"pow({x}, {n})" for x in ("ia", "ta", "2", "10") for n in ("0", "2", "3", "tb")],
    "mask": ["mask(sa, 'Q', 'q', 'd', 'o')", "mask(sa, null, null, 'd')", "mask(sb, 'y')"],
}  # fmt: skip


def _form(name: str, count: int) -> str:
    """How a call is written that the table has under this name."""
    match name.split():
        case ["trim", word]:
            places = "{0} FROM {1}" if count == 2 else "FROM {0}"
            return f"trim({word} {places})"
        case ["extract", field]:
            return f"extract({field} FROM {{0}})"
        case [call, "*"]:
            return f"{call}(*)"
        case [call, "distinct"]:
            return f"{call}(DISTINCT {{all}})"
        case [call, "within", *way]:
            given = ", ".join(f"{{{place}}}" for place in range(1, count))
            return f"{call}({given}) WITHIN GROUP (ORDER BY {{0}} {' '.join(way)})"
        case ["<<" | ">>" | ">>>"]:
            return f"{{0}} {name} {{1}}"
        case ["[]"]:
            return "{0}[{1}]"
        case [call, "escape"]:
            return f"{{0}} {call} {{1}} ESCAPE '/'"
        case [call, unit]:
            return f"{call}({unit}, {{all}})"
        case ["~"]:
            return "~{0}"
    return f"{name}({{all}})"
