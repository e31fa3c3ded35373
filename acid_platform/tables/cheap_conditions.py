"""What the condition of a CHECK may compute: whoever writes into the table computes it (P74).

Its time and memory are in proportion to the row in both engines, and it acts on nothing. So there
is a list of functions, none of which makes a value longer than its arguments, and everything else
is refused by name. Regular expressions are: Spark's go back over a text as often as it has ways to
divide it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acid_platform.errors import InvalidDefinition, UnsupportedStatement

if TYPE_CHECKING:
    from sqlglot import exp

LONGEST = 10_000
"""Characters of a CHECK or a DEFAULT."""
_MOST_PERCENTS = 3
"""`%` in a pattern of LIKE: each more may multiply the time by the length of the text."""
_LISTED = """
    abs bigint ceil ceiling date decimal double float floor int mod negative pmod positive round
    sign signum smallint sqrt string tinyint try_cast cast
    array_contains cardinality element_at map_contains_key size
    coalesce greatest if ifnull isnan isnotnull isnull least nanvl nullif nvl nvl2
    bit_length btrim char_length character_length contains endswith instr lcase left length
    locate lower ltrim octet_length position right rtrim startswith substr substring
    substring_index translate trim ucase upper
    add_months date_add date_diff date_sub datediff day dayofmonth dayofweek dayofyear extract hour
    last_day minute month months_between quarter second to_date trunc weekday weekofyear year
"""
FUNCTIONS = frozenset(_LISTED.split())


def require_short(what: str, text: str) -> None:
    """Raises InvalidDefinition."""
    if len(text) > LONGEST:
        raise InvalidDefinition(
            f"{what[:200]}…: it has {len(text):,} characters; a CHECK or a DEFAULT has at most"
            f" {LONGEST:,}"
        )


def require_cheap(what: str, tree: exp.Expr) -> None:
    """Raises UnsupportedStatement for a condition that may take more time or memory than its row
    is worth, or does more than compute. `what` is the constraint, for the message."""
    from sqlglot import exp

    from acid_platform.predicates.grammar import CALLED

    operators = (
        *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Case, exp.If, exp.Cast, exp.Between, exp.In),
        *(exp.Is, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ),
        *(exp.NullSafeNEQ, exp.Like, exp.ILike, exp.Escape, exp.Any, exp.All, exp.Tuple),
        *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseNot),
        *(exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift),
        *(exp.BitwiseRightShift, exp.Interval, exp.IntervalSpan, exp.Bracket, exp.Dot),
        *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Var),
        *(exp.DataType, exp.DataTypeParam, exp.TsOrDsToDate),
    )
    for node in tree.walk():
        called = node.meta.get(CALLED)
        if isinstance(node, exp.RegexpLike):
            raise UnsupportedStatement(
                f"{what}: a regular expression may take minutes for one text, in everybody's"
                " INSERT; use LIKE, length, substring or translate"
            )
        of_other = isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func)
        if of_other or not (called in FUNCTIONS if called else isinstance(node, operators)):
            raise UnsupportedStatement(
                f"{what}: a CHECK can't have {called or node.sql('spark')[:60]}: everybody's"
                f" INSERT computes it; its functions are {', '.join(sorted(FUNCTIONS))}"
            )
        if isinstance(node, exp.Like | exp.ILike):
            _require_cheap_pattern(what, node)


def _require_cheap_pattern(what: str, like: exp.Like | exp.ILike) -> None:
    """The pattern is a text, or one of several in `LIKE ANY (…)`. Raises UnsupportedStatement."""
    from sqlglot import exp

    for pattern in like.expression.find_all(exp.Column, exp.Func, exp.Literal):
        if not isinstance(pattern, exp.Literal) or pattern.name.count("%") > _MOST_PERCENTS:
            raise UnsupportedStatement(
                f"{what}: LIKE in a CHECK has a text with at most {_MOST_PERCENTS} % for its"
                " pattern"
            )
