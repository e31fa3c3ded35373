"""Random SELECTs over two small tables, by a grammar: expressions of every kind of value, nested in
each other, in rows that joins, subqueries, groups, windows and set operations make."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from tests.engine.local import generated
from tests.engine.local.generated import Query

SCHEMA = f"{generated.SCHEMA}, ts array<string>"


def table(seed: int, rows: int, first_id: int = 0) -> pa.Table:
    """The rows of `generated.table`, with a column of arrays of texts."""
    dice = random.Random(seed)
    texts = [dice.choice([None, [], ["a", None], ["b", "ab"]]) for _ in range(rows)]
    made = generated.table(seed, rows, first_id)
    return made.append_column("ts", pa.array(texts, pa.list_(pa.string())))


@dataclass(frozen=True)
class Named:
    """A column that an expression may read, as it is written there."""

    text: str
    kind: str
    unique: bool = False
    """Whether no two rows of its source have one value, by which windows are sorted then."""


Scope = Sequence[Named]
_KINDS = (
    "whole",
    "exact",
    "real",
    "text",
    "flag",
    "day",
    "time",
    "bytes",
    "wholes",
    "texts",
    "map",
    "struct",
)
COLUMNS = {
    **dict.fromkeys(("id", "i", "l", "h", "y"), "whole"),
    **dict.fromkeys(("d", "k"), "exact"),
    **dict.fromkeys(("x", "f", "n"), "real"),
    **dict.fromkeys(("s", "c", "v"), "text"),
    **{"z": "flag", "e": "day", "m": "time", "w": "bytes"},
    **{"ai": "wholes", "ts": "texts", "ms": "map", "st": "struct"},
}  # fmt: skip
"""The kind of value of each column that the grammar reads."""

_STORED = {"i": "int", "l": "bigint", "d": "decimal(10,2)", "k": "decimal(38,10)", "x": "double",
           "s": "string", "z": "boolean", "e": "date", "m": "timestamp"}  # fmt: skip
_ASSIGNED = {name: COLUMNS[name] for name in _STORED}
"""What a change assigns: values are cast, as a column of a statement takes no others."""
_FORMS: dict[str, str] = {
    "whole": """
        {whole} + {small} | {whole} - {small} | {whole} * {small} | {whole} % 7 | abs({whole})
        -{whole} | {whole} DIV nullif({whole}, 0) | coalesce({whole}, {small})
        greatest({whole}, {whole}) | {whole} & 3 | CASE WHEN {flag} THEN {whole} ELSE {whole} END
        nullif({whole}, {whole}) | if({flag}, {whole}, {small}) | length({text}) | year({day})
        month({time}) | dayofweek({day}) | datediff({day}, {day}) | CAST({flag} AS int)
        CAST({exact} AS bigint) | size({wholes}) | get({wholes}, 0) | {struct}.a
        try_element_at({map}, 'a') | aggregate({wholes}, 0L, (x, y) -> x + coalesce(y, 1))
        locate('b', {text}) | EXTRACT(day FROM {time}) | pmod({whole}, 5) | unix_date({day})
        hash({whole}, {text}) | cardinality({map}) | array_position({wholes}, 1) | hour({time})
        try_add({whole}, {whole}) | ascii({text}) | {scalar_whole}
        nvl2({flag}, {whole}, {small}) | CASE {small} WHEN 1 THEN {whole} END | weekofyear({day})
        quarter({time}) | array_max({wholes}) | array_min({wholes}) | crc32({bytes})
        bit_count({whole}) | shiftleft({small}, 3)
        least({whole}, {small}, {whole}) | nvl({whole}, 0)""",
    "exact": """
        {exact} + {exact} | {exact} - {exact} | {exact} * {small} | {exact} * {exact} | -{exact}
        abs({exact}) | {exact} / nullif({exact}, 0) | round({exact}, 1)
        CAST({whole} AS decimal(20,3)) | CAST({small} AS decimal(38,30))
        coalesce({exact}, {exact}) | greatest({exact}, {exact})
        CASE WHEN {flag} THEN {exact} ELSE {exact} END | {exact} % 3 | {exact} + {whole}
        bround({exact}, 0) | nullif({exact}, {exact}) | 12345678901234567890123456789012.123456
        CAST({exact} AS decimal(38,12)) | {exact} / 3 | if({flag}, {exact}, {small})
        0.00000000000000000001 | least({exact}, {whole}) | floor({exact}) | ceil({exact})""",
    "real": """
        {real} + {real} | {real} * 2 | {real} / 2 | CAST({whole} AS double)
        CAST({exact} AS double) | -{real} | coalesce({real}, {real}) | greatest({real}, {real})
        least({real}, {real}) | nanvl({real}, 1.5D) | abs({real})
        CASE WHEN {flag} THEN {real} ELSE {real} END | sqrt(abs({real}))
        {whole} / nullif({whole}, 0) | float({whole}) | {real} - {whole} | nullif({real}, {real})
        {real} + {exact} | -0.0D | double('NaN') | round({real}, 2) | CAST({real} AS float)""",
    "text": """
        upper({text}) | lower({text}) | concat({text}, {text}) | {text} || '-'
        substring({text}, {small}, 2) | trim({text}) | replace({text}, 'a', '--')
        left({text}, 2) | rpad({text}, 5, '.') | coalesce({text}, {text})
        CASE WHEN {flag} THEN {text} ELSE {text} END | CAST({whole} AS string)
        CAST({day} AS string) | reverse({text}) | CAST({exact} AS string) | CAST({time} AS string)
        CAST({flag} AS string) | repeat({text}, 2) | initcap({text})
        date_format({time}, 'yyyy-MM-dd HH:mm') | array_join({texts}, ',') | hex({bytes})
        get({texts}, 0) | {struct}.b | split_part({text}, 'b', 1)
        regexp_replace({text}, '[a-c](.)', '$1-') | concat_ws('/', {text}, {text})
        nullif({text}, {text}) | translate({text}, 'ab', 'x') | md5({bytes})
        lpad({text}, 3, 'yz') | greatest({text}, {text}) | decode({small}, 1, {text}, {text})
        overlay({text}, 'q', 2) | {scalar_text} | to_json({struct})
        regexp_extract({text}, '(.)b', 1) | try_element_at({texts}, -1)""",
    "flag": """
        {whole} {sign} {whole} | {exact} {sign} {exact} | {exact} {sign} {whole}
        {real} {sign} {real} | {text} {sign} {text} | {day} {sign} {day} | {time} {sign} {day}
        {time} {sign} {time} | {flag} AND {flag} | ({flag} OR {flag}) | NOT ({flag})
        {some} IS NULL | {some} IS NOT NULL | {whole} BETWEEN {small} AND {whole}
        {whole} IN ({whole}, {small}, NULL) | {text} IN ({text}, 'ab') | {text} LIKE 'a%'
        {text} RLIKE '^[ab]+$' | contains({text}, 'b') | exists({wholes}, x -> x > 0)
        array_contains({wholes}, 1) | isnan({real}) | ({flag}) IS NOT TRUE | ({flag}) <=> ({flag})
        forall({wholes}, x -> x <> 2) | {exists} | {in} | NOT {in} | {whole} NOT IN ({small}, 2)
        {bytes} {sign} {bytes} | startswith({text}, 'a') | CAST({whole} AS boolean)
        coalesce({flag}, {flag}) | if({flag}, {flag}, {flag}) | arrays_overlap({wholes}, {wholes})
        {whole} IS DISTINCT FROM {whole} | {time} BETWEEN {day} AND {time}
        {exact} IN ({exact}, {whole})""",
    "day": """
        date_add({day}, {small}) | {day} + INTERVAL 1 MONTH | {day} - INTERVAL '3' DAY
        last_day({day}) | trunc({day}, 'month') | add_months({day}, {small})
        CAST({time} AS date) | coalesce({day}, {day}) | CASE WHEN {flag} THEN {day} ELSE {day} END
        make_date(2020, 1 + pmod({small}, 12), 1) | next_day({day}, 'MON')
        greatest({day}, {day}) | date_sub({day}, 1) | nullif({day}, {day}) | {scalar_day}
        {day} - INTERVAL '1-2' YEAR TO MONTH | DATE'2024-02-29' | date_from_unix_date({small})""",
    "time": """
        {time} + INTERVAL 90 MINUTES | date_trunc('hour', {time}) | CAST({day} AS timestamp)
        coalesce({time}, {day}) | timestampadd(HOUR, {small}, {time})
        CASE WHEN {flag} THEN {time} ELSE {time} END | least({time}, {time})
        {time} - INTERVAL '1 02:03:04' DAY TO SECOND | date_trunc('week', {time})
        TIMESTAMP'2020-02-29 12:00:00.5' | nullif({time}, {time}) | timestamp_seconds({small})
        {time} + INTERVAL 2 YEARS""",
    "bytes": """
        coalesce({bytes}, {bytes}) | {bytes} || {bytes} | X'00FF' | substring({bytes}, 1, 1)
        CASE WHEN {flag} THEN {bytes} ELSE {bytes} END | unhex(hex({text}))
        encode({text}, 'UTF-8')""",
    "wholes": """
        array({whole}, {small}) | transform({wholes}, x -> x + 1)
        filter({wholes}, x -> x IS NOT NULL) | array_sort({wholes}) | array_distinct({wholes})
        slice({wholes}, 1, 2) | coalesce({wholes}, {wholes}) | concat({wholes}, {wholes})
        sequence(1, 1 + pmod({small}, 4)) | array_union({wholes}, {wholes}) | reverse({wholes})
        map_values({map})
        zip_with({wholes}, {wholes}, (x, y) -> coalesce(x, 0) + coalesce(y, 0))
        array({small}, NULL) | transform({wholes}, (x, i) -> coalesce(x, i))
        CASE WHEN {flag} THEN {wholes} ELSE {wholes} END | array_except({wholes}, {wholes})
        array_intersect({wholes}, {wholes}) | array_remove({wholes}, {small})
        flatten(array({wholes}, {wholes})) | array_repeat({small}, 2) | array_compact({wholes})
        sort_array({wholes}, false)""",
    "texts": """
        split({text}, 'b') | array({text}, 'x') | transform({texts}, x -> upper(x))
        map_keys({map}) | sort_array({texts}) | array_distinct({texts})
        filter({texts}, x -> x > 'a') | coalesce({texts}, {texts})
        transform({texts}, x -> concat(x, {text})) | array_append({texts}, {text})""",
    "map": """
        map('a', {whole}, 'b', {small}) | transform_values({map}, (k, v) -> v + 1)
        coalesce({map}, {map}) | map_filter({map}, (k, v) -> v > 0)
        map_from_arrays(array('a', 'c'), array({small}, {small}))""",
    "struct": """
        named_struct('a', {whole}, 'b', {text})
        CASE WHEN {flag} THEN {struct} ELSE {struct} END""",
}  # fmt: skip
_AGGREGATES: dict[str, str] = {
    "whole": """
        count(*) | count({some}) | count(DISTINCT {whole}) | sum({whole}) | min({whole})
        max({whole}) | count_if({flag}) | sum({whole}) FILTER (WHERE {flag})
        count(DISTINCT {text}, {whole}) | bit_xor({whole}) | max({whole}) - min({whole})
        sum(CASE WHEN {flag} THEN 1 ELSE 0 END) | sum({whole}) + count(*)""",
    "exact": "sum({exact}) | avg({exact}) | min({exact}) | max({exact}) | sum({exact}) / count(*)",
    "real": """
        min({real}) | max({real}) | CAST(avg({small}) AS float)
        max({real}) FILTER (WHERE {flag})""",
    "text": "min({text}) | max({text}) | array_join(array_sort(collect_set({text})), ',')",
    "flag": "bool_and({flag}) | bool_or({flag}) | max({flag}) | count(*) > 2 | some({flag})",
    "day": "min({day}) | max({day})",
    "time": "min({time}) | max({time})",
    "bytes": "min({bytes}) | max({bytes})",
    "wholes": "array_sort(collect_list({whole})) | array_sort(collect_set({whole}))",
}  # fmt: skip
_RANKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*_KINDS,), ()),
    "whole": (
        "rank()",
        "dense_rank()",
        "count(*)",
        "sum({whole})",
        "count({some})",
        "min({whole})",
    ),
    "real": ("percent_rank()", "cume_dist()", "max({real})"),
    "exact": ("sum({exact})", "avg({exact})", "min({exact})"),
    **{
        kind: (f"max({{{kind}}})", f"min({{{kind}}})")
        for kind in ("text", "day", "time", "bytes", "flag")
    },
}
"""Window functions with one value for rows that the order does not tell apart."""
_PLACES: dict[str, tuple[str, ...]] = {
    kind: (f"lag({{{kind}}})", f"lead({{{kind}}}, 2)", f"first_value({{{kind}}})",
           f"last_value({{{kind}}})", f"first_value({{{kind}}}) IGNORE NULLS")
    for kind in _KINDS
}  # fmt: skip
_PLACES["whole"] += ("row_number()", "ntile(3)", "ntile(100)", "lag({whole}, 1, 0)")
_FRAMES = (
    *("", "", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"),
    " ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
)  # fmt: skip
_GROUPS = ("{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())")
_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
_LITERALS: dict[str, tuple[str, ...]] = {
    "whole": ("0", "1", "3", "-2", "7L"),
    "exact": ("1.25", "0.0", "-3.5", "100"),
    "real": ("1.5D", "0.0D", "-2.5D"),
    "text": ("'ab'", "''", "'b c'", "'12'"),
    "flag": ("true", "false"),
    "day": ("DATE'2020-02-29'", "DATE'1970-01-01'"),
    "time": ("TIMESTAMP'2020-02-29 12:34:56.789'", "TIMESTAMP'1969-12-31 23:59:59'"),
    "bytes": ("X'61'", "X''"),
    "wholes": ("array(1, 2)", "array(NULL, 3)"),
    "texts": ("array('a', 'b')",),
    "map": ("map('a', 1)",),
    "struct": ("named_struct('a', 1, 'b', 'x')",),
}
_LITERALS_OF_ORDER = frozenset(literal for several in _LITERALS.values() for literal in several)
"""No terms of ORDER BY, where a number is a place."""
_SIGNS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_SORTABLE, _PARTS, _ANY = _KINDS[:8], (*_KINDS[:9], "struct"), _KINDS
_HOLE = re.compile(r"\{(\w+)\}")


def _forms(text: str) -> list[str]:
    lines = text.strip().splitlines()
    return [form.strip() for line in lines for form in line.split(" | ")]


FORMS = {kind: _forms(text) for kind, text in _FORMS.items()}
AGGREGATES = {kind: _forms(text) for kind, text in _AGGREGATES.items()}


class Generator:
    """Makes the same queries for the same seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self._names = count()
        self._tables: list[tuple[str, list[tuple[str, str]]]] = []
        """The common table expressions that a FROM may name, with their columns."""

    def query(self) -> Query:
        """A SELECT with names for all columns, or without for some of them."""
        self._names, self._tables, head = count(), [], ""
        if self.dice.random() < 0.2:
            text, columns = self.select(2, ())
            self._tables = [("w", columns)]
            head = f"WITH w AS ({text}) "
        text, columns = self.rows(3, ())
        return self._ordered(head + text, [kind for _, kind in columns])

    def change(self) -> str:
        """An UPDATE, a MERGE or a CHECK of `both.t`, whose rows are those of `a`."""
        self._names, self._tables = count(), []
        own = [Named(f"a.{name}", kind, name == "id") for name, kind in COLUMNS.items()]
        draw = self.dice.random()
        if draw < 0.2:
            bare = [Named(name, kind) for name, kind in COLUMNS.items()]
            return f"ALTER TABLE both.t ADD CONSTRAINT q CHECK ({self.value('flag', bare, 2)})"
        if draw < 0.6:
            where = self.value("flag", own, 2, 1)
            return f"UPDATE both.t AS a SET {self._assignments(own)} WHERE {where}"
        others = [Named(f"b.{name}", kind) for name, kind in COLUMNS.items()]
        sides = [*own, *others]
        first, second = (self.value("flag", sides, 1) for _ in range(2))
        inserted = [f"CAST({self.value(kind, others, 2)} AS {_STORED[name]})"
                    for name, kind in _ASSIGNED.items()]  # fmt: skip
        return (
            f"MERGE INTO both.t AS a USING both.u AS b ON a.id = b.id + {self._small(())}"
            f" WHEN MATCHED AND {first} THEN UPDATE SET {self._assignments(sides)}"
            f" WHEN MATCHED AND {second} THEN DELETE WHEN NOT MATCHED THEN INSERT"
            f" (id, {', '.join(_ASSIGNED)}) VALUES (b.id + 1000, {', '.join(inserted)})"
        )

    def _assignments(self, scope: Scope) -> str:
        names = self.dice.sample([*_ASSIGNED], self.dice.randint(1, 3))
        return ", ".join(
            f"{name} = CAST({self.value(_ASSIGNED[name], scope, 2)} AS {_STORED[name]})"
            for name in names
        )

    # --- expressions ---------------------------------------------------------------------------

    def value(self, kind: str, scope: Scope, depth: int, beside: int = 0) -> str:
        """An expression of the kind; `beside`: how deep subqueries in it may be."""
        own = [name.text for name in scope if name.kind == kind]
        if depth <= 0 or self.dice.random() < 0.25:
            few = not own or self.dice.random() < 0.15
            return self.dice.choice(_LITERALS[kind] if few else own)
        return self._filled(self.dice.choice(FORMS[kind]), kind, scope, depth - 1, beside)

    def _filled(self, form: str, kind: str, scope: Scope, depth: int, beside: int = 0) -> str:
        if not beside and any(hole in form for hole in ("{exists}", "{in}", "{scalar_")):
            return self.value(kind, scope, depth, beside)

        def part(hole: re.Match[str]) -> str:
            name = hole[1]
            if name == "sign":
                return self.dice.choice(_SIGNS)
            if name == "small":
                return self._small(scope)
            if name == "some":
                name = self.dice.choice(_ANY)
            if name == "exists":
                return f"EXISTS ({self.select(beside - 1, scope)[0]})"
            if name == "in":
                kind = self.dice.choice(("whole", "text", "day", "exact"))
                inner, _ = self.select(beside - 1, scope, [kind])
                return f"{self.value(kind, scope, 1)} IN ({inner})"
            if name.startswith("scalar_"):
                return self._scalar(name.removeprefix("scalar_"), scope, beside - 1)
            inner = self.value(name, scope, depth, beside)
            simple = re.fullmatch(r"[\w.]+|[a-z_]+\([^()]*\)|'[^']*'", inner)
            return inner if simple else f"({inner})"

        return _HOLE.sub(part, form)

    def _small(self, scope: Scope) -> str:
        own = [name.text for name in scope if name.text.endswith((".h", ".y", ".i"))]
        return self.dice.choice([*(own or ["2"]), "0", "1", "2", "3"])

    def _scalar(self, kind: str, scope: Scope, depth: int) -> str:
        """A subquery of one row, an aggregate."""
        source, own = self.source(max(0, depth))
        made = self._aggregate(kind, own)
        return f"(SELECT {made} FROM {source}{self._where(own, scope, 0)})"

    def _aggregate(self, kind: str, scope: Scope) -> str:
        return self._filled(self.dice.choice(AGGREGATES[kind]), kind, scope, 1)

    # --- rows ----------------------------------------------------------------------------------

    def rows(
        self, depth: int, outer: Scope, wanted: Sequence[str] | None = None
    ) -> tuple[str, list[tuple[str, str]]]:
        """A SELECT or a set operation, and the names and kinds of its columns."""
        if depth <= 1 or self.dice.random() < 0.75:
            return self.select(depth, outer, wanted)
        kinds = wanted or self.dice.choices(_SORTABLE, k=self.dice.randint(1, 3))
        word = self.dice.choice(
            ("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
        )
        left, columns = self.select(depth - 1, outer, kinds)
        right, _ = self.select(depth - 1, outer, kinds)
        return f"{left} {word} {right}", columns

    def select(
        self, depth: int, outer: Scope, wanted: Sequence[str] | None = None
    ) -> tuple[str, list[tuple[str, str]]]:
        source, own = self.source(depth)
        some = [name.kind for name in own] if self.dice.random() < 0.5 else _ANY
        kinds = wanted or self.dice.choices(some, k=self.dice.randint(1, 4))
        where = self._where(own, outer, depth)
        shape = self.dice.random()
        if shape < 0.35 and all(kind in AGGREGATES for kind in kinds):
            return self._grouped(source, own, kinds, where)
        scope = (*own, *(outer if self.dice.random() < 0.2 else ()))
        items = [self.value(kind, scope, 2, depth - 1) for kind in kinds]
        if shape > 0.8 and not outer:
            items = [
                self._window(kind, own) or item for kind, item in zip(kinds, items, strict=True)
            ]
        listed_kinds = [place for place, kind in enumerate(kinds) if kind in ("whole", "text")]
        if 0.72 < shape < 0.8 and not outer and listed_kinds:
            place = self.dice.choice(listed_kinds)
            array = self.value(f"{kinds[place]}s", own, 2)
            items[place] = f"{self.dice.choice(('explode', 'explode_outer'))}({array})"
        plain = all(kind in _SORTABLE for kind in kinds)
        distinct = "DISTINCT " if plain and self.dice.random() < 0.15 else ""
        names = [f"c{next(self._names)}" for _ in kinds]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        if self.dice.random() < 0.2 and depth == 3:
            listed = ", ".join(items)
        return f"SELECT {distinct}{listed} FROM {source}{where}", [*zip(names, kinds, strict=True)]

    def _grouped(
        self, source: str, scope: Scope, kinds: Sequence[str], where: str
    ) -> tuple[str, list[tuple[str, str]]]:
        """Each column is a key or an aggregate."""
        keys, items = list[str](), list[str]()
        for kind in kinds:
            key = self.value(kind, scope, self.dice.choice((0, 0, 0, 1)))
            taken = kind in _SORTABLE and any(name.text in key for name in scope)
            if taken and (kind not in AGGREGATES or self.dice.random() < 0.5):
                keys.append(key)
                items.append(key)
            else:
                items.append(self._aggregate(kind if kind in AGGREGATES else "whole", scope))
        made = [kind if kind in AGGREGATES or item in keys else "whole"
                for kind, item in zip(kinds, items, strict=True)]  # fmt: skip
        names = [f"c{next(self._names)}" for _ in kinds]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        text = f"SELECT {listed} FROM {source}{where}"
        if keys:
            way = self.dice.choice(_GROUPS)
            text += f" GROUP BY {way.format(', '.join(dict.fromkeys(keys)))}"
        if self.dice.random() < 0.25:
            text += f" HAVING {self._aggregate('flag', scope)}"
        return text, [*zip(names, made, strict=True)]

    def _window(self, kind: str, scope: Scope) -> str:
        """A window function of the kind; empty if there is none. Rows that its order does not tell
        apart have one value."""
        unique = next((name.text for name in scope if name.unique), "")
        first = self.value(self.dice.choice(_SORTABLE), scope, 0)
        way = self.dice.choice(("", " DESC", " NULLS LAST", " DESC NULLS FIRST"))
        places = unique and self.dice.random() < 0.5
        chosen = [form for form in (_PLACES if places else _RANKS)[kind]]
        if not chosen or first in _LITERALS_OF_ORDER:
            return ""
        function = self._filled(self.dice.choice(chosen), kind, scope, 0)
        by = f"{first}{way}, {unique}" if places else f"{first}{way}"
        parted = ""
        if self.dice.random() < 0.6:
            parted = f"PARTITION BY {self.value(self.dice.choice(_PARTS), scope, 0)} "
        frame = self.dice.choice(_FRAMES) if places and "_value" in function else ""
        return f"{function} OVER ({parted}ORDER BY {by}{frame})"

    def _where(self, own: Scope, outer: Scope, depth: int) -> str:
        """A condition; it ties the rows to those of the query around."""
        terms = []
        if outer and self.dice.random() < 0.8:
            pairs = [(a, b) for a in own for b in outer if a.kind == b.kind and a.kind in _SORTABLE]
            if pairs:
                a, b = self.dice.choice(pairs)
                terms.append(f"{a.text} = {b.text}")
        if self.dice.random() < 0.5:
            terms.append(self.value("flag", own, 2, depth - 1))
        return f" WHERE {' AND '.join(terms)}" if terms else ""

    def source(self, depth: int) -> tuple[str, list[Named]]:
        """What follows FROM, and the columns that it has."""
        text, own = self._table(depth)
        if depth > 0 and self.dice.random() < 0.35:
            return self._joined(text, own, depth)
        return text, own

    def _table(self, depth: int) -> tuple[str, list[Named]]:
        alias, draw = f"q{next(self._names)}", self.dice.random()
        if draw < 0.3 and depth > 1:
            text, columns = self.rows(depth - 1, ())
            return f"({text}) {alias}", [Named(f"{alias}.{name}", kind) for name, kind in columns]
        if 0.3 <= draw < 0.5 and self._tables:
            name, columns = self.dice.choice(self._tables)
            return f"{name} {alias}", [Named(f"{alias}.{name}", kind) for name, kind in columns]
        if 0.5 <= draw < 0.55:
            values = "(1, 'a', 1.5), (2, NULL, 2.25), (NULL, 'ab', 0.0)"
            kinds = zip("abc", ("whole", "text", "exact"), strict=True)
            own = [Named(f"{alias}.{name}", kind) for name, kind in kinds]
            return f"(VALUES {values}) AS {alias}(a, b, c)", own
        table = self.dice.choice(("both.t", "both.t", "both.u"))
        return f"{table} {alias}", [Named(f"{alias}.{name}", kind, name == "id")
                                    for name, kind in COLUMNS.items()]  # fmt: skip

    def _joined(self, left: str, own: list[Named], depth: int) -> tuple[str, list[Named]]:
        right, others = self._table(depth - 1)
        word = self.dice.choice(_JOINS)
        pairs = [(a, b) for a in own for b in others if a.kind == b.kind and a.kind in _SORTABLE]
        on = self.dice.choice([f"{a.text} = {b.text}" for a, b in pairs] or ["true"])
        both = [Named(each.text, each.kind) for each in (*own, *others)]
        if self.dice.random() < 0.4:
            on += f" AND {self.value('flag', both, 1)}"
        text = f"{left} {word} {right} ON {on}"
        return text, both[: len(own)] if word in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else both

    def _ordered(self, text: str, kinds: Sequence[str]) -> Query:
        """The query with or without ORDER BY; LIMIT only where it keeps the same rows."""
        sortable = [place for place, kind in enumerate(kinds) if kind in _SORTABLE]
        draw = self.dice.random()
        if draw < 0.5 or not sortable:
            return Query(text)
        some = self.dice.sample(sortable, self.dice.randint(1, len(sortable)))
        ways = ("", " DESC", " NULLS LAST", " DESC NULLS FIRST")
        terms = [f"{place + 1}{self.dice.choice(ways)}" for place in some]
        if draw < 0.7 or len(sortable) < len(kinds):
            return Query(f"{text} ORDER BY {', '.join(terms)}", tuple(some))
        terms += [str(place + 1) for place in sortable if place not in some]
        limit = self.dice.choice(("", " LIMIT 7", " LIMIT 5 OFFSET 3"))
        return Query(f"{text} ORDER BY {', '.join(terms)}{limit}", tuple(sortable))
