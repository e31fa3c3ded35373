"""What a call names, and its arguments: as they were written, and as the table of functions has it.

What is neither there nor among the operators of expressions.py needs Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from acid_platform.engine.local.translation import (  # noqa: F401  which add to the table
    arrays,
    json_urls,
    library,
)
from acid_platform.engine.local.translation.aggregates import MOMENTS
from acid_platform.engine.local.translation.signatures import SIGNATURES
from acid_platform.errors import NeedsSpark
from acid_platform.predicates.grammar import ARGUMENTS, CALLED

Call = tuple[str, tuple[exp.Expr, ...]]
_PARTS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Overlay: ("this", "expression", "from_", "for_"),
    exp.Substring: ("this", "start", "length"),
    exp.Ceil: ("this", "decimals"),
    exp.Floor: ("this", "decimals"),
    exp.Initcap: ("this",),
    exp.Decode: ("this", "charset"),
    exp.Encode: ("this", "charset"),
}
"""The arguments of nodes that do not tell them, in their order."""
_SKIPPING = ("first", "first_value", "any_value", "last", "last_value")
"""What may stand before IGNORE NULLS as an aggregate."""


def arguments_of(node: exp.Expr) -> Call | None:
    """The name of a call as it was written, in lower case, and its arguments; None for others."""
    called, given = node.meta.get(CALLED), node.meta.get(ARGUMENTS)
    match node:
        case exp.GroupConcat() if isinstance(node.this, exp.Order):
            return None
        case exp.Anonymous() if node.name == "shiftrightunsigned" and not called:
            return ">>>", tuple(node.expressions)
        case exp.Anonymous():
            return node.name.lower(), tuple(node.expressions)
        case _ if called and given is not None:
            return called, tuple(given)
        case exp.IgnoreNulls() if (inner := arguments_of(node.this)) and inner[0] in _SKIPPING:
            return inner[0], (*inner[1], exp.true())
        case exp.Transform():
            return "transform", (node.this, node.expression)
        case exp.StrPosition() if called == "position":
            return "locate", (node.args["substr"], node.this)
        case exp.Chr() | exp.DecodeCase():
            return called or "", tuple(node.expressions)
        case exp.Trim() if node.args.get("expression") or node.args.get("position"):
            word = (node.args.get("position") or "BOTH").upper()
            given = [node.args["expression"]] if node.args.get("expression") else []
            return f"trim {word.lower()}", (*given, node.this)
        case exp.Trim():
            return "trim", (node.this,)
        case exp.BitwiseLeftShift() | exp.BitwiseRightShift():
            word = "<<" if isinstance(node, exp.BitwiseLeftShift) else ">>"
            return word, (node.this, node.expression)
        case exp.Any() if isinstance(node.this, exp.Paren):
            return "any", (node.this.this,)
        case exp.CurrentTimestamp() | exp.CurrentDate() if node.this is None:
            return node.sql_name().lower(), ()
    if type(node) not in _PARTS:
        return None
    return called or "", tuple(
        node.args[part] for part in _PARTS[type(node)] if node.args.get(part)
    )


def call_of(node: exp.Expr) -> Call | None:
    """As `arguments_of`, with the name and the arguments that the table of functions has."""
    match node:
        case exp.Extract():
            return f"extract {node.this.name.upper()}", (node.expression,)
        case exp.WithinGroup() if (inner := arguments_of(node.this)) is not None:
            return _within(inner[0], node.expression, inner[1])
        case exp.GroupConcat() if isinstance(node.this, exp.Order):
            if node.args.get("separator") or node.this.this != node.this.expressions[0].this:
                return None
            return _within("listagg", node.this, ())
        case exp.RegexpLike() if node.meta.get(ARGUMENTS) is None:
            return "rlike", (node.this, node.expression)
        case exp.DPipe():
            return "concat", tuple(node.flatten())
        case exp.BitwiseNot():
            return "~", (node.this,)
        case exp.Bracket(expressions=[key]) if not isinstance(key, exp.Slice):
            return "[]", (node.this, key)
        case exp.Tuple():
            return "named_struct", _named(node.expressions)
    written = arguments_of(node)
    if written is None:
        return None
    match written:
        case ("struct", parts):
            return "named_struct", _named(parts)
        case ("arrays_zip", parts):
            return "arrays_zip", _zipped(parts)
        case (("date_part" | "datepart"), (exp.Literal(is_string=True) as field, value)):
            return f"extract {field.name.upper()}", (value,)
        case (("dateadd" | "timestampadd" | "datediff" | "timestampdiff") as name, (unit, *rest)):
            if len(rest) == 2:
                plain = isinstance(unit, exp.Var | exp.Column) and len(unit.name.split(".")) == 1
                if not plain or (isinstance(unit, exp.Column) and len(unit.parts) > 1):
                    raise NeedsSpark(f"the unit {unit.sql('spark')}")
                return f"{name} {unit.name.upper()}", tuple(rest)
        case (name, (exp.Star(),)):
            return f"{name} *", ()
        case (name, (exp.Distinct() as distinct, *others)):
            return f"{name} distinct", (*distinct.expressions, *others)
    return written


def _within(name: str, order: exp.Order, arguments: Sequence[exp.Expr]) -> Call | None:
    """A call WITHIN GROUP: its order is its first argument."""
    [term, *others] = order.expressions
    descends = bool(term.args.get("desc"))
    if others or bool(term.args.get("nulls_first")) == descends:
        return None
    return f"{name} within{' desc' * descends}", (term.this, *arguments)


def _named(parts: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
    """The fields of a struct behind their names."""
    named: list[exp.Expr] = []
    for position, part in enumerate(parts, 1):
        tells = isinstance(part, exp.Alias | exp.Column | exp.Dot | exp.Identifier)
        name = (part.alias or part.name) if tells else f"col{position}"
        named += (exp.Literal.string(name), part.this if isinstance(part, exp.Alias) else part)
    return tuple(named)


def _zipped(parts: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
    if not all(isinstance(part, exp.Column | exp.Array) for part in parts):
        raise NeedsSpark("arrays_zip of anything but columns and array(…)")
    names = (p.name if isinstance(p, exp.Column) else str(i) for i, p in enumerate(parts))
    pairs = zip(map(exp.Literal.string, names), parts, strict=True)
    return tuple(node for pair in pairs for node in pair)


def is_momentary(node: exp.Expr) -> bool:
    """Whether the value depends on the moment of the statement."""
    return (arguments_of(node) or ("",))[0] in MOMENTS


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it is a call of an aggregate of the table."""
    call = call_of(node)
    return call is not None and call[0] in SIGNATURES and SIGNATURES[call[0]][0].aggregate
