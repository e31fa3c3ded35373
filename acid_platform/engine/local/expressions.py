"""From an expression of Spark's SQL to DuckDB's SQL, with the type that Spark gives it.

Only what stands in functions.py is translated; everything else raises NeedsSpark, which names it.
Types are cast explicitly wherever Spark casts, so that DuckDB has nothing to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from acid_platform.engine.local import arithmetic
from acid_platform.engine.local.casts import Typed, cast
from acid_platform.engine.local.comparison import common, compared
from acid_platform.engine.local.duckdb_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOATING,
    INT,
    NUMERIC,
    STRING,
    TIMESTAMP,
    VOID,
    duckdb_type,
    spark_name,
    text,
    widest,
)
from acid_platform.engine.local.functions import AGGREGATES, CONSTRUCTS, Function, Takes, calls_of
from acid_platform.engine.local.scope import NameScope
from acid_platform.errors import InvalidExpression, NeedsSpark, UnknownColumn
from acid_platform.layout.types import INTEGRAL, HiveType
from acid_platform.predicates import literals
from acid_platform.predicates.analysis import parse
from acid_platform.predicates.known_columns import is_word


def translate_value(value: str, scope: NameScope) -> Typed:
    """DuckDB's SQL of an expression over the columns of a scope.

    Raises InvalidExpression, UnknownColumn, NeedsSpark.
    """
    return Translator(scope).value(parse(value))


def as_condition(value: Typed, shown: str, null: bool = False) -> Typed:
    """Raises InvalidExpression if the value is no condition.

    `null`: whether NULL without a type is one. It is for the verbs of a table, and in AND, OR, NOT
    and IS; in clauses of SQL and in choices, Spark takes only booleans.
    """
    if value.type != BOOLEAN and not (null and value.type == VOID):
        raise InvalidExpression(
            f"{shown} has the type {spark_name(value.type)} and is not a condition; compare it with"
            " a value"
        )
    return cast(value, BOOLEAN)


class Translator:
    """Translates the expressions of one SELECT or statement."""

    def __init__(self, scope: NameScope) -> None:
        self.scope = scope

    def value(self, node: exp.Expr) -> Typed:
        """The translation of an expression. Raises as `translate_value`."""
        if isinstance(node, exp.TryCast) and {k for k, v in node.args.items() if v} == _CAST:
            return self._cast(node)  # sqlglot's class for Spark's CAST
        translate = _CONSTRUCTS.get(type(node))
        if translate is not None:
            _require_known_parts(node)
            return translate(self, node)
        return self._call(node)

    def condition(self, node: exp.Expr) -> Typed:
        return as_condition(self.value(node), node.sql("spark"))

    # --- literals and names --------------------------------------------------------------------

    def _literal(self, node: exp.Literal) -> Typed:
        if node.is_string:
            return Typed(text(node.this), STRING, literal=str(node.this))
        return number(literals.number(node.this), node.this)

    def _boolean(self, node: exp.Boolean) -> Typed:
        return Typed("true" if node.this else "false", BOOLEAN)

    def _null(self, _: exp.Null) -> Typed:
        return Typed("NULL", VOID)

    def _column(self, node: exp.Column) -> Typed:
        if isinstance(node.this, exp.Star):
            raise NeedsSpark("* inside an expression")
        try:
            return self._usable([part.name for part in node.parts])
        except UnknownColumn:
            if is_word(node):  # a function that is written without parentheses
                raise NeedsSpark(node.name) from None
            raise

    def _dot(self, node: exp.Dot) -> Typed:
        if not all(isinstance(part, exp.Identifier) for part in node.parts):
            raise NeedsSpark(node.sql("spark"))
        return self._usable([part.name for part in node.parts])

    def _usable(self, parts: Sequence[str]) -> Typed:
        """A column in an expression, where each CHAR is without its trailing blanks."""
        value = self.resolve(parts)
        if value.declared is not None and value.declared.nested and value.declared.has_char:
            raise NeedsSpark(f"an expression of {value.declared}")
        return value

    def resolve(self, parts: Sequence[str]) -> Typed:
        """The column that a name means."""
        return self.scope.resolve(parts)

    def _paren(self, node: exp.Paren) -> Typed:
        return self.value(node.this)

    # --- conditions ----------------------------------------------------------------------------

    def _and(self, node: exp.And) -> Typed:
        return self._in_order(node, "AND", "NOT", "false")

    def _or(self, node: exp.Or) -> Typed:
        return self._in_order(node, "OR", "", "true")

    def _in_order(self, node: exp.Connector, word: str, ends: str, result: str) -> Typed:
        """As in Spark, a condition that may fail is not evaluated if those before it decide."""
        parts = [self._operand(part) for part in node.flatten()]
        whole = "(" + f" {word} ".join(part.sql for part in parts) + ")"
        if any(part.fails for part in parts[1:]):
            cases = " ".join(f"WHEN {ends} {part.sql} THEN {result}" for part in parts[:-1])
            whole = f"(CASE {cases} ELSE {whole} END)"
        return Typed(whole, BOOLEAN, any(part.fails for part in parts))

    def _operand(self, node: exp.Expr) -> Typed:
        return as_condition(self.value(node), node.sql("spark"), null=True)

    def _not(self, node: exp.Not) -> Typed:
        inner = self._operand(node.this)
        return Typed(f"(NOT {inner.sql})", BOOLEAN, inner.fails)

    def _is(self, node: exp.Is) -> Typed:
        value = self.value(node.this)
        if isinstance(node.expression, exp.Null):
            return Typed(f"({value.sql} IS NULL)", BOOLEAN, value.fails)
        if isinstance(node.expression, exp.Boolean):
            condition = as_condition(value, node.this.sql("spark"), null=True)
            wanted = "TRUE" if node.expression.this else "FALSE"
            return Typed(f"({condition.sql} IS {wanted})", BOOLEAN, value.fails)
        raise NeedsSpark(node.sql("spark"))

    def _comparison(self, node: exp.Binary) -> Typed:
        operator = _COMPARISONS[type(node)]
        return compared(operator, self.value(node.left), self.value(node.right))

    def _between(self, node: exp.Between) -> Typed:
        if node.args.get("symmetric"):
            raise NeedsSpark("BETWEEN SYMMETRIC")
        value = self.value(node.this)
        low = compared(">=", value, self.value(node.args["low"]))
        high = compared("<=", value, self.value(node.args["high"]))
        return Typed(f"({low.sql} AND {high.sql})", BOOLEAN, low.fails or high.fails)

    def _in(self, node: exp.In) -> Typed:
        if node.args.get("query"):
            return self.in_query(node)
        if node.args.get("unnest") or not node.expressions:
            raise NeedsSpark(node.sql("spark"))
        value, *members = common([self.value(node.this), *map(self.value, node.expressions)])
        inside = ", ".join(member.sql for member in members)
        return Typed(
            f"({value.sql} IN ({inside}))", BOOLEAN, any(one.fails for one in (value, *members))
        )

    def in_query(self, node: exp.In) -> Typed:
        """IN with a subquery, where it may stand."""
        raise NeedsSpark(f"the subquery of {node.this.sql('spark')} IN here")

    def _like(self, node: exp.Like) -> Typed:
        value, pattern = self.value(node.this), node.expression
        if not (isinstance(pattern, exp.Literal) and pattern.is_string) or "\\" in pattern.this:
            raise NeedsSpark("LIKE with a pattern that is no plain literal")
        if value.type != STRING:
            raise NeedsSpark(f"LIKE of {spark_name(value.type)}")
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        return Typed(f"({value.sql} {word} {text(pattern.this)})", BOOLEAN, value.fails)

    # --- arithmetic ----------------------------------------------------------------------------

    def _arithmetic(self, node: exp.Binary) -> Typed:
        return arithmetic.binary(type(node), self.value(node.left), self.value(node.right))

    def _neg(self, node: exp.Neg) -> Typed:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number(literals.negated(literals.number(inner.this)), f"-{inner.this}")
        return arithmetic.negated(self.value(inner))

    def _complement(self, node: exp.BitwiseNot) -> Typed:
        value = self.value(node.this)
        if value.type.kind not in INTEGRAL:
            raise NeedsSpark(f"~ of {spark_name(value.type)}")
        return Typed(f"CAST(~{value.sql} AS {duckdb_type(value.type)})", value.type, value.fails)

    def _round(self, node: exp.Round) -> Typed:
        value = self.value(node.this)
        digits = self.value(node.args["decimals"]).literal if node.args.get("decimals") else 0
        return arithmetic.rounded(value, digits)

    # --- text ----------------------------------------------------------------------------------

    def _concat(self, node: exp.Expr) -> Typed:
        nodes = node.flatten() if isinstance(node, exp.DPipe) else node.expressions
        parts = [self.value(part) for part in nodes]
        if not all(part.type in (STRING, VOID) for part in parts):
            raise NeedsSpark("concat of anything but text; cast it to string")
        done = " || ".join(cast(part, STRING).sql for part in parts)
        return Typed(f"({done})", STRING, any(part.fails for part in parts))

    # --- choices -------------------------------------------------------------------------------

    def _case(self, node: exp.Case) -> Typed:
        branches = []
        for branch in node.args["ifs"]:
            if node.this is None:
                branches.append((self.condition(branch.this), self.value(branch.args["true"])))
            else:
                test = compared("=", self.value(node.this), self.value(branch.this))
                branches.append((test, self.value(branch.args["true"])))
        return self._cases(branches, node.args.get("default"))

    def _if(self, node: exp.If) -> Typed:
        branch = (self.condition(node.this), self.value(node.args["true"]))
        return self._cases([branch], node.args.get("false"))

    def _nvl2(self, node: exp.Nvl2) -> Typed:
        value = self.value(node.this)
        test = Typed(f"({value.sql} IS NOT NULL)", BOOLEAN, value.fails)
        return self._cases([(test, self.value(node.args["true"]))], node.args.get("false"))

    def _cases(self, branches: Sequence[tuple[Typed, Typed]], default: exp.Expr | None) -> Typed:
        other = Typed("NULL", VOID) if default is None else self.value(default)
        *values, last = self._in_one_type([*(value for _, value in branches), other], "CASE")
        whens = " ".join(
            f"WHEN {test.sql} THEN {value.sql}"
            for (test, _), value in zip(branches, values, strict=True)
        )
        fails = any(one.fails for one in (*(test for test, _ in branches), *values, last))
        return Typed(f"(CASE {whens} ELSE {last.sql} END)", last.type, fails)

    def _coalesce(self, node: exp.Coalesce) -> Typed:
        values = self._in_one_type(self._all(node), "coalesce")
        # Not DuckDB's coalesce: CASE is known to evaluate what it needs and no more.
        whens = " ".join(f"WHEN {one.sql} IS NOT NULL THEN {one.sql}" for one in values[:-1])
        done = f"(CASE {whens} ELSE {values[-1].sql} END)" if whens else values[-1].sql
        return Typed(done, values[-1].type, any(one.fails for one in values))

    def _nullif(self, node: exp.Nullif) -> Typed:
        value = self.value(node.this)
        test = compared("=", value, self.value(node.expression))
        done = f"(CASE WHEN {test.sql} THEN NULL ELSE {value.sql} END)"
        return Typed(done, value.type, value.fails or test.fails)

    def _greatest(self, node: exp.Expr) -> Typed:
        values = self._in_one_type(self._all(node), "greatest and least")
        if not ordered(values[0].type):
            raise NeedsSpark(f"greatest and least of {spark_name(values[0].type)}")
        name = "greatest" if isinstance(node, exp.Greatest) else "least"
        done = f"{name}({', '.join(one.sql for one in values)})"
        return Typed(done, values[0].type, any(one.fails for one in values))

    def _all(self, node: exp.Expr) -> list[Typed]:
        return [self.value(part) for part in (node.this, *node.expressions)]

    def _in_one_type(self, values: Sequence[Typed], shown: str) -> list[Typed]:
        kind = widest(value.type for value in values)
        if kind is None:
            kinds = ", ".join(spark_name(value.type) for value in values)
            raise NeedsSpark(f"{shown} of {kinds}")
        return [value if kind == VOID else cast(value, kind) for value in values]

    # --- casts and calls -----------------------------------------------------------------------

    def _cast(self, node: exp.Cast) -> Typed:
        done = cast(self.value(node.this), named_type(node.to))
        return replace(done, declared=None)  # no longer the CHAR column itself

    def _call(self, node: exp.Expr, over: str = "") -> Typed:
        given: list[HiveType] = []
        name = ""
        for function, arguments in calls_of(node):
            name = function.name
            if function in AGGREGATES:
                self.require_aggregates(name)
            values = {letter: self.argument(function, part) for letter, part in arguments.items()}
            given = [value.type for value in values.values()]
            done = called(function, values, over)
            if done is not None:
                return done
        if name:
            raise NeedsSpark(f"{name}({', '.join(map(spark_name, given))})")
        raise NeedsSpark(node.sql("spark"))

    def require_aggregates(self, name: str) -> None:
        """Raises NeedsSpark if no aggregate may stand here."""
        raise NeedsSpark(f"{name} here")

    def argument(self, _: Function, node: exp.Expr) -> Typed:
        return self.value(node)


def called(function: Function, values: dict[str, Typed], over: str = "") -> Typed | None:
    """The call, or None if the function does not take these values.

    `over` is the FILTER or OVER clause of an aggregate.
    """
    accepted = {}
    for letter, takes in zip(("a", "b", "c"), function.takes, strict=False):
        value = _accepted(values[letter], takes)
        if value is None:
            return None
        accepted[letter] = value
    parts = {letter: value.sql for letter, value in accepted.items()}
    types = [value.type for value in accepted.values()]
    template = function.sql if isinstance(function.sql, str) else function.sql(types)
    done = template.format(over=over, **parts)
    gives = function.gives if isinstance(function.gives, HiveType) else function.gives(types)
    fails = function.fails or any(value.fails for value in accepted.values())
    return Typed(f"CAST({done} AS {duckdb_type(gives)})", gives, fails)


def _accepted(value: Typed, takes: Takes) -> Typed | None:
    """The value as a function takes it, cast as Spark casts arguments; None if it does not."""
    kind = value.type
    match takes:
        case "any":
            return value
        case "ordered" if ordered(kind):
            return value
        case "string" if kind == STRING:
            return value
        case "condition" if kind == BOOLEAN:
            return value
        case "integral" if kind.kind in INTEGRAL:
            return value
        case "int" if kind.kind in INTEGRAL and kind != BIGINT:
            return cast(value, INT)
        case "count" if isinstance(value.literal, int) and 0 <= value.literal < 1 << 20:
            return value
        case "pad" if isinstance(value.literal, str) and value.literal:
            return value
        case "decimal" if kind.kind == "decimal":
            return value
        case "number" if kind.kind in NUMERIC and not arithmetic.too_long_to_negate(kind):
            return value
        case "double" if kind.kind in FLOATING:
            return cast(value, DOUBLE)
        case "date" if kind in (DATE, TIMESTAMP):
            return cast(value, DATE)
        case "timestamp" if kind in (DATE, TIMESTAMP):
            return cast(value, TIMESTAMP)
    return None


def ordered(kind: HiveType) -> bool:
    """Whether both engines order the values of the type alike."""
    return not kind.nested and kind != VOID


def number(value: int | Decimal | float, written: str) -> Typed:
    """A literal number: its type is the narrowest of int, bigint, decimal; double with exponent."""
    if isinstance(value, float):
        return Typed(f"CAST({written} AS DOUBLE)", DOUBLE)
    if isinstance(value, int):
        kind = arithmetic.type_of_whole(value)
    else:
        kind = arithmetic.type_of_decimal(value)
    return Typed(f"CAST({text(written)} AS {duckdb_type(kind)})", kind, literal=value)


def named_type(to: exp.DataType) -> HiveType:
    """The type that a CAST names. Raises NeedsSpark for one that is not known here."""
    known = {
        exp.DType.BOOLEAN: BOOLEAN,
        exp.DType.TINYINT: HiveType("tinyint"),
        exp.DType.SMALLINT: HiveType("smallint"),
        exp.DType.INT: INT,
        exp.DType.BIGINT: BIGINT,
        exp.DType.FLOAT: HiveType("float"),
        exp.DType.DOUBLE: DOUBLE,
        exp.DType.TEXT: STRING,
        exp.DType.DATE: DATE,
        exp.DType.TIMESTAMPTZ: TIMESTAMP,  # sqlglot's name for Spark's TIMESTAMP
        exp.DType.TIMESTAMPLTZ: TIMESTAMP,
    }
    if to.this == exp.DType.DECIMAL:
        sizes = [int(size.name) for size in to.expressions]
        precision, scale = (*sizes, *(10, 0)[len(sizes) :])
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return HiveType("decimal", (precision, scale))
    elif to.this in known and not to.expressions:
        return known[to.this]
    raise NeedsSpark(f"the type {to.sql('spark')}")


_CAST = {"this", "to"}
_OPERANDS = {"this", "expression", "safe"}
_BRANCHES = {"this", "true", "false"}
_MEMBERS = {"this", "expressions", "safe", "ignore_nulls"}
_PARTS: dict[type[exp.Expr], set[str]] = {
    exp.Literal: {"this", "is_string"},
    exp.Column: {"this", "table", "db", "catalog"},
    exp.Between: {"this", "low", "high"},
    exp.In: {"this", "expressions", "query"},
    exp.Like: {"this", "expression", "negate"},
    exp.Round: {"this", "decimals"},
    exp.Concat: _MEMBERS,
    exp.Coalesce: _MEMBERS,
    exp.Greatest: _MEMBERS,
    exp.Least: _MEMBERS,
    exp.Case: {"this", "ifs", "default"},
    exp.If: _BRANCHES,
    exp.Nvl2: _BRANCHES,
    exp.Cast: _CAST,
}
"""The parts of a node that its translation knows, where they are more than two operands."""


def _require_known_parts(node: exp.Expr) -> None:
    """Raises NeedsSpark for a node with a part, such as an option, that no translation reads."""
    known = _PARTS.get(type(node), _OPERANDS)
    for name, part in node.args.items():
        if part and name not in known:
            raise NeedsSpark(f"{name.upper()} of {node.sql('spark')}")


_COMPARISONS = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_CONSTRUCTS: dict[type[exp.Expr], Callable[..., Typed]] = {
    exp.Literal: Translator._literal,
    exp.Boolean: Translator._boolean,
    exp.Null: Translator._null,
    exp.Column: Translator._column,
    exp.Dot: Translator._dot,
    exp.Paren: Translator._paren,
    exp.And: Translator._and,
    exp.Or: Translator._or,
    exp.Not: Translator._not,
    exp.Is: Translator._is,
    exp.Between: Translator._between,
    exp.In: Translator._in,
    exp.Like: Translator._like,
    **dict.fromkeys(_COMPARISONS, Translator._comparison),
    **dict.fromkeys(arithmetic.OPERATORS, Translator._arithmetic),
    exp.Neg: Translator._neg,
    exp.BitwiseNot: Translator._complement,
    exp.Round: Translator._round,
    exp.DPipe: Translator._concat,
    exp.Concat: Translator._concat,
    exp.Case: Translator._case,
    exp.If: Translator._if,
    exp.Nvl2: Translator._nvl2,
    exp.Coalesce: Translator._coalesce,
    exp.Nullif: Translator._nullif,
    exp.Greatest: Translator._greatest,
    exp.Least: Translator._greatest,
    exp.Cast: Translator._cast,
}
assert _CONSTRUCTS.keys() == CONSTRUCTS.keys()
