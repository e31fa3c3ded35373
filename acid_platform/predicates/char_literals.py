"""Text literals that are compared with CHAR: their trailing blanks don't count, as in Hive.

In expressions a CHAR has no trailing blanks. Only a literal that is written with some needs a
change before Spark sees it, which is rare: all other texts are returned as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import TokenType, exp, parse_one, tokenize
from sqlglot.errors import SqlglotError

from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.sql_text import canonical
from acid_platform.layout.types import Column, HiveType
from acid_platform.predicates.grammar import SparkSql

_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nullif,
    exp.In, exp.Between, exp.Case,
)  # fmt: skip


def comparable(text: str, tables: Mapping[str, Iterable[Column]]) -> str:
    """A query or expression in Spark's SQL without the blanks that don't count in its literals.

    `tables` are the columns that it may read, by the name that qualifies them. Raises
    UnsupportedStatement for a literal of which it is not known what it is compared with.
    """
    if " '" not in text and ' "' not in text:
        return text
    names = _Names(tables)
    if not names.any_char:
        return text
    try:
        text = canonical(text)
        tokens = tokenize(text, read=SparkSql)
    except SqlglotError:  # Spark says what is wrong with it
        return text
    blank = [t for t in tokens if t.token_type is TokenType.STRING and t.text.endswith(" ")]
    if not blank:
        return text
    try:
        tree = parse_one(text, read=SparkSql)
    except SqlglotError as error:
        raise _unclear(blank[0].text) from error
    names.add_aliases(tree)
    verdicts: dict[str, set[bool]] = {}
    for literal in tree.find_all(exp.Literal):
        if literal.is_string and str(literal.this).endswith(" "):
            verdicts.setdefault(str(literal.this), set()).update(_meets_char(literal, names))
    for token in reversed(blank):
        verdict = verdicts.get(token.text, {False})
        if len(verdict) > 1:
            raise _unclear(token.text)
        if verdict == {True}:
            written = text[token.start : token.end].rstrip(" ")
            text = text[: token.start] + written + text[token.end :]
    return text


def _unclear(literal: str) -> UnsupportedStatement:
    return UnsupportedStatement(
        f"the trailing blanks of {literal!r} don't count beside a char and do beside a string, and"
        " it is not known which it is compared with; write it without them, or name the column"
        " with its table"
    )


class _Names:
    """What is known of the names in a text: whether they mean a CHAR."""

    def __init__(self, tables: Mapping[str, Iterable[Column]]) -> None:
        self.of_tables: dict[str, dict[str, set[bool]]] = {}
        self.every: dict[str, set[bool]] = {}
        for table, columns in tables.items():
            own = self.of_tables.setdefault(table.lower(), {})
            for column in columns:
                _add(own, column.name, column.type)
                _add(self.every, column.name, column.type)
        self.any_char = any(True in kinds for kinds in self.every.values())

    def add_aliases(self, tree: exp.Expr) -> None:
        for table in tree.find_all(exp.Table):
            if table.alias and table.name.lower() in self.of_tables:
                self.of_tables[table.alias.lower()] = self.of_tables[table.name.lower()]
        for alias in tree.find_all(exp.Alias):
            kinds = self.kinds(alias.this)
            self.every.setdefault(alias.alias.lower(), set()).update(kinds)
        for table_alias in tree.find_all(exp.TableAlias):
            for column in table_alias.columns:
                self.every[column.name.lower()] = {True, False}
        for function in tree.find_all(exp.Lambda):
            for variable in function.expressions:
                self.every[variable.name.lower()] = {True, False}

    def kinds(self, node: exp.Expr) -> set[bool]:
        """Whether the expression is a CHAR; both, if that is not known."""
        while isinstance(node, exp.Paren | exp.Bracket):
            node = node.this
        if not isinstance(node, exp.Column | exp.Dot | exp.Identifier):
            return {False}
        parts = [part.name.lower() for part in getattr(node, "parts", (node,))]
        own = self.of_tables.get(parts[0], {}) if len(parts) > 1 else {}
        return own.get(parts[-1]) or self.every.get(parts[-1]) or {False}


def _add(names: dict[str, set[bool]], name: str, kind: HiveType) -> None:
    """A column, and the fields inside of it by their own names."""
    while kind.kind in ("array", "map"):
        kind = kind.children[-1][1]
    names.setdefault(name.lower(), set()).add(kind.kind == "char")
    if kind.kind == "struct":
        for field, child in kind.children:
            _add(names, field, child)


def _meets_char(literal: exp.Expr, names: _Names) -> set[bool]:
    """Whether the literal is compared with a CHAR; both, if that is not known."""
    while isinstance(literal.parent, exp.Paren):
        literal = literal.parent
    parent = literal.parent
    if isinstance(parent, exp.If) and isinstance(parent.parent, exp.Case):
        if literal.arg_key != "this" or parent.parent.this is None:
            return {False}  # a value and no test
        return names.kinds(parent.parent.this)
    if isinstance(parent, exp.Tuple | exp.DecodeCase) and names.any_char:
        columns = (parent.parent or parent).find_all(exp.Column)
        return set().union(*map(names.kinds, columns)) | {False}
    if not isinstance(parent, _COMPARISONS):
        return {False}
    if literal.arg_key == "default":
        return {False}
    others = [parent.this]
    if literal.arg_key == "this":
        others = [
            *(parent.expressions or ()),
            *(parent.args[key] for key in ("expression", "low", "high") if parent.args.get(key)),
            *(branch.this for branch in parent.args.get("ifs") or ()),
        ]
        if parent.args.get("query"):
            return {True, False}
    return set().union(*map(names.kinds, others)) or {False}
