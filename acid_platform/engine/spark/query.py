"""A SELECT over scans as Spark runs it, and a read of one table.

Each placeholder in the text is a frame, and nothing else is visible. The frames are named in the
statement only, so that no view is left behind, and no view can refer to a newer snapshot (P18).

Spark computes `x IN (SELECT …)` by a join that marks the rows with a match. A row without one gets
false, also where a NULL on either side makes the predicate unknown. That is right for a term of
WHERE, and wrong below IS NULL, coalesce, <=>, NOT or in a list of columns. There a CASE asks for
the NULLs as well, so that unknown and false are told apart (P62). Only the text of the predicate
changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pyarrow as pa
import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import Token, TokenType, exp, parse_one, tokenize
from sqlglot.errors import SqlglotError

from acid_platform.base.arguments import require_limit
from acid_platform.engine.interface import ChangeRead, EngineName, Result, Sources, TableRead
from acid_platform.engine.spark.failures import analysed, first_line, raise_as_ours, unknown_there
from acid_platform.engine.spark.few_calls import over_frames
from acid_platform.engine.spark.input_rows import column_of
from acid_platform.engine.spark.scan import change_frame, read_frame
from acid_platform.engine.spark.spark_types import marked_columns, marked_type, shown, without_types
from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.layout.sql_text import canonical, quoted
from acid_platform.layout.types import Column, require_columns
from acid_platform.predicates.analysis import refuse_blanks
from acid_platform.predicates.grammar import SparkSql
from acid_platform.predicates.known_columns import require_names, unresolved_column
from acid_platform.scan.scans import Scan
from acid_platform.values.arrow_types import is_utf8
from acid_platform.values.stored_values import wall_clocks


@dataclass(frozen=True, repr=False)
class SparkResult(Result):
    """The rows of a DataFrame."""

    frame: DataFrame
    reason: str = "a DataFrame of Spark"
    engine: EngineName = "spark"

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def schema(self) -> pa.Schema:
        return self.to_arrow(0).schema

    def declared(self) -> tuple[Column, ...]:
        return tuple(column_of(field) for field in self.frame.schema.fields)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Raises AcidError if the query fails, such as InvalidExpression for a division by zero."""
        require_limit(limit)
        frame = self.frame if limit is None else self.frame.limit(limit)
        try:
            with raise_as_ours():
                kinds = [marked_type(field) for field in frame.schema.fields]
                rows = wall_clocks(_nullable(frame).toArrow(), kinds)
        except PySparkException as error:
            raise InvalidExpression(f"the query failed: {first_line(str(error))}") from error
        except Py4JJavaError as error:
            reason = first_line(str(error).rpartition("Caused by: ")[2])
            raise InvalidExpression(
                f"Spark failed inside: {reason}; write the query in another way, or use"
                " engine='local'"
            ) from error
        except ValueError as error:  # Arrow can't hold array<void>, the type of array()
            raise InvalidExpression(
                f"the query has a column that can't be read: {first_line(str(error))}; cast"
                " NULL and empty values to a type, such as CAST(array() AS array<string>)"
            ) from error
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if not is_utf8(column):
                raise InvalidExpression(
                    f"the column {name} has text that is not UTF-8; decode(CAST({name} AS binary),"
                    " 'ISO-8859-1'), or its encoding, reads it"
                )
        return rows

    def batches(self) -> pa.RecordBatchReader:
        return self.to_arrow().to_reader()

    def to_spark(self) -> DataFrame:
        return self.frame

    def renamed(self, names: Sequence[str]) -> SparkResult:
        return SparkResult(self.frame.toDF(*names), self.reason)

    def in_one_file(self) -> SparkResult:
        return SparkResult(self.frame.coalesce(1), self.reason)

    def plan(self) -> str:
        """Spark's own explanation of the query."""
        with redirect_stdout(StringIO()) as printed:
            self.frame.explain("formatted")
        return printed.getvalue().strip()

    def count(self) -> int:
        return self.frame.count()


def _nullable(frame: DataFrame) -> DataFrame:
    """The frame, in whose nested columns any part may be NULL. Spark says of `named_struct('a', 1)`
    that its field is not, and Arrow then refuses the NULL that a join has in place of a struct.

    Arrow refuses a column without a type, such as `array()`, which stays as it is."""
    kinds = [field.dataType for field in frame.schema.fields]
    loose = [field.dataType for field in frame.schema.toNullable().fields]
    if kinds == loose:
        return frame
    places = [f"c{position}" for position in range(len(kinds))]
    plain = frame.toDF(*places)
    columns = (
        plain[name] if "void" in kind.simpleString() else plain[name].cast(kind)
        for name, kind in zip(places, loose, strict=True)
    )
    return plain.select(*columns).toDF(*frame.columns)


def table_rows(
    spark: Callable[[], SparkSession],
    scan: Scan,
    columns: Sequence[str] | None,
    where: str | None,
    row_id: bool,
    table: str,
) -> DataFrame:
    """The rows of a scan, in no particular order. Spark starts only after the names were checked.

    Raises UnknownColumn, InvalidExpression.
    """
    every = (*scan.columns, *scan.partition_columns)
    require_columns(columns or (), every, table)
    if where is not None:
        require_names(where, every, table)
    session = spark()
    with raise_as_ours():
        return analysed(shown(read_frame(session, scan, columns, row_id, where)))


def result_of(spark: SparkSession, text: str, sources: Sources) -> DataFrame:
    """`run_query` for a caller. Spark takes the metadata of a UNION and the like from its left side
    alone, so that the columns of a statement with one are strings without trailing blanks."""
    frame = run_query(spark, text, sources)
    return without_types(frame) if _has_sets(text) else shown(frame)


def _has_sets(text: str) -> bool:
    if not _SETS.search(text):
        return False
    try:
        return sqlglot.parse_one(text, dialect="spark").find(exp.SetOperation) is not None
    except SqlglotError:
        return True


_SETS = re.compile(r"\b(UNION|INTERSECT|EXCEPT|MINUS)\b", re.IGNORECASE)


def run_query(
    spark: SparkSession,
    text: str,
    sources: Sources,
    more_frames: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """The result of `text` over its `sources`, and over `more_frames` by placeholder.

    Raises UnknownColumn, which suggests the nearest name, InvalidExpression.
    """
    frames = dict(more_frames or {})
    own = [column for source in sources.values() for column in _columns(source)]
    marked = [column for frame in frames.values() for column in marked_columns(frame)]
    refuse_blanks(text, [*own, *marked])
    text = with_unknowns(text)
    with raise_as_ours():
        for name, source in sources.items():
            if isinstance(source, ChangeRead):
                frames[name] = change_frame(spark, source.scan.wanting(source.columns))
            else:
                frames[name] = read_frame(
                    spark,
                    source.scan,
                    source.columns,
                    source.row_id,
                    source.where,
                    source.file_name,
                )
        try:
            return analysed(over_frames(spark, text, frames))
        except AnalysisException as error:
            if not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
                raise
            unresolved = str((error.getMessageParameters() or {}).get("objectName"))
            names = [name for frame in frames.values() for name in frame.columns]
            names = [name for name in names if not name.startswith("__")]
            names += [column.name for column in own]
            if unresolved.replace("`", "").lower() in names:
                raise unknown_there(unresolved.replace("`", ""), first_line(str(error))) from error
            raise unresolved_column(unresolved, names) from error


def _columns(source: TableRead | ChangeRead) -> tuple[Column, ...]:
    """All columns that a query may name, but for virtual ones."""
    if isinstance(source, ChangeRead):
        return tuple(source.scan.columns)
    return (*source.scan.columns, *source.scan.partition_columns)


_QUERY = re.compile(r"\bIN\s*\(\s*(?:SELECT|WITH|VALUES|FROM|TABLE)\b", re.IGNORECASE)
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
_BEFORE_OPERAND = {
    *(",", "->", "AND", "OR", "NOT", "!", "WHEN", "THEN", "ELSE", "CASE", "WHERE", "HAVING", "ON"),
    *("SELECT", "DISTINCT", "ALL", "BY", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS"),
    *("QUALIFY", "FROM", "JOIN", "SET", "FILTER"),
}
"""Words and signs that stand before what a predicate begins with. Comparisons bind before IN."""
_BEHIND_ITEM = {
    *(",", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT"),
    *("OFFSET", "LATERAL", "WINDOW", "UNION", "INTERSECT", "EXCEPT", "MINUS", "QUALIFY"),
}
_NAMES = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)
_DEPTH = {"(": 1, "[": 1, ")": -1, "]": -1}


@dataclass(frozen=True, slots=True)
class _InQuery:
    """`operand [NOT] IN (query)` from token `first` to token `last`."""

    first: int
    last: int
    operand: str
    query: str
    negated: bool


def with_unknowns(text: str) -> str:
    """The query with each IN (subquery) in the form in which Spark finds its unknown rows.

    Raises UnsupportedStatement for one whose place in the text is not clear.
    """
    if not _QUERY.search(text):
        return text
    try:
        text = canonical(text)
        tokens = tokenize(text, read=SparkSql)
        found = [*_outermost(text, tokens)]
        tree = parse_one(text, read=SparkSql)
        marked = _Marked.of(text, tokens, found)
        if marked.restored() != tree:
            raise _unclear()
    except SqlglotError:  # Spark says what is wrong with it
        return text
    return marked.rewritten()


def _unclear() -> UnsupportedStatement:
    return UnsupportedStatement(
        "a predicate IN (SELECT …) stands where its parts can't be told; write (x IN (SELECT …))"
        " with parentheses, or EXISTS"
    )


def _word(token: Token) -> str:
    return "" if token.token_type in _NAMES else str(token.text).upper()


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for number in range(opening, len(tokens)):
        depth += _DEPTH.get(_word(tokens[number]), 0)
        if not depth:
            return number
    raise _unclear()


def _outermost(text: str, tokens: Sequence[Token]) -> Iterator[_InQuery]:
    """The predicates that are in no other one, in their order."""
    last: _InQuery | None = None
    number = 1
    while number < len(tokens) - 2:
        words = [_word(token) for token in tokens[number : number + 3]]
        if words[:2] != ["IN", "("] or words[2] not in _QUERIES:
            number += 1
            continue
        close = _closing(tokens, number + 1)
        negated = _word(tokens[number - 1]) == "NOT"
        behind = number - negated
        first = _start(tokens, behind)
        found = _InQuery(
            first,
            close,
            text[tokens[first].start : tokens[behind].start].rstrip(),
            text[tokens[number + 1].end + 1 : tokens[close].start],
            negated,
        )
        if last is not None and first > last.first:
            yield last
        last, number = found, close + 1
    if last is not None:
        yield last


def _start(tokens: Sequence[Token], behind: int) -> int:
    """The first token of the operand that ends before token `behind`."""
    depth, cases = 0, 0
    number = behind - 1
    while number >= 0:
        word = _word(tokens[number])
        depth -= _DEPTH.get(word, 0)
        if depth < 0:
            break
        if not depth and word == "END":
            cases += 1
        elif not depth and cases:
            cases -= word == "CASE"
        elif not depth and word in _BEFORE_OPERAND:
            break
        number -= 1
    return number + 1


def _item(tokens: Sequence[Token], of: int) -> tuple[int, int]:
    """The first and the last token of the item of the innermost SELECT that has token `of`."""
    depth, lowest, first = 0, 0, 0
    commas: dict[int, int] = {}
    for number in range(of - 1, -1, -1):
        word = _word(tokens[number])
        depth -= _DEPTH.get(word, 0)
        lowest = min(lowest, depth)
        if depth == lowest and word == ",":
            commas.setdefault(depth, number + 1)
        elif depth == lowest and word == "SELECT":
            behind = number + 1 + (_word(tokens[number + 1]) in ("DISTINCT", "ALL"))
            first = commas.get(depth, behind)
            break
    depth = 0
    for number in range(of, len(tokens)):
        word = _word(tokens[number])
        depth += _DEPTH.get(word, 0)
        if depth < lowest or (depth == lowest and word in _BEHIND_ITEM):
            return first, number - 1
    return first, len(tokens) - 1


@dataclass(frozen=True, slots=True)
class _Marked:
    """The text and its predicates, and the tree of the text with a name for each of them."""

    text: str
    tokens: Sequence[Token]
    found: Sequence[_InQuery]
    tree: exp.Expr

    @classmethod
    def of(cls, text: str, tokens: Sequence[Token], found: Sequence[_InQuery]) -> _Marked:
        parts, end = [], 0
        for number, each in enumerate(found):
            parts += [text[end : tokens[each.first].start], f"__in_{number}"]
            end = tokens[each.last].end + 1
        tree = parse_one("".join((*parts, text[end:])), read=SparkSql)
        return cls(text, tokens, found, tree)

    def _markers(self, tree: exp.Expr) -> Iterator[tuple[exp.Column, int]]:
        for column in [*tree.find_all(exp.Column)]:
            if column.name.startswith("__in_") and column.name[5:].isdigit():
                yield column, int(column.name[5:])

    def restored(self) -> exp.Expr:
        """The tree with the predicates in their places, by which their parts are proven."""
        tree = self.tree.copy()
        for marker, number in self._markers(tree):
            each = self.found[number]
            word = "NOT IN" if each.negated else "IN"
            predicate = f"{each.operand} {word} ({each.query})"
            marker.replace(parse_one(predicate, read=SparkSql, into=exp.Condition))
        return tree

    def rewritten(self) -> str:
        edits: list[tuple[int, int, str]] = []
        named = set()
        for marker, number in self._markers(self.tree):
            each = self.found[number]
            start, stop = self.tokens[each.first].start, self.tokens[each.last].end + 1
            query = with_unknowns(each.query)
            if _false_will_do(marker, each.negated):
                word = "NOT IN" if each.negated else "IN"
                edits.append((start, stop, f"{_operand(each)} {word} ({query})"))
                continue
            edits.append((start, stop, _told_apart(each, query)))
            first, last = _item(self.tokens, each.first)
            if _is_unnamed_item(marker) and last not in named:
                named.add(last)
                at = self.tokens[last].end + 1
                edits.append((at, at, f" AS {quoted(self._name(first, last))}"))
        parts, end = [], 0
        for start, stop, new in sorted(edits):
            parts += [self.text[end:start], new]
            end = stop
        return "".join((*parts, self.text[end:]))

    def _name(self, first: int, last: int) -> str:
        """How Spark names the item: by the text, without that of the queries."""
        name, end = "", self.tokens[first].start
        for entry in self.found:
            if first <= entry.first <= last:
                shown = f"({entry.operand} IN (listquery()))"
                shown = f"(NOT {shown})" if entry.negated else shown
                name += self.text[end : self.tokens[entry.first].start] + shown
                end = self.tokens[entry.last].end + 1
        return name + self.text[end : self.tokens[last].end + 1]


def _operand(each: _InQuery) -> str:
    """The operand, in which predicates of the same kind may stand."""
    if not _QUERY.search(each.operand):
        return each.operand
    return with_unknowns(f"SELECT {each.operand} AS v").removeprefix("SELECT ")[: -len(" AS v")]


def _false_will_do(marker: exp.Expr, negated: bool) -> bool:
    """Whether the predicate decides which rows there are, so that unknown means what false does.

    Spark has a join of its own for NOT IN as a term of WHERE, which knows NULLs.
    """
    node = marker
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    if not negated and isinstance(node.parent, exp.Not):
        node, negated = node.parent, True
    terms: tuple[type[exp.Expr], ...] = (exp.And, exp.Paren)
    if not negated:
        terms = (*terms, exp.Or)
    while isinstance(node.parent, terms):
        node = node.parent
    parent = node.parent
    if isinstance(parent, exp.Where | exp.Having | exp.Join):
        return not negated or not isinstance(parent.parent, exp.Filter)
    return (
        not negated
        and isinstance(parent, exp.If)
        and node.arg_key == "this"
        and not (isinstance(parent.parent, exp.Case) and parent.parent.this is not None)
    )


def _is_unnamed_item(marker: exp.Expr) -> bool:
    node = marker
    while node.parent is not None and not isinstance(node.parent, exp.Query):
        node = node.parent
    return (
        isinstance(node.parent, exp.Select)
        and node.arg_key == "expressions"
        and not isinstance(node, exp.Alias | exp.Aliases)
    )


def _told_apart(each: _InQuery, query: str) -> str:
    """The predicate as a CASE: true for a match, else NULL if a NULL may hide one, else false."""
    operand = _operand(each)
    members = _members(operand)
    if len(members) == 1:
        unknown = (
            f"EXISTS (SELECT 1 FROM ({query}) AS __in (__in_1) WHERE __in_1 IS NULL)"
            f" OR ({operand}) IS NULL AND EXISTS ({query})"
        )
    else:
        names = [f"__in_{number}" for number, _ in enumerate(members, 1)]
        equal = " AND ".join(
            f"({member}) = {name}" for member, name in zip(members, names, strict=True)
        )
        unknown = (
            f"EXISTS (SELECT 1 FROM ({query}) AS __in ({', '.join(names)}) WHERE ({equal}) IS NULL)"
        )
    case = (
        f"CASE WHEN {operand} IN ({query}) THEN true"
        f" WHEN {unknown} THEN CAST(NULL AS boolean) ELSE false END"
    )
    return f"(NOT {case})" if each.negated else f"({case})"


def _members(operand: str) -> list[str]:
    """The values that are compared with the columns of the query."""
    tree = parse_one(operand, read=SparkSql, into=exp.Condition)
    if not isinstance(tree, exp.Tuple):
        return [operand]
    tokens = tokenize(operand, read=SparkSql)[1:-1]
    members, start, depth = [], tokens[0].start, 0
    for token in tokens:
        depth += _DEPTH.get(_word(token), 0)
        if not depth and _word(token) == ",":
            members.append(operand[start : token.start])
            start = token.end + 1
    return [*members, operand[start : tokens[-1].end + 1]]
