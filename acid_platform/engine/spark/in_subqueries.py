"""`x IN (SELECT …)` where unknown and false differ, written so that Spark tells them apart (P62).

Spark computes such a predicate by a join that marks the rows with a match. A row without one gets
false, also where a NULL on either side makes the predicate unknown. That is right for a term of
WHERE, and wrong below IS NULL, coalesce, <=>, NOT or in a list of columns. There a CASE asks for
the NULLs as well. Only the text of the predicate changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp, parse_one, tokenize
from sqlglot.errors import SqlglotError

from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.sql_text import canonical, quoted
from acid_platform.predicates.grammar import SparkSql

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
        for one in self.found:
            if first <= one.first <= last:
                shown = f"({one.operand} IN (listquery()))"
                shown = f"(NOT {shown})" if one.negated else shown
                name += self.text[end : self.tokens[one.first].start] + shown
                end = self.tokens[one.last].end + 1
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
