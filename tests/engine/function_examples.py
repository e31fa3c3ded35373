"""The examples of Spark's documentation of its functions, as expressions and as statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import pyarrow as pa
import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import TokenType

from acid_platform import AcidError, NeedsSpark, UnsupportedStatement
from acid_platform.engine.local.run_query import query
from acid_platform.predicates.grammar import SparkSql
from tests.engine.local.differential import plain

_EXAMPLE = re.compile(r"(?ms)^ +> (SELECT\b.*?);\s*$")
_WITH_LITERAL = {
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "TIMESTAMP_LTZ",
    "TIME",
    "INTERVAL",
    "X",
    "(",
}


@dataclass(frozen=True)
class Example:
    function: str
    statement: str

    @property
    def expression(self) -> str:
        return self.statement.removeprefix("SELECT").strip()

    def with_columns(self) -> tuple[str, list[str]] | None:
        """The expression with columns `c0`, `c1` … in the place of its literals, and these; None if
        it has none, or if another token belongs to a literal."""
        text, literals = self.expression, []
        if re.search(r"(?i)decimal *\(|\bas\b *(var)?char", text):
            return None
        tokens = sqlglot.tokenize(text, dialect=SparkSql)
        for before, token in reversed(list(zip([None, *tokens], tokens, strict=False))):
            if token.token_type not in (TokenType.STRING, TokenType.NUMBER):
                continue
            if before is not None and before.text.upper() in _WITH_LITERAL - {"("}:
                return None
            literals.append(text[token.start : token.end + 1])
            place = f"c{len(literals) - 1}"
            text = f"{text[: token.start]}{place}{text[token.end + 1 :]}"
        return (text, literals) if literals else None


def examples(spark: SparkSession, every: int = 1) -> Iterator[Example]:
    """Every SELECT in the documentation of every function, or of every `every`-th."""
    for (name,) in spark.sql("SHOW FUNCTIONS").collect()[::every]:
        rows = spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect()
        for match in _EXAMPLE.finditer("\n".join(row[0] for row in rows)):
            yield Example(name, match[1])


MOVING = re.compile(
    r"(?i)\b(now|current_\w+|curdate|localtime(stamp)?|rand\w*|uniform|uuid|shuffle|user|version"
    r"|session_user|collect_set|(try_)?reflect|java_method)\b|\bunix_timestamp\(\)"
)
"""Examples whose answer is another each time, or in another order, or that run Java's methods."""
State = Literal["right", "refused", "wrong"]


def as_typed(spark: SparkSession, example: Example) -> tuple[State, str]:
    """Whether the local engine gives the names, types and rows of Spark; why not."""
    try:
        result = query(example.statement, {}, lambda: spark, "")
        ours = result.to_arrow()
    except (NeedsSpark, UnsupportedStatement) as error:
        return "refused", str(error)
    except AcidError as error:
        ours = error
    try:
        frame = spark.sql(example.statement)
        theirs = frame.toArrow()
    except PySparkException as error:
        failed = isinstance(ours, AcidError)
        return ("right", "") if failed else ("wrong", f"{ours!r}, in Spark {error!s:.200}")
    if isinstance(ours, AcidError):
        return "wrong", f"{ours!r}, in Spark {theirs.to_pylist()}"
    kinds = [str(kind) for _, kind in result.named]
    if result.columns != frame.columns or kinds != [kind for _, kind in frame.dtypes]:
        return "wrong", f"{result.columns} {kinds}, in Spark {frame.dtypes}"
    a, b = (
        sorted(map(repr, zip(*map(plain, each.columns), strict=True)))
        for each in (cast(pa.Table, ours), theirs)
    )
    return ("right", "") if a == b else ("wrong", f"{a}, in Spark {b}")
