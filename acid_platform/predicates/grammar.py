"""sqlglot's dialects of Spark and Hive as we use them.

SparkSql has the operators of Spark's parser: their order, and no others.

sqlglot has one level for `&`, `^`, `|`, `||` and shifts, lets `<` bind before `=`, takes NOT for an
operand and predicates one after another, and knows operators of other systems. Spark has, from the
first to bind: unary `+ - ~`; `* / % DIV`; `+ - ||`; shifts; `&`; `^`; `|`; comparisons, `=` and
`<=>` among them; one predicate such as LIKE, IN, BETWEEN or IS; NOT; AND; OR.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import TokenType, exp, tokens
from sqlglot.dialects.hive import Hive
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.hive import HiveParser
from sqlglot.parsers.spark import SparkParser

from acid_platform.errors import UnsupportedStatement
from acid_platform.predicates.clauses import Clauses, Messages


def require_interpreted() -> None:
    """Raises UnsupportedStatement if sqlglot is compiled: then it has no parsers but its own."""
    if getattr(tokens, "SQLGLOTC_INSTALLED", False):
        raise UnsupportedStatement(
            "sqlglotc is installed, the compiled form of sqlglot, on which no other grammar can"
            " build (dagster-dbt brings it): pip uninstall sqlglotc leaves sqlglot, which does the"
            " same"
        )


require_interpreted()

_TYPES = {
    *(
        "ARRAY",
        "BIGINT",
        "BINARY",
        "BOOLEAN",
        "BYTE",
        "CHAR",
        "CHARACTER",
        "DATE",
        "DEC",
        "DECIMAL",
    ),
    *("DOUBLE", "FLOAT", "GEOGRAPHY", "GEOMETRY", "INT", "INTEGER", "INTERVAL", "LONG", "MAP"),
    *("NULL", "NUMERIC", "OBJECT", "RANGE", "REAL", "SHORT", "SMALLINT", "STRING", "STRUCT"),
    *("TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TINYINT", "UNION", "VARCHAR"),
    *("VARIANT", "UNKNOWN"),
}
"""Words of Spark's types, and those that mean something else; sqlglot knows types of others."""
_COMPARISONS: dict[TokenType, type[exp.Binary]] = {
    TokenType.EQ: exp.EQ,
    TokenType.NEQ: exp.NEQ,
    TokenType.NULLSAFE_EQ: exp.NullSafeEQ,
    TokenType.GT: exp.GT,
    TokenType.GTE: exp.GTE,
    TokenType.LT: exp.LT,
    TokenType.LTE: exp.LTE,
}
COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
"""The operators that compare as an order does, and their signs."""
_SIGNS = ("/*+", "==", "::", "||", "|>", ">=", "<=", "<>", "!=", "<=>", "->", "=>")
"""Those of more than one character. Other systems have `~~`, which is `~` twice here."""
_BITS: tuple[tuple[TokenType, type[exp.Binary]], ...] = (
    (TokenType.PIPE, exp.BitwiseOr),
    (TokenType.CARET, exp.BitwiseXor),
    (TokenType.AMP, exp.BitwiseAnd),
)
"""The last to bind first."""


CALLED, ARGUMENTS, UNIT, IS_NOT = "called", "arguments", "unit", "is not"
SIGNED, SUFFIXED = "signed", "suffixed"
"""What a node's `meta` says of the text, since Spark names columns by what was written: the name of
the function in lower case and its arguments in their order, the unit of `extract`, whether it is an
`IS NOT`, whether a number has a plus sign, and of a type whether it was a number's suffix as in
`1L`. sqlglot has one node for `nvl` and `coalesce`, patterns of its own, and another order of
arguments."""
_RUNS_CODE = ("java_method", "reflect", "try_reflect")
"""Functions of Spark that call any method of Java by its name (P67)."""


_SUFFIXES = ("L", "S", "Y", "D", "F", "BD")
"""What a number ends in that is of another type than its digits."""


class Written(tuple[exp.Expr, ...]):
    """Nodes that a copy of the tree shares, which a copy for each would make again and again."""

    def __deepcopy__(self, _: object) -> Written:
        return self


SCALARS = frozenset(
    """
    aggregate array_append array_compact array_concat array_contains array_distinct array_except
    array_insert array_intersect array_join array_max array_min array_position array_prepend
    array_remove array_size array_sort array_to_string array_union arrays_overlap arrays_zip
    cardinality date_diff date_from_unix_date date_part date_sub date_trunc dateadd datediff
    datepart dayname element_at exists filter flatten forall from_json from_unixtime
    from_utc_timestamp get_json_object json_array_length json_object_keys make_date make_interval
    make_timestamp map map_concat map_contains_key map_entries map_filter map_from_arrays
    map_from_entries map_keys map_values monthname months_between named_struct next_day parse_url
    reduce reverse sequence size slice sort_array str_to_map struct 
    timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff to_date to_json
    to_timestamp to_timestamp_ltz to_unix_timestamp to_utc_timestamp transform transform_keys
    transform_values trunc try_element_at try_parse_url try_to_date try_to_timestamp unix_date
    unix_micros unix_millis unix_seconds unix_timestamp url_decode url_encode weekday zip_with
    """.upper().split()
)
AGGREGATES_AS_WRITTEN = frozenset(
    ("APPROX_PERCENTILE", "EVERY", "MAX_BY", "MEAN", "MIN_BY", "PERCENTILE", "PERCENTILE_APPROX",
     "SOME", "STD", "TRY_AVG", "TRY_SUM")
)  # fmt: skip
"""Scalar functions and aggregates whose calls keep their name and their arguments as they were
written. sqlglot's own nodes reorder arguments, lose patterns of Java and the names of synonyms."""


def _pattern(kind: type[exp.Binary]) -> Any:
    def parse(self: Any, this: exp.Expr) -> Any:
        predicate = self.expression(kind(this=this, expression=self._parse_comparison()))
        return self._parse_escape(predicate)

    return parse


class _Operators(Clauses):
    """Overrides sqlglot's parser, whose methods have these names."""

    CONJUNCTION: ClassVar[Any] = {TokenType.AND: exp.And}
    DISJUNCTION: ClassVar[Any] = {TokenType.OR: exp.Or}
    FACTOR: ClassVar = {
        TokenType.DIV: exp.IntDiv,
        TokenType.MOD: exp.Mod,
        TokenType.SLASH: exp.Div,
        TokenType.STAR: exp.Mul,
    }
    UNARY_PARSERS: ClassVar = {
        TokenType.PLUS: lambda self: self._plus(),
        TokenType.TILDE: lambda self: self.expression(exp.BitwiseNot(this=self._parse_unary())),
        TokenType.DASH: lambda self: self.expression(exp.Neg(this=self._parse_unary())),
    }
    RANGE_PARSERS: ClassVar = {
        TokenType.BETWEEN: lambda self, this: self._parse_between(this),
        TokenType.ILIKE: _pattern(exp.ILike),
        TokenType.IN: lambda self, this: self._parse_in(this),
        TokenType.IS: lambda self, this: self._parse_is_or_is_not(this),
        TokenType.LIKE: _pattern(exp.Like),
        TokenType.RLIKE: _pattern(exp.RegexpLike),
    }

    def _parse_equality(self: Any, parse_is: bool = True) -> Any:  # noqa: ARG002
        if self._match(TokenType.NOT):
            return self.expression(exp.Not(this=self._parse_equality()))
        return self._parse_range()

    def _parse_range(
        self: Any,
        this: exp.Expr | None = None,
        parse_is: bool = False,  # noqa: ARG002
    ) -> Any:
        this = this or self._parse_comparison()
        if isinstance(this, exp.Exists) and self._curr.token_type in self.RANGE_PARSERS:
            self.raise_error("EXISTS is no value; put it into parentheses")
        following = self._next if self._curr.token_type is TokenType.NOT else self._curr
        if this is None or following.token_type not in self.RANGE_PARSERS:
            return this
        negated = self._match(TokenType.NOT)
        if negated and following.token_type is TokenType.IS:
            self.raise_error("NOT before IS")
        self._advance()
        predicate = self.RANGE_PARSERS[self._prev.token_type](self, this)
        return self._negate_range(predicate) if negated else predicate

    def _parse_comparison(self: Any, this: exp.Expr | None = None) -> Any:
        this = this or self._parse_bitwise()
        while True:
            if self._match_set(_COMPARISONS):
                kind = _COMPARISONS[self._prev.token_type]
            elif self._joined(TokenType.NOT, TokenType.GT):
                kind = exp.LTE
            elif self._joined(TokenType.NOT, TokenType.LT):
                kind = exp.GTE
            else:
                return this
            sides = (this, self._parse_bitwise())
            if any(isinstance(side, exp.Exists) for side in sides):
                self.raise_error("EXISTS is no value; put it into parentheses")
            this = self.expression(kind(this=sides[0], expression=sides[1]))

    def _parse_bitwise(self: Any, level: int = 0) -> Any:
        if level == len(_BITS):
            return self._shifted()
        token, kind = _BITS[level]
        this = self._parse_bitwise(level + 1)
        while self._match(token):
            this = self.expression(kind(this=this, expression=self._parse_bitwise(level + 1)))
        return this

    def _shifted(self: Any) -> Any:
        this = self._parse_term()
        while True:
            if self._joined(TokenType.GT, TokenType.GT, TokenType.GT):
                sides = [this, self._parse_term()]
                this = self.expression(exp.Anonymous(this="shiftrightunsigned", expressions=sides))
            elif self._joined(TokenType.GT, TokenType.GT):
                this = self.expression(
                    exp.BitwiseRightShift(this=this, expression=self._parse_term())
                )
            elif self._joined(TokenType.LT, TokenType.LT):
                this = self.expression(
                    exp.BitwiseLeftShift(this=this, expression=self._parse_term())
                )
            else:
                return this

    def _parse_term(self: Any, parse_mod: bool = True) -> Any:
        this = self._parse_factor(parse_mod=parse_mod)
        while True:
            if self._match(TokenType.DPIPE):
                following = self._parse_factor(parse_mod=parse_mod)
                this = self.expression(exp.DPipe(this=this, expression=following, safe=True))
            elif self._match_set(self.TERM):
                kind = self.TERM[self._prev.token_type]
                following = self._parse_factor(parse_mod=parse_mod)
                this = self.expression(kind(this=this, expression=following))
            else:
                return this

    def _parse_dcolon(self: Any) -> Any:
        suffixed = self._curr is not None and self._curr.text.upper() in _SUFFIXES
        kind = super()._parse_dcolon()  # type: ignore[misc]
        if suffixed and kind is not None:
            kind.meta[SUFFIXED] = True
        return kind

    def _plus(self: Any) -> Any:
        operand = self._parse_unary()
        if isinstance(operand, exp.Literal) and not operand.is_string:
            operand.meta[SIGNED] = True
            return operand
        return self.expression(exp.Anonymous(this="positive", expressions=[operand]))

    def _parse_between(self: Any, this: exp.Expr | None) -> Any:
        low = self._parse_comparison()
        if not self._match(TokenType.AND):
            self.raise_error("BETWEEN needs AND")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_comparison()))

    def _parse_in(self: Any, this: exp.Expr | None, alias: bool = False) -> Any:
        if self._curr.token_type is not TokenType.L_PAREN:
            self.raise_error("IN needs parentheses")
        predicate = super()._parse_in(this, alias)  # type: ignore[misc]
        if not (predicate.expressions or predicate.args.get("query")):
            self.raise_error("IN needs a value")
        return predicate

    def _parse_is_or_is_not(self: Any, this: exp.Expr) -> Any:
        predicate = self._parse_is(this)
        if isinstance(predicate, exp.Not):
            predicate.meta[IS_NOT] = True
        return predicate

    def validate_expression(self: Any, expression: exp.Expr, args: Any = None) -> Any:
        if args is not None and self.called:
            expression.meta[CALLED], expression.meta[ARGUMENTS] = self.called[-1], Written(args)
        return super().validate_expression(expression, args)

    def _parse_function_call(self: Any, *arguments: Any, **options: Any) -> Any:
        written = self._curr.text.lower() if self._curr else ""
        begins = self._index
        after = self._tokens[begins + 1 : begins + 2]
        if written in _RUNS_CODE and after and after[0].token_type is TokenType.L_PAREN:
            raise UnsupportedStatement(
                f"{written}(…) is not supported: it would run a method of Java that the text names,"
                " also where a view has it; compute the value in Python"
            )
        around, self.called = self.called, (*self.called, written)
        try:
            call = super()._parse_function_call(*arguments, **options)  # type: ignore[misc]
        except (LookupError, AttributeError, TypeError, ValueError) as error:
            if isinstance(error, SqlglotError):
                raise
            self.raise_error(f"{written}() can't have these arguments")  # sqlglot's builders failed
        finally:
            self.called = around
        if isinstance(call, exp.Func) and not isinstance(call, exp.Case):
            call.meta[CALLED] = written
            if isinstance(call, exp.Extract):
                call.meta[UNIT] = self._tokens[begins + 2].text
            elif written == "substr" and self._has_from(begins):
                call.meta[CALLED] = "substring"
        return call

    def _has_from(self: Any, begins: int) -> bool:
        """Whether FROM stands in the parentheses of a call, and in none that are inside."""
        depth = 0
        for token in self._tokens[begins + 1 : self._index]:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if depth == 1 and token.token_type is TokenType.FROM:
                return True
        return False

    def _parse_position(self: Any, haystack_first: bool = False) -> Any:
        begins = self._index
        node = super()._parse_position(haystack_first)  # type: ignore[misc]
        if node.args.get("position") is not None or not self._is_in(begins):
            given = (node.args.get(part) for part in ("substr", "this", "position"))
            node.meta[ARGUMENTS] = Written(part for part in given if part is not None)
        return node

    def _is_in(self: Any, begins: int) -> bool:
        """Whether the first value since then is followed by IN, and not by a comma."""
        depth = 0
        for token in self._tokens[begins : self._index]:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            if depth == 0 and token.token_type in (TokenType.IN, TokenType.COMMA):
                return bool(token.token_type is TokenType.IN)
        return False

    def _parse_is_rhs(self: Any, distinct: bool = False) -> Any:
        if distinct:
            return self._parse_comparison()
        if self._curr.token_type in (TokenType.NULL, TokenType.TRUE, TokenType.FALSE):
            return self._parse_primary()
        return exp.var("UNKNOWN") if self._match_text_seq("UNKNOWN") else None

    def _joined(self: Any, *kinds: TokenType) -> bool:
        """Matches tokens with nothing between them, which Spark takes for one operator."""
        tokens = self._tokens[self._index : self._index + len(kinds)]
        if [token.token_type for token in tokens] != list(kinds) or any(
            before.end + 1 != after.start for before, after in pairwise(tokens)
        ):
            return False
        self._advance(len(kinds))
        return True


class SparkSql(Spark):
    """Spark's expressions."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS: ClassVar = {
            text: token
            for text, token in Spark.Tokenizer.KEYWORDS.items()
            if text in _SIGNS
            or (text[0].isalpha() and (text in _TYPES or token not in SparkParser.TYPE_TOKENS))
        }

    class Parser(_Operators, SparkParser):
        FUNCTIONS: ClassVar = {
            name: build
            for name, build in SparkParser.FUNCTIONS.items()
            if name not in SCALARS | AGGREGATES_AS_WRITTEN
        }
        FUNCTION_PARSERS: ClassVar = {
            name: parse
            for name, parse in SparkParser.FUNCTION_PARSERS.items()
            if name not in AGGREGATES_AS_WRITTEN
        }


class HiveSql(Hive):
    """Hive's declarations."""

    class Tokenizer(Hive.Tokenizer):
        KEYWORDS: ClassVar = {
            text: token
            for text, token in Hive.Tokenizer.KEYWORDS.items()
            if text in _TYPES or token not in HiveParser.TYPE_TOKENS
        }

    class Parser(Messages, HiveParser):
        pass
