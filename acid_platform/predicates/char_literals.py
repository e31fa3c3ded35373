"""Text literals with trailing blanks beside a CHAR, whose own don't count: they are refused.

In expressions a CHAR is its value without trailing blanks, so that it would equal no such literal.
The local engine knows the types of what it compares; in a text for Spark names tell it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import TokenType, exp, parse_one, tokenize
from sqlglot.errors import SqlglotError

from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.sql_text import canonical
from acid_platform.layout.types import Column, HiveType
from acid_platform.predicates.grammar import SparkSql

_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nullif,
    exp.In, exp.Between,
)  # fmt: skip


def refused_blanks(literal: str) -> UnsupportedStatement:
    """The error for a literal with trailing blanks that is compared with a CHAR."""
    return UnsupportedStatement(
        f"{literal!r} is compared with a char, of which trailing blanks don't count: write the"
        " literal without them"
    )


def refuse_blanks(text: str, columns: Iterable[Column]) -> None:
    """Raises UnsupportedStatement for a query or an expression in Spark's SQL that compares a CHAR
    with a literal that has trailing blanks; also if another column has the name of a CHAR.

    `columns` are those that the text may read.
    """
    if " '" not in text and ' "' not in text:
        return
    chars = {name for column in columns for name in _chars(column.name, column.type)}
    if not chars:
        return
    try:
        tokens = tokenize(text := canonical(text), read=SparkSql)
    except SqlglotError:  # Spark says what is wrong with it
        return
    blank = [t.text for t in tokens if t.token_type is TokenType.STRING and t.text.endswith(" ")]
    if not blank:
        return
    try:
        tree = parse_one(text, read=SparkSql)
    except SqlglotError as error:
        raise refused_blanks(blank[0]) from error
    for renamed in tree.find_all(exp.TableAlias, exp.Lambda):  # for what, is not followed
        names = renamed.columns if isinstance(renamed, exp.TableAlias) else renamed.expressions
        chars.update(name.name.lower() for name in names)
    aliases = [*tree.find_all(exp.Alias)]
    known = 0
    while known < len(chars):
        known = len(chars)
        chars.update(alias.alias.lower() for alias in aliases if _name(alias.this) in chars)
    for literal in tree.find_all(exp.Literal):
        written = str(literal.this)
        if literal.is_string and written.endswith(" ") and chars & set(_compared_with(literal)):
            raise refused_blanks(written)


def _chars(name: str, kind: HiveType) -> Iterator[str]:
    """The names of a column and of the fields inside of it that are a CHAR."""
    while kind.kind in ("array", "map"):
        kind = kind.children[-1][1]
    if kind.kind == "char":
        yield name.lower()
    for field, child in kind.children:
        yield from _chars(field, child)


def _name(node: exp.Expr | None) -> str:
    """The name of a column, of a field or of what has an element like this one; else none."""
    while isinstance(node, exp.Paren | exp.Bracket):
        node = node.this
    return node.name.lower() if isinstance(node, exp.Column | exp.Dot | exp.Identifier) else ""


def _compared_with(literal: exp.Expr) -> Iterator[str]:
    """The names of the columns that the literal is compared with."""
    while isinstance(literal.parent, exp.Paren):
        literal = literal.parent
    parent = literal.parent
    if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case):
        if literal.arg_key == "this":
            yield _name(parent.parent.this)
    elif isinstance(parent, exp.Case):
        if literal.arg_key == "this":
            yield from (_name(branch.this) for branch in parent.args["ifs"])
    elif isinstance(parent, exp.Tuple | exp.DecodeCase):
        yield from map(_name, (parent.parent or parent).find_all(exp.Column))
    elif isinstance(parent, exp.In) and (query := parent.args.get("query")):
        yield from map(_name, query.find_all(exp.Column))
    elif isinstance(parent, _COMPARISONS):
        yield from map(_name, parent.iter_expressions())
