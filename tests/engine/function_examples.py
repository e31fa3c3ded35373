"""The examples of Spark's documentation of its functions, as expressions and as statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot
from pyspark.sql import SparkSession
from sqlglot import TokenType

from acid_platform.predicates.grammar import SparkSql

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
