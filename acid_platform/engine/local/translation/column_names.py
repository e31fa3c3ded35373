"""The names that Spark gives to columns without an alias, such as `(id + 1)` or `count(1)`."""

from __future__ import annotations

import re

from sqlglot import exp

from acid_platform.engine.local.translation import arithmetic
from acid_platform.engine.local.translation.functions import calls_of
from acid_platform.errors import NeedsSpark
from acid_platform.predicates.grammar import CALLED, COMPARISONS, IS_NOT, UNIT

_LETTER = re.compile(r"\b([abc])\b")
_OPERATORS: dict[type[exp.Expr], str] = {
    **arithmetic.OPERATORS,
    **COMPARISONS,
    exp.IntDiv: "div",
    exp.And: "AND",
    exp.Or: "OR",
    exp.NullSafeEQ: "<=>",
}
_CALLS: dict[type[exp.Expr], str] = {
    exp.Between: "between",
    exp.Nullif: "nullif",
    exp.DPipe: "concat",
    exp.Concat: "concat",
    exp.Coalesce: "coalesce",
    exp.Greatest: "greatest",
    exp.Least: "least",
    exp.Grouping: "grouping",
    exp.GroupingId: "grouping_id",
}
"""What is no call in SQL, or has several names, and what Spark calls it."""


def column_name(node: exp.Expr) -> str:
    """The name of an unnamed column. Raises NeedsSpark where it is not known."""
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column | exp.Dot):
        return name_of(node.this)
    return column_name(node.this) if isinstance(node, exp.Paren) else name_of(node)


def _has_fraction(node: exp.Binary) -> bool:
    return any(
        isinstance(part, exp.Literal) and not part.is_string and "." in part.this
        for side in (node.left, node.right)
        for part in (side, side.this)
    )


def name_of(node: exp.Expr) -> str:
    """The name of an expression in the name of a column. Raises NeedsSpark."""
    name = _name_of(node)
    called = node.meta.get(CALLED)
    if called and not name.lower().lstrip("(").startswith(f"{called}("):
        raise _unknown(node)  # Spark has names of its own for some synonyms, such as `nvl`
    return name


def _unknown(node: exp.Expr) -> NeedsSpark:
    return NeedsSpark(f"the name of the column {node.sql('spark')}; give it one with AS")


def _name_of(node: exp.Expr) -> str:
    if type(node) in _CALLS:
        return f"{_CALLS[type(node)]}({_names(*node.iter_expressions())})"
    match node:
        case exp.Column() | exp.Dot():
            return str(node.parts[-1].name)
        case exp.Literal() if not node.is_string and node.this.isdecimal():
            return str(int(node.this))
        case exp.Literal() if node.is_string or "e" not in node.this.lower():
            return str(node.this)
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Null():
            return "NULL"
        case exp.Paren():
            return name_of(node.this)
        case exp.Not() if IS_NOT in node.meta:
            return f"{name_of(node.this).removesuffix(' NULL)')} NOT NULL)"
        case exp.Not():
            return f"(NOT {name_of(node.this)})"
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"({name_of(node.this)} IS NULL)"
        case exp.NEQ() if not _has_fraction(node):
            return f"(NOT ({name_of(node.left)} = {name_of(node.right)}))"
        case exp.Neg() if isinstance(node.this, exp.Literal):
            return f"-{name_of(node.this)}"
        case exp.Neg():
            return f"(- {name_of(node.this)})"
        case exp.Binary() if type(node) in COMPARISONS and _has_fraction(node):
            pass  # Spark writes another comparison where the other side is a whole number
        case exp.Binary() if type(node) in _OPERATORS:
            return f"({name_of(node.left)} {_OPERATORS[type(node)]} {name_of(node.right)})"
        case exp.In() if node.expressions:
            return f"({name_of(node.this)} IN ({_names(*node.expressions)}))"
        case exp.Filter():
            return f"{name_of(node.this)} FILTER (WHERE {name_of(node.expression.this)})"
        case exp.Like():
            like = f"{name_of(node.this)} LIKE {name_of(node.expression)}"
            return f"(NOT {like})" if node.args.get("negate") else like
        case exp.Case():
            tests = [
                name_of(branch.this)
                if node.this is None
                else f"({name_of(node.this)} = {name_of(branch.this)})"
                for branch in node.args["ifs"]
            ]
            branches = (
                f"WHEN {test} THEN {name_of(branch.args['true'])}"
                for test, branch in zip(tests, node.args["ifs"], strict=True)
            )
            default = node.args.get("default")
            other = "" if default is None else f" ELSE {name_of(default)}"
            return f"CASE {' '.join(branches)}{other} END"
        case exp.If() if node.args.get("false") is not None:
            return f"(IF({_names(node.this, node.args['true'], node.args['false'])}))"
        case exp.Round():
            return f"round({_names(node.this, node.args.get('decimals') or exp.Literal.number(0))})"
        case exp.TimeToStr() if UNIT in node.meta:
            return f"date_format({name_of(node.this.this)}, {node.meta[UNIT]})"
        case exp.RegexpLike():
            return f"RLIKE({_names(node.this, node.expression)})"
        case exp.RegexpExtract() | exp.RegexpReplace():
            given = ("this", "expression", "replacement", "group", "position")
            parts = [node.args[name] for name in given if node.args.get(name)]
            if isinstance(node, exp.RegexpReplace) and len(parts) == 3:
                parts.append(exp.Literal.number(1))
            word = "extract" if isinstance(node, exp.RegexpExtract) else "replace"
            return f"regexp_{word}({_names(*parts)})"
        case exp.TimestampTrunc() if UNIT in node.meta:
            return f"date_trunc({node.meta[UNIT]}, {name_of(node.this)})"
        case exp.DateTrunc() if UNIT in node.meta:
            return f"trunc({name_of(node.this)}, {node.meta[UNIT]})"
        case exp.Cast() if not node.args.get("safe") and not isinstance(node.this, exp.Literal):
            kind = node.to.sql("spark").replace(", ", ",")
            return f"CAST({name_of(node.this)} AS {kind})"
    for function, arguments in calls_of(node):
        names = {letter: name_of(argument) for letter, argument in arguments.items()}
        pieces = _LETTER.split(function.column or function.call)
        return "".join(names.get(piece, piece) for piece in pieces)
    raise _unknown(node)


def _names(*nodes: exp.Expr) -> str:
    return ", ".join(map(name_of, nodes))
