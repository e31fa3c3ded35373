"""The clauses of Spark's queries: sqlglot's parser takes more than Spark does.

It leaves out what is missing: a value behind a comma, THEN, a condition behind ON. It takes clauses
in any order, and forms of other systems. The local engine would run such a text, which Spark
refuses. Its messages name Python's classes; those here say what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import TokenType, exp
from sqlglot.parsers.spark import SparkParser

from acid_platform.layout.types import meant_type

_ORDER = {
    TokenType.WHERE: 1,
    TokenType.GROUP_BY: 2,
    TokenType.HAVING: 3,
    TokenType.ORDER_BY: 4,
    TokenType.CLUSTER_BY: 4,
    TokenType.DISTRIBUTE_BY: 4,
    TokenType.SORT_BY: 5,
    TokenType.LIMIT: 6,
    TokenType.OFFSET: 7,
}
"""In which order the clauses of a query stand."""
_GROUPINGS = ("ROLLUP", "CUBE", "GROUPING", "GROUPING SETS")
_SIZED = ("VARCHAR", "CHAR", "CHARACTER")


class Messages:
    """The errors of a parser, without the names of its classes."""

    def _warn_unsupported(self) -> None:
        pass

    def raise_error(self: Any, message: str, *token: Any, **named: Any) -> None:
        message = re.sub(r"\s+(?:but got|for)?\s*<.*", "", message, flags=re.DOTALL)
        message = message.replace("Invalid expression / Unexpected token", "something is wrong")
        super().raise_error(message, *token, **named)  # type: ignore[misc]


def _in_order(token: TokenType, parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def clause(parser: Any) -> Any:
        rank = _ORDER.get(token, parser.last_clause)
        if rank < parser.last_clause:
            parser.raise_error(f"{token.name.replace('_', ' ')} stands behind a later clause")
        parser.last_clause = rank
        return parse(parser)

    return clause


def _binary(parser: Any, token: Any) -> Any:
    if parser.sql[token.start] == "0":
        parser.raise_error("binary is written as X'1F'")
    parse: Any = SparkParser.PRIMARY_PARSERS[TokenType.HEX_STRING]
    return parse(parser, token)


class Clauses(Messages):
    """Overrides sqlglot's parser, whose methods have these names."""

    STRING_ALIASES: ClassVar = False
    PRIMARY_PARSERS: ClassVar = {
        **SparkParser.PRIMARY_PARSERS,
        TokenType.HEX_STRING: _binary,
    }
    QUERY_MODIFIER_PARSERS: ClassVar = {
        token: _in_order(token, parse)
        for token, parse in SparkParser.QUERY_MODIFIER_PARSERS.items()
    }
    last_clause = 0
    may_be_type = False
    """Whether what is being parsed is a type only if that succeeds: `array(null, 1)` is none."""
    called: tuple[str, ...] = ()
    """The functions whose arguments are being parsed, as they were written."""

    def _parse_cube_or_rollup(self: Any, with_prefix: bool = False) -> Any:
        kinds = {TokenType.CUBE: exp.Cube, TokenType.ROLLUP: exp.Rollup}
        kind = self._match_set(kinds) and kinds[self._prev.token_type]
        if not kind:
            return None
        members = [] if with_prefix else self._parse_wrapped_csv(self._parse_disjunction)
        return self.expression(kind(expressions=members))

    def _parse_grouping_set(self: Any) -> Any:
        return (
            self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()
        )

    def validate_expression(self: Any, node: Any, args: Any = None) -> Any:
        if not isinstance(node, exp.Concat) and node.error_messages(args):
            if isinstance(node, exp.Func) and self.called and not isinstance(node, exp.Case):
                self.raise_error(f"{self.called[-1]}() has too few or too many arguments")
            operator = isinstance(node, exp.Binary | exp.Unary)
            self.raise_error(
                "a value is missing" if operator else f"{node.key.upper()} lacks a part"
            )
        return node

    def _parse_csv(
        self: Any, parse_method: Callable[[], Any], sep: TokenType = TokenType.COMMA
    ) -> Any:
        def item() -> Any:
            found = parse_method()
            if (
                found is None
                and not self.may_be_type
                and self._prev.token_type is sep
                and self._curr.text.upper() not in _GROUPINGS
            ):
                self.raise_error("nothing stands behind a comma")
            return found

        return super()._parse_csv(item, sep)  # type: ignore[misc]

    def _parse_query_modifiers(self: Any, this: Any) -> Any:
        around, self.last_clause = self.last_clause, 0
        try:
            return super()._parse_query_modifiers(this)  # type: ignore[misc]
        finally:
            self.last_clause = around

    def _parse_limit(self: Any, this: Any = None, *options: Any, **named: Any) -> Any:
        limit = super()._parse_limit(this, *options, **named)  # type: ignore[misc]
        if isinstance(limit, exp.Limit) and limit is not this:
            if limit.args.get("offset") is not None:
                self.raise_error(
                    "LIMIT takes one number, or two as in LIMIT 2, 5; OFFSET skips rows"
                )
            self._require_number(limit, "LIMIT")
        return limit

    def _parse_offset(self: Any, this: Any = None) -> Any:
        offset = super()._parse_offset(this)  # type: ignore[misc]
        if isinstance(offset, exp.Offset):
            self._require_number(offset, "OFFSET")
        return offset

    def _require_number(self: Any, clause: exp.Expr, name: str) -> None:
        number = clause.expression
        if number is None or (isinstance(number, exp.Literal) and number.is_string):
            self.raise_error(f"{name} takes a whole number, without quotes")

    def _parse_ordered(self: Any, *options: Any) -> Any:
        start = self._index
        ordered = super()._parse_ordered(*options)  # type: ignore[misc]
        kinds = [token.token_type for token in self._tokens[start : self._index]]
        if (TokenType.ASC, TokenType.DESC) in pairwise(kinds):
            self.raise_error("ASC and DESC exclude each other")
        return ordered

    def _parse_join(self: Any, *options: Any, **named: Any) -> Any:
        join = super()._parse_join(*options, **named)  # type: ignore[misc]
        before = self._prev.token_type
        if join is None:
            if before is TokenType.COMMA:
                self.raise_error("nothing stands behind a comma")
        elif before is TokenType.ON:
            self.raise_error("ON needs a condition")
        elif join.args.get("using") and before is not TokenType.R_PAREN:
            self.raise_error("USING needs its columns in parentheses")
        return join

    def _parse_case(self: Any) -> Any:
        start = self._index
        case = super()._parse_case()  # type: ignore[misc]
        kinds = [token.token_type for token in self._tokens[start : self._index]]
        if kinds.count(TokenType.WHEN) != kinds.count(TokenType.THEN):
            self.raise_error("WHEN needs THEN")
        return case

    def _parse_window(self: Any, this: Any, *options: Any, **named: Any) -> Any:
        if (
            self._curr.token_type is TokenType.FILTER
            and self._next.token_type is TokenType.L_PAREN
            and self._tokens[self._index + 2].token_type is not TokenType.WHERE
        ):
            self.raise_error("FILTER needs WHERE")
        return super()._parse_window(this, *options, **named)  # type: ignore[misc]

    def _parse_star_op(self: Any, *keywords: str) -> Any:
        spark = [word for word in keywords if word != "EXCLUDE"]
        return super()._parse_star_op(*spark)  # type: ignore[misc]

    def _parse_alias(self: Any, *options: Any, **named: Any) -> Any:
        item = super()._parse_alias(*options, **named)  # type: ignore[misc]
        if isinstance(item, exp.Alias) and self._prev.token_type is TokenType.STRING:
            self.raise_error("an alias is a name, in backticks if need be, and no text")
        return item

    def _parse_types(self: Any, *options: Any, **named: Any) -> Any:
        written = self._curr.text.upper()
        sized = self._next.token_type is TokenType.L_PAREN
        around = self.may_be_type
        self.may_be_type = bool(named.get("check_func") or options[:1] == (True,))
        try:
            kind = super()._parse_types(*options, **named)  # type: ignore[misc]
        finally:
            self.may_be_type = around
        if isinstance(kind, exp.DataType) and kind.this is exp.DType.USERDEFINED:
            near = meant_type(written.lower())
            self.raise_error(
                f"there is no type {written.lower()}" + (f"; did you mean {near}?" if near else "")
            )
        if kind is not None and written in _SIZED and not sized:
            self.raise_error(f"{written.lower()} needs a length, such as {written.lower()}(10)")
        return kind

    def _parse_with(self: Any, *options: Any, **named: Any) -> Any:
        clause = super()._parse_with(*options, **named)  # type: ignore[misc]
        names = [cte.alias.lower() for cte in clause.expressions] if clause is not None else []
        for name in names:
            if names.count(name) > 1:
                self.raise_error(f"WITH names {name!r} twice")
        return clause
