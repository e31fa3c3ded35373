"""One grammar for every face: a text means the same wherever it is given, in both engines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform import (
    AcidError,
    InvalidExpression,
    NeedsSpark,
    SparkMisconfigured,
    Table,
    UnsupportedStatement,
    Warehouse,
)
from acid_platform.engine.spark import minor_of
from acid_platform.layout.sql_text import for_spark, quoted, sql_string
from tests.conftest import temporary_warehouse
from tests.layout.test_sql_text import LITERALS

ROWS = {1: "it's", 2: "its", 3: "ab", 4: "a\\b", 5: "${x}", 6: "A\n", 7: None, 8: "", 9: "ß"}
CONDITIONS: dict[str, set[int] | type[AcidError]] = {
    "v = 'it''s'": {1},
    "v = 'a' 'b'": {3},
    'v = "it\'s"': {1},
    r"v = r'a\b'": {4},
    r"v = 'a\\b'": {4},
    "v = '${x}'": {5},
    r"v = '\u0041\n'": {6},
    "v = '\\101\\n' -- a comment": {6},
    "v = /* one /* in another */ */ 'ab'": {3},
    "v <=> NULL": {7},
    "NOT v <=> NULL AND ! (id = 1)": {2, 3, 4, 5, 6, 8, 9},
    "v == 'its' OR id != id": {2},
    "id | 2 & 4 = id AND id <= 3": {1, 2, 3},
    "id = 1 = true": {1},
    "id BETWEEN 2 AND 1 + 2": {2, 3},
    "id % 4 = 0 AND id DIV 2 = 2": {4},
    "v IN ('ab', 'its')": {2, 3},
    "id = 1L OR id = 2S": {1, 2},
    "id > 8.5BD": {9},
    "id >= 9e0": {9},
    "length(v) = 0": {8},
    "\u00a0id\u2003= 1": {1},
    "NULL": set(),
    "true": set(ROWS),
    "NULL OR id = 1": {1},
    "coalesce(NULL, NULL)": set(),
    "1": InvalidExpression,
    "'x'": InvalidExpression,
    "id": InvalidExpression,
    "id = ${x}": InvalidExpression,
    "id = 1 -- \n) OR (id = 2": InvalidExpression,
    "id = 'a": InvalidExpression,
    "id = 1 /* a": InvalidExpression,
    "id ISNULL": InvalidExpression,
    "id ?? 1 = 1": InvalidExpression,
    "id = 1 {# or true #}": InvalidExpression,
    "id IS NULL = false": InvalidExpression,
}
MOST_IMPORTANT = (
    "v = 'it''s'",
    "v = '${x}'",
    "NULL",
    "1",
    "id = 1 -- \n) OR (id = 2",
    "id | 2 & 4 = id AND id <= 3",
)


def table_of_texts(warehouse: Warehouse) -> Table:
    table = warehouse.create_table("d.t", "id int, v string, w int")
    table.insert([{"id": id, "v": text, "w": 0} for id, text in ROWS.items()])
    return table


def faces(warehouse: Warehouse, table: Table) -> dict[str, Callable[[str], set[int]]]:
    """Ways to give a condition, each with the rows for which it is true."""

    def ids(where: str | None) -> set[int]:
        return set(table.to_arrow(["id"], where).column("id").to_pylist())

    def changed(change: Callable[[], object]) -> set[int]:
        change()
        with warehouse.using("local"):
            rows = ids("w = 1")
            table.update({"w": "0"}, "w = 1")
        return rows

    def deleted(condition: str) -> set[int]:
        with warehouse.transaction() as transaction:
            own = transaction.table("d.t")
            own.delete(condition)
            left = set(own.to_arrow(["id"]).column("id").to_pylist())
            transaction.abort()
        return set(ROWS) - left

    def counted(condition: str) -> set[int]:
        found = ids(condition)
        assert table.count(condition) == len(found)
        return found

    def selected(condition: str) -> set[int]:
        found = warehouse.sql(f"SELECT id FROM d.t WHERE {condition}\n").to_arrow()
        return set(found.column("id").to_pylist())

    source = [{"w": 5}]
    return {
        "sql": selected,
        "to_arrow and count": counted,
        "update": lambda text: changed(lambda: table.update({"w": "1"}, text)),
        "assignment": lambda text: changed(
            lambda: table.update({"w": f"CASE WHEN {text}\n THEN 1 ELSE 0 END"})
        ),
        "SQL's update": lambda text: changed(
            lambda: warehouse.sql(f"UPDATE d.t SET w = 1 WHERE {text}\n")
        ),
        "merge": lambda text: changed(lambda: table.merge(source, text, {"w": "1"}, None, None)),
        "delete": deleted,
    }


READING = ("sql", "to_arrow and count")
OF_NO_TYPE = ("NULL", "coalesce(NULL, NULL)")
ONLY_BOOLEANS = ("sql", "assignment", "merge")
"""Faces whose condition is in a clause of SQL or in CASE: Spark refuses there what has no type."""


def wrong(
    warehouse: Warehouse, conditions: Iterable[str], reading_only: Iterable[str] = ()
) -> list[str]:
    table = table_of_texts(warehouse)
    every = faces(warehouse, table)
    found = []
    for condition, names in (
        *((condition, tuple(every)) for condition in conditions),
        *((condition, READING) for condition in reading_only),
    ):
        for name in names:
            refused = condition in OF_NO_TYPE and name in ONLY_BOOLEANS
            meant = InvalidExpression if refused else CONDITIONS[condition]
            face = every[name]
            try:
                rows: object = face(condition)
            except (NeedsSpark, UnsupportedStatement):
                continue  # refused by name
            except AcidError as error:
                rows = type(error)
            if rows != meant:
                found.append(f"{name}({condition!r}): {rows}, not {meant}")
    return found


IN_SPARK = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Warehouse]:
    """Its engine is the parameter."""
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    with temporary_warehouse(tmp_path, spark, engine=request.param) as opened:
        yield opened


@pytest.fixture
def substituting(spark: SparkSession) -> Iterator[None]:
    """The session replaces variables in texts."""
    spark.conf.set("spark.sql.variable.substitute", "true")
    yield
    spark.conf.set("spark.sql.variable.substitute", "false")


@pytest.mark.parametrize(
    ("warehouse", "conditions", "reading_only"),
    [
        pytest.param("local", MOST_IMPORTANT, CONDITIONS, marks=pytest.mark.more, id="local"),
        pytest.param("local", CONDITIONS, (), marks=pytest.mark.slow, id="all-local"),
        pytest.param("spark", MOST_IMPORTANT[:3], MOST_IMPORTANT[3:], marks=IN_SPARK, id="spark"),
        pytest.param("spark", CONDITIONS, (), marks=IN_SPARK, id="all-spark"),
    ],
    indirect=["warehouse"],
)
def test_P33_a_condition_means_the_same_in_every_face(
    warehouse: Warehouse, conditions: Iterable[str], reading_only: Iterable[str]
) -> None:
    assert wrong(warehouse, conditions, reading_only) == []


@pytest.mark.spark
def test_P33_literals_have_the_values_that_Spark_reads(spark: SparkSession) -> None:
    """Spark 4.0 leaves doubled quotes out; the platform hands it what the others read."""
    spark.conf.set("spark.sql.variable.substitute", "false")
    oldest = minor_of(spark.version) < (4, 1)
    literals = [for_spark(literal) for literal in LITERALS] if oldest else [*LITERALS]
    listed = "\n, ".join(literals)  # one of them ends with a comment
    values = spark.sql(f"SELECT {listed}\n").head()
    assert values is not None
    assert list(values) == list(LITERALS.values())


# --- all of Unicode -------------------------------------------------------------------------------


def texts(every: int) -> list[str]:
    """Texts that together have every `every`-th character, and sequences that mean something in
    some language of quoting."""
    characters = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if not 0xD800 <= code < 0xE000 and (code < 0x600 or code % every == 0)
    ]
    size = 16_384 if every == 1 else 1024
    parts = ["".join(characters[i : i + size]) for i in range(0, len(characters), size)]
    marks = ("'", '"', "`", "\\", "''", '""', "\\'", "\\u0041", "\\101", "${x}", "${env:HOME}")
    marks += ("$${x}", "#{x}", "{{x}}", "{x}", "{", "--", "/*", "*/", ";", "?", ":x", "%s", "\\%")
    marks += ("\x00", "\n", "\r\n", "\x1a", "\x1f", "\u2028", "\ufeff", "\uffff", "\U0010ffff")
    return [*parts, *(f"{mark}{other}" for mark in marks for other in ("", "'", "\\", "x${y}"))]


@pytest.mark.parametrize(
    ("warehouse", "every", "substitute"),
    [
        pytest.param("local", 97, False, marks=pytest.mark.more, id="local"),
        # As in a session of somebody else.
        pytest.param("spark", 997, True, marks=IN_SPARK, id="spark"),
        pytest.param("local", 1, False, marks=IN_SPARK[::2], id="all-local"),
        pytest.param("spark", 1, False, marks=IN_SPARK, id="all-spark"),
    ],
    indirect=["warehouse"],
)
def test_P33_texts_survive_every_path(
    warehouse: Warehouse, every: int, substitute: bool, request: pytest.FixtureRequest
) -> None:
    """Sends each text as a literal through SELECT, VALUES, predicates, UPDATE and MERGE."""
    values = texts(every)
    if substitute:
        request.getfixturevalue("substituting")
    table = warehouse.create_table("d.u", "id int, v string")
    literals = [sql_string(value) for value in values]

    def stored(where: str | None = None) -> list[str]:
        rows = table.to_arrow(["id", "v"], where).sort_by("id")
        return rows.column("v").to_pylist()

    named = ", ".join(f"{literal} AS c{i}" for i, literal in enumerate(literals))
    row = warehouse.sql(f"SELECT {named}").to_arrow().to_pylist()[0]
    assert list(row.values()) == values
    rows = ", ".join(f"({i}, {literal})" for i, literal in enumerate(literals))
    warehouse.sql(f"INSERT INTO d.u VALUES {rows}")
    assert stored() == values
    whichever = " OR ".join(f"id = {i} AND v = {literal}" for i, literal in enumerate(literals))
    assert table.count(whichever) == len(values)
    found = warehouse.sql(f"SELECT count(*) AS n FROM d.u WHERE v IN ({', '.join(literals)})")
    assert found.to_arrow().column("n").to_pylist() == [len(values)]
    cases = " ".join(f"WHEN {i} THEN concat({literal}, '!')" for i, literal in enumerate(literals))
    table.update({"v": f"CASE id {cases} END"}, whichever)
    assert stored() == [f"{value}!" for value in values]
    changed = " OR ".join(f"t.id = s.id AND t.v = {sql_string(value + '!')}" for value in values)
    value = f"CASE s.id {cases.replace(', ' + sql_string('!'), ', ' + sql_string('?'))} END"
    table.merge([{"id": i} for i in range(len(values))], changed, {"v": value}, None, None)
    assert stored() == [f"{value}?" for value in values]
    assert table.delete(" OR ".join(f"v = {sql_string(value + '?')}" for value in values)) == len(
        values
    )


# --- names ----------------------------------------------------------------------------------------

NAMES = ("a.b", "${x}", "a'b", 'a"b', "a b", "ä", "😀", "{x}", "a;b", "a--b", "a?b", ":x", "#{x}")
NAMES += ("1", "select", "null", "true", "current_date", "a@b", "$x")


@pytest.mark.parametrize(
    "warehouse",
    [pytest.param("local", marks=pytest.mark.more), pytest.param("spark", marks=IN_SPARK)],
    indirect=True,
)
def test_P33_names_with_any_character_work(warehouse: Warehouse) -> None:
    columns = ", ".join(f"{quoted(name)} string" for name in NAMES)
    table = warehouse.create_table("d.n", f"id int, {columns}")
    table.insert([{"id": 1, **{name: name for name in NAMES}}])
    everyone = " AND ".join(f"{quoted(name)} = {sql_string(name)}" for name in NAMES)
    assert table.count(everyone) == 1
    query = f"SELECT {', '.join(map(quoted, NAMES))} FROM d.n WHERE {everyone}"
    assert warehouse.sql(query).to_arrow().to_pylist() == [{name: name for name in NAMES}]
    assert table.update({name: f"concat({quoted(name)}, '!')" for name in NAMES}, everyone) == 1
    on = " AND ".join(f"t.{quoted(n)} = concat(s.{quoted(n)}, '!')" for n in NAMES)
    values = {name: f"s.{quoted(name)}" for name in NAMES}
    table.merge([{"id": 2, **{name: name for name in NAMES}}], on, values, None, None)
    assert table.count(everyone) == 1
    parts = warehouse.create_table("d.p", "id int", partitioned_by=[f"{quoted(NAMES[1])} string"])
    parts.insert([{"id": i, NAMES[1]: name} for i, name in enumerate(NAMES)])
    for number, name in enumerate(NAMES):
        where = f"{quoted(NAMES[1])} = {sql_string(name)}"
        assert parts.to_arrow(["id"], where).column("id").to_pylist() == [number]
    assert parts.delete(f"{quoted(NAMES[1])} IN ({', '.join(map(sql_string, NAMES))})") == len(
        NAMES
    )


@pytest.mark.spark
@pytest.mark.parametrize("warehouse", ["spark"], indirect=True)
@pytest.mark.usefixtures("substituting")
def test_P33_a_session_that_replaces_variables_in_names_is_refused(warehouse: Warehouse) -> None:
    table = warehouse.create_table("d.n", "id int, `${x}` int")
    with pytest.raises(SparkMisconfigured, match=r"spark\.sql\.variable\.substitute"):
        table.update({"id": "2"}, "`${x}` = 5")
