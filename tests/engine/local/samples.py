"""Expressions for every entry of functions.py, over the columns of values.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sqlglot import exp

from acid_platform.engine.local.translation.functions import (
    AGGREGATES,
    DATES,
    NUMBERS,
    TEXT,
    Function,
    Takes,
)

_TAKEN: dict[Takes, tuple[str, ...]] = {
    "string": ("sa", "sb", "ca", "va"),
    "int": ("ta", "hb", "ib"),
    "count": ("0", "1", "2", "7"),
    "pad": ("'*'", "'äb'"),
    "integral": ("ta", "ha", "ia", "la"),
    "decimal": ("da", "ka", "wa"),
    "number": ("ta", "ha", "ia", "la", "da", "ka", "fa", "xa"),
    "double": ("fa", "xa"),
    "date": ("ea", "mb"),
    "timestamp": ("ma", "eb"),
    "condition": ("za",),
    "ordered": ("ta", "la", "da", "fa", "xa", "sa", "ca", "va", "za", "ea", "ma", "ba"),
    "exact": ("ta", "la", "da", "sa", "ca", "va", "za", "ea", "ma", "ba"),
    "any": ("ta", "sa", "ma"),
}
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
             "(xa, fa) in ((xb, fb), (xa, fb))", "(ca, ia) in (('ab', 1))"],
    exp.Like: ["sa like 'a%'", "sa like '_b%'", "ca like 'ab%'", "ca like 'ab'", "sa like ''",
               "sa like '%'", "sa like '日本_x'", "va not like 'a_'", "sa like 'A%'"],
    exp.RegexpLike: [f"{x} rlike '{p}'" for x in ("sa", "ca", "va") for p in _PATTERNS],
    exp.RegexpExtract: [
        f"regexp_extract({x}, '{p}', {group})"
        for x in ("sa", "ca", "va") for p in _PATTERNS for group in (0, 1, 2)
    ] + ["regexp_extract(sa, '(a)(b)?')", "regexp_extract(null, 'a', 0)"],
    exp.RegexpReplace: [
        f"regexp_replace({x}, '{p}', '{by}')"
        for x in ("sa", "ca", "va") for p in _PATTERNS
        for by in ("", "-", "<$0>", "$1\\\\$1{}\\\\\\\\x")
    ] + ["regexp_replace(sa, 'a', 'b', 1)"],
    exp.TimeToStr: [
        f"date_format({x}, '{p}')" for x in ("ea", "ma", "mb") for p in (
            "y", "yy", "yyyy-MM-dd", "yyyy/M/d", "yyyyMMdd", "MMM MMMM", "D DDD", "E EE EEE EEEE",
            "HH:mm:ss", "H:m:s", "hh:mm a", "h", "S", "SS", "SSS", "SSSS", "SSSSSS", "", "% %d",
            "yyyy\\'T\\'HH", "\\'o\\'\\'clock\\' h", "d.M.yyyy, HH \u00e4",
        )
    ] + ["date_format('2016-04-08', 'y')", "date_format(sa, 'yyyy')", "date_format(null, 'y')"],
    exp.Add: [*_pairs(_NUMBERS, "+"), "ia + 1", "da + 1", "da + 1.25", "xa + 1.5", "wa + null",
              "ea + interval '30' day", "ea + interval -2 weeks", "interval 5 months + ea",
              "ea + interval 1 year", "ka + ka", "ka + 1.5"],
    exp.Sub: [*_pairs(_NUMBERS, "-"), "ia - 1", "1 - la", "da - 1", "ea - interval '1' year",
              "ea - interval 7 days", "ka - 0.1234567890123"],
    exp.Mul: [*_pairs(_NUMBERS, "*"), "ia * 2", "da * 2", "da * 1.5", "ka * 0.0001000000",
              "ka * ka", "ka * 0.1234567891234567"],
    exp.Div: [*_pairs(_NUMBERS, "/"), "ia / 2", "1 / ia", "xa / 0", "da / 3", "wa / 7",
              "da / 2.5", "2 / wb", "ka / 3", "ka / da", "da / ka",
              "cast(da as decimal(17,2)) * 100 / cast(db as decimal(27,2))",
              "cast(da as decimal(38,2)) / cast(db as decimal(37,2))",
              "wa / cast(1234567890123456789012345678901234567 as decimal(38,0))"],
    exp.Extract: [f"extract({unit} from {x}a)" for x in "em"
                  for unit in ("year", "QUARTER", "month", "week", "day", "hour", "minute")],
    exp.IntDiv: [*_pairs(_NUMBERS, "div"), "ia div 2"],
    exp.Mod: [*_pairs(_NUMBERS, "%"), "ia % 2", "mod(la, 3)"],
    exp.Neg: ["-5", "-1.5", *_of_each("-{a}", _NUMBERS)],
    exp.BitwiseAnd: list(_pairs(_WHOLE, "&")),
    exp.BitwiseOr: list(_pairs(_WHOLE, "|")),
    exp.BitwiseXor: list(_pairs(_WHOLE, "^")),
    exp.BitwiseNot: list(_of_each("~{a}", _WHOLE)),
    exp.DPipe: ["sa || sb", "sa || 'x' || ca", "sa || null"],
    exp.Concat: ["concat(sa, sb)", "concat(sa, va, 'x')", "concat(sa)"],
    exp.Case: [*_of_each("case when za then {a} else {b} end"), "case when za then ia else la end",
               "case when za then ia end", "case ia when 1 then 'a' when 5 then 'b' else sa end",
               "case when za then da else ia end", "case when za then fa else xa end",
               "case when ib <> 0 then ia / ib end", "case when za then ea else ma end",
               "case when za then fa else ia end", "case when za then da else wa end",
               "case when za then ia else 1.5 end", "case when za then null else sa end"],
    exp.If: ["if(za, ia, lb)", "if(ia > 0, sa, ca)", "if(za, null, 1)", "if(za, da, 2)"],
    exp.Coalesce: [*_of_each("coalesce({a}, {b})"), "coalesce(ia, la, 0)", "nvl(sa, 'x')",
                   "ifnull(da, 0)", "coalesce(null, ia)", "coalesce(ca, va, sa)"],
    exp.Nullif: [*_of_each("nullif({a}, {b})"), "nullif(ia, 5)", "nullif(ca, 'ab')"],
    exp.Nvl2: ["nvl2(ia, sa, sb)", "nvl2(ia, 1, lb)"],
    exp.Greatest: [*_of_each("greatest({a}, {b})"), "greatest(ia, lb, 3)", "greatest(da, ib)"],
    exp.Least: [*_of_each("least({a}, {b})"), "least(ia, lb, 3)", "least(fa, xb)"],
    exp.Round: ["round(da, 1)", "round(da)", "round(wa, 2)", "round(ka, 0)", "round(da, 2)"],
    exp.Cast: [f"cast({x}a as {kind})" for x in _ALL for kind in CASTS]
    + ["cast('2020-01-31' as date)", "cast('12' as int)", "cast(1.5 as decimal(5,3))",
       "cast('2020-01-31 10:11:12' as timestamp)", "cast(null as int)", "5L", "2.5BD", "1.5D",
       "cast(1.0 as int)", "cast(1.5 as int)", "cast(300 as tinyint)"],
}  # fmt: skip


def of_function(function: Function) -> Iterator[str]:
    """Calls with values of all types that the function takes."""
    import sqlglot

    for values in itertools.product(*(_TAKEN[takes] for takes in function.takes)):
        call = sqlglot.parse_one(function.call, dialect="spark")
        given = {
            letter: sqlglot.parse_one(value, dialect="spark")
            for letter, value in zip(("a", "b", "c"), values, strict=False)
        }
        for column in list(call.find_all(exp.Column)):
            column.replace(given[column.name].copy())
        yield call.sql("spark")


def scalar() -> Iterator[tuple[str, list[str]]]:
    """The entries of functions.py that are no aggregates, with expressions of each."""
    for node, expressions in CONSTRUCTS.items():
        yield node.__name__, expressions
    for function in (*TEXT, *DATES, *NUMBERS):
        yield function.call, list(of_function(function))


def aggregates() -> Iterator[tuple[str, list[str]]]:
    for function in AGGREGATES:
        yield function.call, list(of_function(function))


def without_order() -> list[str]:
    """The aggregates whose value may depend on the order of the rows: last bits, elements, or which
    of 0.0 and -0.0."""
    return [
        call
        for function in AGGREGATES
        for call in of_function(function)
        if function.name.startswith("collect")
        or function.takes == ("double",)
        or call in ("MIN(fa)", "MIN(xa)", "MAX(fa)", "MAX(xa)")
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
}
"""Window functions with the frames that they take."""
