"""Computes expressions in both engines and tells where they differ."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from acid_platform import AcidError, NeedsSpark
from acid_platform.engine.interface import TableRead
from acid_platform.engine.local.translation.batch_functions import add_functions
from acid_platform.engine.local.translation.casts import Typed
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.duckdb_sql import (
    NTZ,
    VARIANT,
    raise_as_ours,
    translated,
)
from acid_platform.engine.local.translation.expressions import translate_value
from acid_platform.engine.local.translation.printed_names import column_name
from acid_platform.engine.local.translation.queries import QueryTranslator
from acid_platform.engine.local.translation.signatures import WANTED
from acid_platform.engine.spark import failures as spark_failures
from acid_platform.engine.spark.spark_types import stripped
from acid_platform.predicates.grammar import SparkSql
from acid_platform.scan.scans import Scan
from tests.engine.local import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCOPE = NameScope.of({"t": values.COLUMNS})


@dataclass(frozen=True)
class Local:
    """What the local engine gives: a value or an error by row id."""

    expression: str
    typed: Typed
    rows: dict[int, object]
    errors: dict[int, type[BaseException]]


class LocalTable:
    def __init__(self) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        source = values.table()
        self.connection.register("source", source)
        self.connection.execute("CREATE TABLE t AS SELECT * FROM source")

    def compute(self, expression: str) -> Local:
        """Raises NeedsSpark."""
        typed = translate_value(expression, SCOPE)
        add_functions(self.connection, WANTED)
        try:
            return Local(expression, typed, self._rows(typed.sql), {})
        except duckdb.Error as error:
            if translated(error, typed.sql) is None:
                raise
        rows: dict[int, object] = {}
        errors: dict[int, type[BaseException]] = {}
        for row in range(0, values.ROWS, 7):
            try:
                rows |= self._rows(typed.sql, f"WHERE id = {row}")
            except duckdb.Error as error:
                ours = translated(error, typed.sql)
                assert ours is not None, (expression, error)
                errors[row] = type(ours)
        return Local(expression, typed, rows, errors)

    def query(self, text: str) -> list[tuple[object, ...]]:
        """The rows of a query over the table `t`, in order. Raises NeedsSpark, and our errors."""
        scan = Scan(None, "", values.COLUMNS, (), (), None)  # type: ignore[arg-type]
        translator = QueryTranslator({"t": TableRead(scan)})
        block = translator.query(sqlglot.parse_one(text, dialect=SparkSql), {})
        sql = block.sql
        for stored in translator.opened:
            sql = sql.replace(f'"{stored}"', "t")
        with raise_as_ours(sql):
            found = self.connection.sql(sql).to_arrow_table()
        return list(zip(*map(plain, found.columns), strict=True))

    def _rows(self, sql: str, where: str = "") -> dict[int, object]:
        found = self.connection.sql(f"SELECT id, {sql} AS v FROM t {where}").to_arrow_table()
        return dict(zip(plain(found.column(0)), plain(found.column(1)), strict=True))


def spark_table(spark: SparkSession) -> DataFrame:
    table = values.table()
    fields = [
        pa.field(field.name, pa.timestamp("us", "UTC"))
        if pa.types.is_timestamp(field.type)
        else field
        for field in table.schema
    ]
    frame = spark.createDataFrame(table.cast(pa.schema(fields)))
    return stripped(frame.repartition(1), values.COLUMNS).cache()


def differences(table: DataFrame, wanted: Sequence[Local]) -> Iterator[str]:
    """One line for each expression that the engines compute differently."""
    wanted = [local for local in wanted if local.typed.type not in (NTZ, VARIANT)]  # no result has
    if not wanted:
        return
    columns = []
    for number, local in enumerate(wanted):
        text = local.expression
        if local.errors or len(local.rows) < values.ROWS:
            ids = ", ".join(map(str, local.rows)) or "-1"
            text = f"CASE WHEN t.id IN ({ids}) THEN {text} END"
        columns.append(f"{text} AS v{number}")
    try:
        frame = table.alias("t").selectExpr("id", *columns)
        answer = frame.toArrow()
    except PySparkException as error:
        if len(wanted) == 1:
            yield f"{wanted[0].expression}: Spark fails with {str(error)[:300]}"
            return
        half = len(wanted) // 2
        yield from differences(table, wanted[:half])
        yield from differences(table, wanted[half:])
        return
    ids = answer.column("id").to_pylist()
    for number, local in enumerate(wanted):
        field = frame.schema.fields[number + 1]
        kind = field.dataType.simpleString()
        if kind != str(local.typed.type):
            yield f"{local.expression}: Spark's type is {kind}, not {local.typed.type}"
        found = dict(zip(ids, plain(answer.column(number + 1)), strict=True))
        for row, value in local.rows.items():
            if not equal(found[row], value):
                yield f"{local.expression}: row {row} is {found[row]!r} in Spark, not {value!r}"
                break


def error_differences(table: DataFrame, wanted: Sequence[Local]) -> Iterator[str]:
    """As `differences`, for rows without a value: one of each kind of error."""
    for local in wanted:
        for kind in set(local.errors.values()) - {NeedsSpark}:
            row = next(row for row, error in local.errors.items() if error is kind)
            one = table.alias("t").where(F.col("id") == row)
            try:
                value = plain(one.selectExpr(f"{local.expression} AS v").toArrow().column(0))
                yield f"{local.expression}: row {row} is {value} in Spark, not {kind.__name__}"
            except (PySparkException, Py4JJavaError) as error:
                ours = spark_failures.translated(error)
                if type(ours) is not kind:
                    yield f"{local.expression}: row {row} is {ours!r}, not {kind.__name__}"


def plain(column: pa.ChunkedArray) -> list[object]:
    """The values in Python; dates and timestamps as numbers, since Python lacks some years."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[object] = column.to_pylist()
    return values


def equal(spark: object, local: object) -> bool:
    if isinstance(spark, list | tuple) and isinstance(local, list | tuple):
        return len(spark) == len(local) and all(map(equal, spark, local))
    if isinstance(spark, dict) and isinstance(local, dict):
        return spark.keys() == local.keys() and all(equal(spark[k], local[k]) for k in spark)
    if isinstance(spark, datetime.datetime) and isinstance(local, datetime.datetime):
        return spark.replace(tzinfo=None) == local.replace(tzinfo=None)
    if isinstance(spark, float) and isinstance(local, float) and math.isnan(spark):
        return math.isnan(local)
    if isinstance(spark, float) and isinstance(local, float):
        return repr(spark) == repr(local)  # 0.0 is not -0.0
    return type(spark) is type(local) and spark == local


def alike(spark: object, local: object) -> bool:
    """As `equal`, for sums of doubles but for the last bits, for arrays in any order."""
    if isinstance(spark, list) and isinstance(local, list):
        instants = isinstance(next(iter(spark), None), datetime.datetime)
        theirs = [one.replace(tzinfo=None) for one in spark] if instants else spark
        pairs = zip(sorted(theirs, key=repr), sorted(local, key=repr), strict=False)
        return len(spark) == len(local) and all(equal(a, b) for a, b in pairs)
    if isinstance(spark, float) and isinstance(local, float):
        return equal(spark, local) or math.isclose(spark, local, rel_tol=1e-12)
    return equal(spark, local)


def near(spark: object, local: object) -> bool:
    """As `alike`, for statistics that Spark updates row by row, and that are exact here."""
    if isinstance(spark, float) and isinstance(local, float):
        return alike(spark, local) or math.isclose(spark, local, rel_tol=1e-9, abs_tol=1e-9)
    return alike(spark, local)


def name_differences(table: DataFrame, wanted: Sequence[Local]) -> Iterator[str]:
    """One line for each expression whose column Spark names otherwise."""
    named = {}
    for local in wanted:
        tree = sqlglot.parse_one(local.expression, dialect=SparkSql)
        with suppress(NeedsSpark):
            named[local.expression] = column_name(tree)
    found = table.alias("t").selectExpr(*named).columns
    for (text, ours), theirs in zip(named.items(), found, strict=True):
        if ours != theirs:
            yield f"{text}: Spark names it {theirs!r}, not {ours!r}"


def query_differences(
    local: LocalTable,
    table: DataFrame,
    items: Sequence[str],
    form: str,
    same: Callable[[object, object], bool] = equal,
) -> Iterator[str]:
    """One line for each item of a query that Spark computes otherwise.

    `form` is the query with {} in place of the items; its first column and its order tell the rows.
    `same`: whether a value of Spark and one of ours are.
    """
    computed = {}
    for item in items:
        text = form.format(f"{item} AS v")
        try:
            computed[item] = local.query(text)
        except NeedsSpark:
            continue
        except AcidError as error:
            try:
                rows = table.sparkSession.sql(text.replace("FROM t", "FROM {t}"), t=table).collect()
                yield f"{text}: {rows[:3]} in Spark, not {error!r}"
            except PySparkException as theirs:
                ours = spark_failures.translated(theirs)
                if type(ours) is not type(error):
                    yield f"{text}: {ours!r} in Spark, not {error!r}"
    if not computed:
        return
    together = ", ".join(f"{item} AS v{i}" for i, item in enumerate(computed))
    text = form.format(together).replace("FROM t", "FROM {t}")
    try:
        found = table.sparkSession.sql(text, t=table).toArrow()
    except (PySparkException, Py4JJavaError, pa.ArrowInvalid) as error:
        if len(computed) == 1:
            yield f"{text}: Spark fails with {error!s:.300}"
            return
        chosen, half = [*computed], len(computed) // 2  # Spark can't do some beside others
        yield from query_differences(local, table, chosen[:half], form, same)
        yield from query_differences(local, table, chosen[half:], form, same)
        return
    for position, (item, rows) in enumerate(computed.items(), 1):
        theirs = plain(found.column(position))
        wrong = [(a, row[1]) for a, row in zip(theirs, rows, strict=True) if not same(a, row[1])]
        if wrong:
            yield f"{form.format(item)}: {wrong[0][0]!r} in Spark, not {wrong[0][1]!r}"
