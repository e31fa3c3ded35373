"""From an expression of Spark's SQL to DuckDB's SQL, with the type that Spark gives it.

Only what stands in CONSTRUCTS and in the table of functions is translated; everything else raises
NeedsSpark, which names it.
Types are cast explicitly wherever Spark casts, so that DuckDB has nothing to decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from sqlglot import exp

from acid_platform.base.arguments import nearest_name
from acid_platform.engine.local.translation import arithmetic, arrays, casts, dates
from acid_platform.engine.local.translation.casts import (
    Typed,
    as_condition,
    cast,
    common,
    compared,
    named_type,
)
from acid_platform.engine.local.translation.column_names import NameScope, field_of
from acid_platform.engine.local.translation.duckdb_sql import (
    BINARY,
    BOOLEAN,
    DATE,
    NUMERIC,
    STRING,
    VOID,
    Constant,
    in_proportion,
    may_fail,
    take_room,
    text,
    translating,
)
from acid_platform.engine.local.translation.library import call_of
from acid_platform.engine.local.translation.signatures import SIGNATURES, Construct, called
from acid_platform.errors import NeedsSpark, UnknownColumn
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType
from acid_platform.predicates import analysis
from acid_platform.predicates.analysis import parsed
from acid_platform.predicates.grammar import COMPARISONS, SUFFIXED
from acid_platform.predicates.known_columns import is_word


def translate_value(value: str, scope: NameScope, in_order: bool = True) -> Typed:
    """DuckDB's SQL of an expression over the columns of a scope; `in_order`: see Translator.

    Raises InvalidExpression, UnknownColumn, NeedsSpark.
    """
    with in_proportion(value):
        return Translator(scope, in_order).value(parsed(value))


class Translator:
    """Translates the expressions of one SELECT or statement.

    `in_order`: whether AND and OR evaluate what may fail only if the conditions before it don't
    decide, as in Spark. DuckDB's optimizer then can't take them apart.
    """

    def __init__(self, scope: NameScope, in_order: bool = False) -> None:
        self.scope, self.in_order = scope, in_order
        self.parameters: Mapping[str, Typed] = {}
        """Those of the lambdas around the expression, by name in lower case."""

    def value(self, node: exp.Expr) -> Typed:
        """The translation of an expression. Raises as `translate_value`."""
        statement = translating()
        varying, known = statement.varying, len(statement.constants)
        stored = statement.stored
        value = self._translated(node)
        if isinstance(node, _BRANCHING) or value.type.kind not in NUMERIC:
            statement.stored = stored
        if value.foldable != (statement.stored == stored):
            value = replace(value, foldable=not value.foldable)
        if statement.varying == varying:
            if may_fail(value.sql):
                statement.constants[known:] = [Constant(value.sql, node)]
        elif isinstance(node, _BRANCHING):  # Spark computes a branch only for a row that needs it
            query = node.parent_select
            statement.constants[known:] = [
                constant
                for constant in statement.constants[known:]
                if constant.node.parent_select is not query
            ]
        return value

    def _translated(self, node: exp.Expr) -> Typed:
        if isinstance(node, exp.TryCast) and {k for k, v in node.args.items() if v} == {
            *_CAST_PARTS
        }:
            return _within_room(self._cast(node))  # sqlglot's class for Spark's CAST
        if isinstance(node, exp.TryCast) and node.args.get("safe"):
            return _within_room(casts.tried(self.value(node.this), named_type(node.to)))
        call = call_of(node)
        construct = CONSTRUCTS.get(type(node))
        if construct is None or (call is not None and call[0] in SIGNATURES):
            return _within_room(self.call(node))
        for name, part in node.args.items():
            if part and name not in construct.parts:  # an option that the translation ignores
                raise NeedsSpark(f"{name.upper()} of {node.sql('spark')}")
        return _within_room(construct.translate(self, node))

    def condition(self, node: exp.Expr) -> Typed:
        return as_condition(self.value(node), node.sql("spark"))

    # --- literals and names --------------------------------------------------------------------

    def _literal(self, node: exp.Literal) -> Typed:
        if node.is_string:
            return Typed(text(node.this), STRING, literal=str(node.this))
        return arithmetic.number(analysis.number(node.this), node.this)

    def _binary(self, node: exp.HexString) -> Typed:
        return Typed(f"unhex('{'0' * (len(node.this) % 2)}{node.this}')", BINARY)

    def _column(self, node: exp.Column) -> Typed:
        if isinstance(node.this, exp.Star):
            raise NeedsSpark("* inside an expression")
        if node.parts[0].name.lower() in self.parameters:  # in an argument as it was written
            value = self._parameter(node.parts[0])
            return field_of(value, [part.name for part in node.parts[1:]])
        try:
            return self._usable([part.name for part in node.parts])
        except UnknownColumn:
            if is_word(node):  # a function that is written without parentheses
                raise NeedsSpark(node.name) from None
            raise

    def _dot(self, node: exp.Dot) -> Typed:
        if not isinstance(node.expression, exp.Identifier):
            raise NeedsSpark(node.sql("spark"))
        first = node.this
        while isinstance(first, exp.Dot):
            first = first.this
        if isinstance(first, exp.Column):
            return self._usable([part.name for part in node.parts])
        return field_of(self.value(node.this), [node.expression.name])

    def _parameter(self, node: exp.Expr) -> Typed:
        translating().varying += 1
        value = self.parameters.get(node.name.lower())
        if value is None:
            raise NeedsSpark(f"{node.name} outside of its lambda")
        return value

    @contextmanager
    def within(self, parameters: Mapping[str, Typed]) -> Iterator[None]:
        """A block that translates the body of a lambda with these parameters."""
        before, known = self.parameters, len(translating().constants)
        self.parameters = {**before, **parameters}
        try:
            yield
        finally:
            self.parameters = before
            del translating().constants[known:]  # computed only for an element

    def _usable(self, parts: Sequence[str]) -> Typed:
        """A column in an expression, where each CHAR is without its trailing blanks."""
        translating().varying += 1
        value = self.resolve(parts)
        translating().stored += not value.foldable
        if value.declared is not None and value.declared.nested and value.declared.has_char:
            raise NeedsSpark(f"an expression of {value.declared}")
        return value

    def resolve(self, parts: Sequence[str]) -> Typed:
        """The column that a name means."""
        return self.scope.resolve(parts)

    # --- conditions ----------------------------------------------------------------------------

    def _connected(self, node: exp.Connector, ends: str, result: str) -> Typed:
        word, parts = type(node).__name__.upper(), [*map(self._operand, node.flatten())]
        whole = "(" + f" {word} ".join(part.sql for part in parts) + ")"
        if self.in_order and any(may_fail(part.sql) for part in parts[1:]):
            cases = " ".join(f"WHEN {ends} {part.sql} THEN {result}" for part in parts[:-1])
            whole = f"(CASE {cases} ELSE {whole} END)"
        return Typed(whole, BOOLEAN)

    def _operand(self, node: exp.Expr) -> Typed:
        return as_condition(self.value(node), node.sql("spark"), null=True)

    def _not(self, node: exp.Not) -> Typed:
        inner = self._operand(node.this)
        return Typed(f"(NOT {inner.sql})", BOOLEAN)

    def _is(self, node: exp.Is) -> Typed:
        value = self.value(node.this)
        if isinstance(node.expression, exp.Null):
            return Typed(f"({value.sql} IS NULL)", BOOLEAN)
        if isinstance(node.expression, exp.Boolean):
            condition = as_condition(value, node.this.sql("spark"), null=True)
            truth = "TRUE" if node.expression.this else "FALSE"
            return Typed(f"({condition.sql} IS {truth})", BOOLEAN)
        raise NeedsSpark(node.sql("spark"))

    def _between(self, node: exp.Between) -> Typed:
        if node.args.get("symmetric"):
            raise NeedsSpark("BETWEEN SYMMETRIC")
        value = self.value(node.this)
        low = compared(">=", value, self.value(node.args["low"]))
        high = compared("<=", value, self.value(node.args["high"]))
        return Typed(f"({low.sql} AND {high.sql})", BOOLEAN)

    def _in(self, node: exp.In) -> Typed:
        if node.args.get("query"):
            return self.in_query(node)
        if node.args.get("unnest") or not node.expressions:
            raise NeedsSpark(node.sql("spark"))
        if isinstance(node.this, exp.Tuple):
            return self._in_tuples(node)
        given = [self.value(node.this), *map(self.value, node.expressions)]
        if given[0].type.kind == "struct":
            return self._in_structs(given)
        value, *members = common(given)
        inside = ", ".join(member.sql for member in members)
        return Typed(f"({value.sql} IN ({inside}))", BOOLEAN)

    def _in_structs(self, given: Sequence[Typed]) -> Typed:
        kinds = {value.type for value in given}
        if len(kinds) > 1 or any(
            inner.kind in ("array", "map", *FLOATING) for inner in given[0].type.walk()
        ):
            raise NeedsSpark("IN with structs of several types, or of floats, arrays or maps")
        value, *members = (each.sql for each in given)
        return Typed(f"({value} IN ({', '.join(members)}))", BOOLEAN)

    def _in_tuples(self, node: exp.In) -> Typed:
        """Spark compares structs, whose NULLs are equal, and which must be of one type."""
        if not all(isinstance(member, exp.Tuple) for member in node.expressions):
            raise NeedsSpark(node.sql("spark"))
        fields, *members = (
            [self.value(field) for field in each.expressions]
            for each in (node.this, *node.expressions)
        )
        kinds = [field.type for field in fields]
        if any([field.type for field in member] != kinds for member in members) or any(
            field.type == VOID or field.declared is not None
            for each in (fields, *members)
            for field in each
        ):
            raise NeedsSpark("IN with tuples of char, or of several types")
        equal = (
            " AND ".join(
                compared("IS NOT DISTINCT FROM", *pair).sql
                for pair in zip(fields, member, strict=True)
            )
            for member in members
        )
        return Typed(f"({' OR '.join(f'({each})' for each in equal)})", BOOLEAN)

    def in_query(self, node: exp.In) -> Typed:
        """IN with a subquery, where it may stand."""
        raise NeedsSpark(f"the subquery of {node.this.sql('spark')} IN here")

    def _like(self, node: exp.Like | exp.ILike, *escape: Typed) -> Typed:
        name = "like" if isinstance(node, exp.Like) else "ilike"
        pattern = self.value(node.expression.unnest())
        name += " escape" * bool(escape)
        matched = called(name, self.value(node.this), pattern, *escape)
        return replace(matched, sql=f"(NOT {matched.sql})") if node.args.get("negate") else matched

    def _escape(self, node: exp.Escape) -> Typed:
        if not isinstance(node.this, exp.Like | exp.ILike) or node.this.args.get("negate"):
            raise NeedsSpark(node.sql("spark"))
        return self._like(node.this, self.value(node.expression))

    # --- arithmetic ----------------------------------------------------------------------------

    def _arithmetic(self, node: exp.Binary) -> Typed:
        if isinstance(node, exp.Add | exp.Sub) and (by := dates.interval_of(node.right)):
            return dates.moved(self.value(node.left), by, isinstance(node, exp.Sub))
        if isinstance(node, exp.Add) and (by := dates.interval_of(node.left)):
            return dates.moved(self.value(node.right), by)
        left, right = self._number(node.left), self._number(node.right)
        if isinstance(node, exp.Add) and left.type == DATE and right.type.kind in INTEGRAL:
            if self.parameters:
                raise NeedsSpark("a date + a number in a lambda")
            return called("date_add", left, right)
        return arithmetic.binary(type(node), left, right)

    def _number(self, node: exp.Expr) -> Typed:
        """An operand; beside a decimal, `7L` and `7S` have their own digits as `7` has."""
        value, written = self.value(node), node.unnest()
        sign = -1 if isinstance(written, exp.Neg) else 1
        number = written.this if isinstance(written, exp.Neg) else written
        if (
            isinstance(number, exp.Cast)
            and SUFFIXED in number.to.meta
            and value.type.kind in ("smallint", "bigint")
        ):
            return replace(value, literal=sign * int(number.this.name))
        return value

    def _neg(self, node: exp.Neg) -> Typed:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            value = analysis.negated(analysis.number(inner.this))
            return arithmetic.number(value, f"-{inner.this}")
        return arithmetic.negated(self.value(inner))

    # --- text ----------------------------------------------------------------------------------

    # --- casts and calls -----------------------------------------------------------------------

    def _cast(self, node: exp.Cast) -> Typed:
        value = cast(self.value(node.this), named_type(node.to))
        return replace(value, declared=None)  # no longer the CHAR column itself

    def call(self, node: exp.Expr, over: str = "") -> Typed:
        """A call of a function of the table; `over`: the FILTER or OVER clause of an aggregate."""
        name, arguments = call_of(node) or ("", ())
        aggregate = name in SIGNATURES and SIGNATURES[name][0].aggregate
        if name not in SIGNATURES or (over and not aggregate):
            raise NeedsSpark(f"{node.sql('spark')}{_meant(node)}")
        if name == "uuid":
            translating().varying += 1
            if node.parent_select not in (None, node.root()):
                raise NeedsSpark("uuid() in a subquery, which may be computed more than once")
        if aggregate:
            translating().varying += 1
            self.require_aggregates(name)
        return called(name, *(self.argument(part, aggregate) for part in arguments), over=over)

    def require_aggregates(self, name: str) -> None:
        """Raises NeedsSpark if no aggregate may stand here."""
        raise NeedsSpark(f"{name} here")

    def argument(self, node: exp.Expr, aggregate: bool) -> Typed:  # noqa: ARG002
        """An argument of a call: intervals and lambdas have no value of their own."""
        if isinstance(node, exp.Lambda):
            return Typed("", HiveType("lambda"), span=arrays.Lambda(self, node))
        if dates.is_interval(node):
            return Typed("", HiveType("interval"), span=dates.interval_of(node))
        return self.value(node)


def _within_room(value: Typed) -> Typed:
    """Raises NeedsSpark if the statement has no room for it."""
    take_room(len(value.sql))
    return value


def _meant(node: exp.Expr) -> str:
    """A function here whose name is nearly that of a call which nobody knows."""
    if not isinstance(node, exp.Anonymous):
        return ""
    near = nearest_name(node.name.lower(), {n for n in SIGNATURES if " " not in n}, 0.8)
    return f"; did you mean {near}?" if near else ""


# --- what is translated ---------------------------------------------------------------------------


_BRANCHING = (exp.Case, exp.If, exp.Coalesce, exp.DecodeCase, exp.Nullif, exp.Nvl2)
_CAST_PARTS = ("this", "to")
_COMPARISONS = {
    **COMPARISONS,
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_T = Translator
_ORDERED = "types that have an order"
_ESCAPED = "text; a literal pattern, where `_`, `%` and the escape alone are escaped"
_MOVED = "numbers; a date and days or INTERVAL of months"
_NUMBERS = {"+": _MOVED, "-": _MOVED, **dict.fromkeys("*/%", "numbers")}
_COMPARED = (
    _ORDERED,
    lambda translator, node: compared(
        _COMPARISONS[type(node)], translator.value(node.left), translator.value(node.right)
    ),
)
# fmt: off
CONSTRUCTS: dict[type[exp.Expr], Construct] = {
    exp.Literal: Construct("1, 1.5, 1e3, 'text'", "numbers and text", _T._literal,
                           ("this", "is_string")),
    exp.HexString: Construct("X'0AFF'", "binary", _T._binary, ("this", "is_integer")),
    exp.Boolean: Construct("true, false", "boolean",
                           lambda _, node: Typed("true" if node.this else "false", BOOLEAN)),
    exp.Null: Construct("NULL", "all", lambda *_: Typed("NULL", VOID)),
    exp.Column: Construct("a, t.a, a.field", "all", _T._column, ("this", "table", "db", "catalog")),
    exp.Dot: Construct("t.a.field", "structs", _T._dot),
    exp.Identifier: Construct("x -> x + 1", "a parameter of a lambda", _T._parameter,
                              ("this", "quoted")),
    exp.Paren: Construct("(a)", "all", lambda translator, node: translator.value(node.this)),
    exp.And: Construct("a AND b", "conditions", partial(_T._connected, ends="NOT", result="false")),
    exp.Or: Construct("a OR b", "conditions", partial(_T._connected, ends="", result="true")),
    exp.Not: Construct("NOT a", "conditions", _T._not),
    **{kind: Construct(f"a {sign} b", *_COMPARED) for kind, sign in COMPARISONS.items()},
    exp.NullSafeEQ: Construct("a <=> b", *_COMPARED),
    exp.NullSafeNEQ: Construct("a IS DISTINCT FROM b", *_COMPARED),
    exp.Is: Construct("a IS NULL, a IS TRUE, a IS FALSE", "all", _T._is),
    exp.Between: Construct("a BETWEEN b AND c", _ORDERED, _T._between, ("this", "low", "high")),
    exp.In: Construct("a IN (b, c)", f"{_ORDERED}; tuples of exactly the same types", _T._in,
                      ("this", "expressions", "query")),
    exp.Like: Construct("a LIKE 'pattern'", _ESCAPED, _T._like, ("this", "expression", "negate")),
    exp.ILike: Construct("a ILIKE 'pattern'", _ESCAPED, _T._like, ("this", "expression", "negate")),
    exp.Escape: Construct("a LIKE 'pattern' ESCAPE '/'", _ESCAPED, _T._escape),
    **{
        kind: Construct(f"a {sign} b", _NUMBERS.get(sign, "whole numbers"), _T._arithmetic)
        for kind, sign in arithmetic.OPERATORS.items()
    },
    exp.Neg: Construct("-a", "numbers", _T._neg),
    exp.Case: Construct("CASE WHEN a THEN b ELSE c END, CASE a WHEN b THEN c END", "all",
                        casts.case, ("this", "ifs", "default")),
    exp.Cast: Construct("CAST(a AS type)", "but float and double to text or decimal", _T._cast,
                        _CAST_PARTS),
}
# fmt: on
"""Every operator and form that was shown to mean the same in both engines."""
