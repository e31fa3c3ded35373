"""Random SELECTs over two small tables: joins, aggregates, windows, set operations, subqueries."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

SCHEMA = (
    "id int, i int, l bigint, h smallint, d decimal(10,2), x double, s string, c char(4),"
    " v varchar(6), z boolean, e date, m timestamp, y tinyint, f float, k decimal(38,10), w binary,"
    " ai array<int>, ms map<string,int>, st struct<a:int,b:string>, n double,"
    " sn struct<f:float>, an array<double>"
)
_TEXTS = [None, "", "a", "ab", "Ab", "b c", "ä", "abc", "x%", "zz"]
_TYPES = {
    "i": "int", "l": "int", "h": "int", "d": "number", "x": "number", "s": "text", "v": "text",
    "z": "condition", "e": "date", "m": "date", "id": "int", "y": "int", "f": "number",
    "k": "number",
}  # fmt: skip
_ZEROS = [None, 0.0, -0.0, float("nan"), 1.5]
"""Values of a column that is a key: of groups, joins, windows, distinct rows and sets."""
_NESTED = ("ai", "ms", "st", "sn", "an")
"""Columns by which the local engine does not sort, nor Spark by a map."""
_PLAIN = [*_TYPES, "c", "w", *_NESTED, "st.a", "n", "sn.f"]
"""The columns that stand alone in a SELECT."""
_COLUMNS = {
    kind: [name for name, own in _TYPES.items() if own == kind] for kind in {*_TYPES.values()}
}
_COMPARABLE = {
    "i": ["l", "h", "id", "3", "0", "2.5", "'4'"],
    "l": ["i", "h", "1", "-2"],
    "h": ["i", "2", "1.5"],
    "d": ["i", "1.25", "0", "3"],
    "x": ["i", "1.5", "0.0", "2"],
    "s": ["v", "'ab'", "'b'", "''"],
    "v": ["s", "'abc'"],
    "c": ["'ab'", "'a'", "'abc'"],
    "e": ["'2020-02-29'", "date '1970-01-01'", "m"],
    "m": ["'2020-02-29 12:00:00'", "e", "timestamp '1969-12-31 23:59:59'"],
    "id": ["i", "20", "l"],
    "y": ["h", "1", "i"],
    "f": ["x", "1.5", "y"],
    "k": ["d", "0.5", "l"],
    "w": ["w"],
}


def table(seed: int, rows: int, first_id: int = 0) -> pa.Table:
    """Rows with many NULLs and equal values. Ids go up from `first_id`: windows sort by them."""
    dice = random.Random(seed)
    numbers = [float("nan"), float("inf"), 0.0, 1.5, -2.5, 1e6, 0.1, None, 3.0]
    days = [None, datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)]
    days += [datetime.date(2020, 2, 29), datetime.date(2024, 12, 30), datetime.date(1900, 3, 1)]
    times = [None, datetime.datetime(1969, 12, 31, 23, 59, 58, 5), datetime.datetime(1970, 1, 1)]
    times += [datetime.datetime(2020, 2, 29, 12), datetime.datetime(2020, 2, 29, 12, 34, 56, 789)]

    def pick(values: list[object]) -> list[object]:
        return [dice.choice(values) for _ in range(rows)]

    data = {
        "id": pa.array(range(first_id, first_id + rows), pa.int32()),
        "i": pa.array(pick([None, 0, 1, 2, 3, 4, -5, 7]), pa.int32()),
        "l": pa.array(pick([None, 0, 1, 2, 3, 10**12, -(10**10)]), pa.int64()),
        "h": pa.array(pick([None, 0, 1, 2, 3, -300]), pa.int16()),
        "d": pa.array(pick([None, *map(Decimal, ("0", "1.25", "-3.5", "3", "99999999.99"))]),
                      pa.decimal128(10, 2)),
        "x": pa.array(pick([*numbers]), pa.float64()),
        "s": pa.array(pick([*_TEXTS]), pa.string()),
        "c": pa.array(pick([None, "a", "ab", "abcd", "b"]), pa.string()),
        "v": pa.array(pick([None, "ab", "abc", "b c", "ä", "ab "]), pa.string()),
        "z": pa.array(pick([None, True, False]), pa.bool_()),
        "e": pa.array(pick([*days]), pa.date32()),
        "m": pa.array(pick([*times]), pa.timestamp("us")),
        "y": pa.array(pick([None, 0, 1, 2, 3, -128, 127]), pa.int8()),
        "f": pa.array(pick([None, 0.0, -0.0, 1.5, -2.5, float("nan"), 0.1]), pa.float32()),
        "k": pa.array(pick([None, *map(Decimal, ("0", "0.5", "-1.25", "3", "123456789012345.5"))]),
                      pa.decimal128(38, 10)),
        "w": pa.array(pick([None, b"", b"a", b"\xff", b"ab"]), pa.binary()),
        "ai": pa.array(pick([None, [], [1, None], [2]]), pa.list_(pa.int32())),
        "ms": pa.array(pick([None, [], [("a", 1)], [("b", None)]]),
                       pa.map_(pa.string(), pa.int32())),
        "st": pa.array(pick([None, {"a": 1, "b": "x"}, {"a": None, "b": "y"}]),
                       pa.struct({"a": pa.int32(), "b": pa.string()})),
        "n": pa.array(pick([*_ZEROS]), pa.float64()),
        "sn": pa.array(pick([None, *({"f": zero} for zero in _ZEROS)]),
                       pa.struct({"f": pa.float32()})),
        "an": pa.array(pick([None, [], *([zero] for zero in _ZEROS)]), pa.list_(pa.float64())),
    }  # fmt: skip
    return pa.table(data)


def _nested(item: str) -> bool:
    """Whether an item of a SELECT is an array, a map or a struct."""
    column = item.partition(" AS ")[0]
    return column.removeprefix("a.").removeprefix("b.") in _NESTED or column in (
        "lead(st)",
        "lag(ai)",
    )


@dataclass(frozen=True)
class Query:
    text: str
    sorted_by: tuple[int, ...] = ()
    """The positions of the columns by which the rows are sorted; the others are in any order."""


class Generator:
    """Makes the same queries for the same seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def query(self) -> Query:
        shapes: list[Callable[[], Query]] = [
            self.plain, self.plain, self.aggregate, self.aggregate, self.join, self.join,
            self.window, self.union, self.nested, self.grouped_join, self.unknown,
        ]  # fmt: skip
        return self.dice.choice(shapes)()

    # --- shapes --------------------------------------------------------------------------------

    def plain(self) -> Query:
        items = self.items(self.dice.randint(1, 4))
        distinct = self.dice.random() < 0.25 and not any(map(_nested, items))
        text = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(items)} FROM both.t"
        return self.ordered(text + self.where(), items)

    def aggregate(self) -> Query:
        keys = self.dice.sample(
            ["i", "h", "s", "z", "e", "c", "v", "d", "y", "k", "w", "n", "f", "sn.f"],
            self.dice.randint(0, 2),
        )
        if keys and self.dice.random() < 0.2:
            keys[0] = f"{keys[0]} IS NULL"
        count = self.dice.randint(1, 3)
        items = [*keys, *(f"{self.sum()}{self.alias(i)}" for i in range(count))]
        text = f"SELECT {', '.join(items)} FROM both.t{self.where()}"
        if keys:
            named = [str(i + 1) if self.dice.random() < 0.3 else k for i, k in enumerate(keys)]
            text += f" GROUP BY {', '.join(named)}"
            if self.dice.random() < 0.3:
                text += f" HAVING count(*) > {self.dice.randint(0, 3)}"
        return self.ordered(text, items)

    def join(self) -> Query:
        kind = self.dice.choice(
            ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]
        )
        key = self.dice.choice(["i", "h", "s", "e", "c", "y", "k", "w", "m", "n", "f", "sn.f"])
        on = f"a.{key} = b.{key}"
        if self.dice.random() < 0.4:
            on += self.dice.choice([" AND a.id < b.id", " AND b.z", " AND a.i > 0"])
        names = self.dice.sample(
            ["id", "i", "s", "d", "e", "c", "x", "y", "f", "k", "w", "ai", "ms", "st", "n"], 3
        )
        sides = ["a"] if "LEFT " in kind and kind != "LEFT JOIN" else ["a", "b"]
        items = [f"{self.dice.choice(sides)}.{name} AS n{i}" for i, name in enumerate(names)]
        if self.dice.random() < 0.3:
            items.append(f"coalesce({sides[-1]}.i, {sides[0]}.l) AS k")
        text = f"SELECT {', '.join(items)} FROM both.t a {kind} both.u b ON {on}"
        if self.dice.random() < 0.4:
            text += f" WHERE {self.dice.choice(sides)}.{self.dice.choice(['i > 0', 'z', 'x > 0'])}"
        return self.ordered(text, items)

    def grouped_join(self) -> Query:
        text = (
            f"SELECT a.{self.dice.choice(['i', 's', 'z'])} AS k, count(*) AS n, sum(b.i) AS m,"
            f" {self.dice.choice(['min', 'max'])}(b.{self.dice.choice(['d', 'e', 's', 'x'])}) AS o"
            f" FROM both.t a JOIN both.u b USING (h){self.dice.choice(['', ' WHERE a.id > 3'])}"
            " GROUP BY 1"
        )
        return self.ordered(text, ["k", "n", "m", "o"])

    def window(self) -> Query:
        function = self.dice.choice([
            "row_number()", "rank()", "dense_rank()", "lag(i)", "lead(s, 2)", "sum(i)", "count(*)",
            "min(d)", "max(e)", "first_value(i)", "last_value(s)", "lag(i, 1, 0)", "avg(h)",
            "max(k)", "min(w)", "max(f)", "lead(st)", "lag(ai)", "sum(y)",
        ])  # fmt: skip
        frame = ""
        if function.startswith(("sum", "count", "min", "max", "avg", "first", "last")):
            frame = self.dice.choice(
                ["", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
                 " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
                 " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                 " ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING"]
            )  # fmt: skip
        part = self.dice.choice(
            [
                "",
                "PARTITION BY h ",
                "PARTITION BY s, z ",
                "PARTITION BY c ",
                "PARTITION BY n ",
                "PARTITION BY f, z ",
                "PARTITION BY sn ",
            ]
        )
        by = self.dice.choice(["id", "i, id", "d DESC, id", "x NULLS LAST, id", "s, id DESC"])
        if function in ("rank()", "dense_rank()", "count(*)", "sum(i)") and not frame:
            by = self.dice.choice(["i", "s DESC", "h, s", "e"])
        text = f"SELECT id, {function} OVER ({part}ORDER BY {by}{frame}) AS w FROM both.t"
        return self.ordered(text + self.where(), ["id", function])

    def union(self) -> Query:
        names = self.dice.sample(
            ["i", "s", "d", "e", "z", "h", "l", "y", "f", "k", "w", "n"], self.dice.randint(1, 3)
        )
        word = self.dice.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
        left = f"SELECT {', '.join(names)} FROM both.t{self.where()}"
        others = [self.dice.choice(["l", "h"]) if name == "i" else name for name in names]
        right = f"SELECT {', '.join(others)} FROM both.u{self.where()}"
        return self.ordered(f"{left} {word} {right}", names)

    def nested(self) -> Query:
        inner = "SELECT i AS k, count(*) AS n, max(d) AS o FROM both.u GROUP BY i"
        text = self.dice.choice([
            f"SELECT k, n FROM ({inner}) q WHERE n > 1",
            f"WITH q AS ({inner}) SELECT a.id, q.n FROM both.t a LEFT JOIN q ON a.i = q.k",
            f"WITH q AS ({inner}) SELECT x.k, y.n FROM q x JOIN q y ON x.n = y.n",
            "SELECT id, i FROM both.t WHERE i IN (SELECT i FROM both.u WHERE z)",
            "SELECT id, i FROM both.t WHERE i NOT IN (SELECT i FROM both.u WHERE i > 1)",
            "SELECT id, i FROM both.t WHERE i NOT IN (SELECT i FROM both.u)",
            "SELECT id, s FROM both.t a WHERE EXISTS (SELECT 1 FROM both.u b WHERE b.s = a.s)",
            "SELECT id, s FROM both.t a WHERE NOT EXISTS"
            " (SELECT * FROM both.u b WHERE b.h = a.h AND b.id > 5)",
            "SELECT id, i FROM both.t WHERE i > (SELECT avg(i) FROM both.u)",
            "SELECT id, (SELECT max(e) FROM both.u) AS o FROM both.t",
            "SELECT * FROM VALUES (1, 'a', 1.5), (2, NULL, 2.25), (NULL, 'c', 3) AS v(a, b, c)",
            "SELECT v.a, t.s FROM both.t t JOIN (VALUES (1), (2), (NULL)) AS v(a) ON t.i = v.a",
        ])  # fmt: skip
        names = "abc" if "VALUES (1, 'a'" in text else "ab"
        return self.ordered(text, [*names])

    def unknown(self) -> Query:
        """IN (subquery) where unknown and false differ, and where they don't."""
        where = self.uncertain(self.dice.randint(1, 2))
        if self.dice.random() < 0.5:
            return self.ordered(f"SELECT a.id, {where} AS v FROM both.t a", ["id", "v"])
        return self.ordered(f"SELECT a.id FROM both.t a WHERE {where}", ["id"])

    def uncertain(self, depth: int) -> str:
        """A condition on the row `a` of `both.t`, with IN (subquery) as a value."""
        column = self.dice.choice(["i", "i", "s", "n"])
        some = self.dice.choice([
            "", "", f" WHERE b.{column} IS NOT NULL", " WHERE b.id < 0", " WHERE b.h = a.h",
            f" WHERE b.{column} IS NOT NULL AND b.z", " WHERE b.z IN (SELECT c.z FROM both.t c)",
        ])  # fmt: skip
        word = self.dice.choice(["IN", "IN", "NOT IN"])
        term = f"a.{column} {word} (SELECT b.{column} FROM both.u b{some})"
        other = self.dice.choice(["a.z", "a.i > 1", "true", "false"])
        if depth > 1:
            other = self.uncertain(depth - 1)
        return self.dice.choice([
            term, f"({term} AND {other})", f"({term} OR {other})", f"NOT ({term})",
            f"NOT ({term} AND {other})", f"NOT ({term} OR {other})", f"({term}) IS NULL",
            f"({term}) IS NOT NULL", f"({term}) <=> ({other})", f"({term}) = ({other})",
            f"({term}) IS DISTINCT FROM ({other})", f"coalesce({term}, {other})",
            f"CASE WHEN {term} THEN {other} ELSE a.z END", f"if(NOT ({term}), a.z, {other})",
            f"nvl2({term}, {other}, a.z)", f"nullif({term}, {other}) IS NULL",
            f"CASE WHEN a.z THEN {term} ELSE {other} END", f"({term}) IS NOT TRUE",
        ])  # fmt: skip

    # --- parts ---------------------------------------------------------------------------------

    def ordered(self, text: str, items: Sequence[str]) -> Query:
        """The query with or without ORDER BY; LIMIT only where it keeps the same rows."""
        sortable = [i for i, item in enumerate(items) if not _nested(item)]
        draw = self.dice.random()
        if draw < 0.35 or not sortable:
            return Query(text)
        some = self.dice.sample(sortable, self.dice.randint(1, len(sortable)))
        terms = [
            f"{i + 1}{self.dice.choice(['', ' DESC', ' NULLS LAST', ' DESC NULLS FIRST'])}"
            for i in some
        ]
        if draw < 0.6 or len(sortable) < len(items):
            return Query(f"{text} ORDER BY {', '.join(terms)}", tuple(some))
        terms += [str(i + 1) for i in sortable if i not in some]
        limit = self.dice.choice(["", " LIMIT 7", " LIMIT 5 OFFSET 3"])
        return Query(f"{text} ORDER BY {', '.join(terms)}{limit}", tuple(sortable))

    def where(self) -> str:
        draw = self.dice.random()
        if draw < 0.4:
            return ""
        return f" WHERE {self.condition(2 if draw > 0.8 else 1)}"

    def items(self, count: int) -> list[str]:
        return [f"{self.value()}{self.alias(i)}" for i in range(count)]

    def alias(self, number: int) -> str:
        return f" AS r{number}" if self.dice.random() < 0.7 else ""

    def value(self) -> str:
        kind = self.dice.choice(["int", "number", "text", "condition", "date", "column", "column"])
        match kind:
            case "column":
                return self.dice.choice(_PLAIN)
            case "condition":
                return self.condition(1)
            case _:
                return self.of_kind(kind)

    def of_kind(self, kind: str) -> str:
        a, b = (self.dice.choice(_COLUMNS[kind]) for _ in range(2))
        n = self.dice.randint(0, 4)
        forms = {
            "int": [f"{a} + {n}", f"{a} - {b}", f"{a} * {b}", f"{a} % 3", f"{a} DIV 2", f"-{a}",
                    f"coalesce({a}, {n})", f"greatest({a}, {b})",
                    f"CASE WHEN z THEN {a} ELSE {b} END",
                    f"nullif({a}, {n})", f"abs({a})", f"CAST({a} AS string)",
                    f"if({a} > 1, {b}, {n})",
                    f"{a} / {n}", f"{a} & 3", f"CAST({a} AS decimal(15,2))", f"{a} / {b}"],
            "number": [f"{a} + {n}", "d * 2", "d + i", "d - h", "round(d, 1)", "x * 2", "x + d",
                       "floor(d)", "ceil(x)", "CAST(d AS int)", "CAST(x AS float)",
                       "CAST(d AS double)",
                       f"least({a}, {b})", f"nvl({a}, 0)", "isnan(x)", "sqrt(x)", "CAST(x AS int)"],
            "text": [f"upper({a})", f"length({a})", f"{a} || '-'", f"concat({a}, {b})",
                     f"substring({a}, {n}, 2)", f"trim({a})", f"replace({a}, 'a', '--')",
                     f"left({a}, {n})", f"rpad({a}, 5, '.')", f"locate('b', {a})",
                     f"nvl({a}, 'none')",
                     f"CASE {a} WHEN 'ab' THEN 'one' ELSE {b} END", f"contains({a}, 'b')",
                     f"CAST({a} AS int)", f"{a} RLIKE '^[ab]+$'",
                     f"regexp_replace({a}, '[a-c](.)', '$1-')", f"regexp_extract({a}, '(.)b', 1)"],
            "date": [f"year({a})", f"month({a})", f"date_add({a}, {n})", f"datediff({a}, {b})",
                     f"last_day({a})", f"date_trunc('month', {a})", f"dayofweek({a})", f"hour({a})",
                     f"CAST({a} AS string)", f"CAST({a} AS date)", f"add_months({a}, {n})",
                     f"date_format({a}, 'yyyy-MM-dd HH:mm')"],
        }[kind]  # fmt: skip
        return self.dice.choice(forms)

    def condition(self, depth: int) -> str:
        if depth > 1:
            word = self.dice.choice(["AND", "OR"])
            return f"({self.condition(1)} {word} {self.condition(1)})"
        column = self.dice.choice([*_COMPARABLE])
        other = self.dice.choice(_COMPARABLE[column])
        sign = self.dice.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
        low, high = self.dice.choice([(0, 3), (-5, 1)])
        return self.dice.choice([
            f"{column} {sign} {other}", f"{column} {sign} {other}", f"{column} IS NULL",
            f"{column} IS NOT NULL", "z", "NOT z", f"i BETWEEN {low} AND {high}",
            "i IN (1, 3, NULL)",
            "s LIKE 'a%'", "s IN ('ab', 'b c')", "i NOT IN (1, 2)",
            f"NOT ({column} {sign} {other})",
        ])  # fmt: skip

    def sum(self) -> str:
        return self.dice.choice([
            "count(*)", "count(s)", "count(DISTINCT i)", "sum(i)", "sum(h)", "sum(d)", "sum(l)",
            "avg(i)", "avg(l)", "min(s)", "max(e)", "min(x)", "max(x)", "max(d)", "bool_and(z)",
            "count_if(i > 1)", "min(c)", "sum(i) FILTER (WHERE z)", "count(DISTINCT s)", "max(m)",
            "sum(i) + count(*)", "max(i) - min(i)", "bool_or(z)", "sum(i + 1)",
            "sum(CASE WHEN z THEN 1 ELSE 0 END)", "avg(d)", "min(w)", "max(k)", "max(f)", "sum(y)",
            "count(ai)", "count(st)", "min(y)",
        ])  # fmt: skip
