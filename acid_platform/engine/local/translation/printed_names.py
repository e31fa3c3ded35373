"""How Spark names columns without an alias: expressions as its `toPrettySQL` prints them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from decimal import Decimal

from sqlglot import exp

from acid_platform.engine.local.translation import arithmetic
from acid_platform.engine.local.translation.casts import ntz_text
from acid_platform.engine.local.translation.dates import interval_of, is_interval
from acid_platform.engine.local.translation.duckdb_sql import take_room
from acid_platform.engine.local.translation.library import arguments_of, call_of
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.predicates import analysis
from acid_platform.predicates.grammar import (
    ARGUMENTS,
    CALLED,
    COMPARISONS,
    IS_NOT,
    SUFFIXED,
    UNIT,
    Written,
)

_OPERATORS: dict[type[exp.Expr], str] = {
    **arithmetic.OPERATORS,
    **COMPARISONS,
    exp.IntDiv: "div",
    exp.And: "AND",
    exp.Or: "OR",
    exp.NullSafeEQ: "<=>",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
_CALLS: dict[type[exp.Expr], str] = {
    exp.Between: "between",
    exp.DPipe: "concat",
    exp.ILike: "ilike",
    exp.Grouping: "grouping",
    exp.GroupingId: "grouping_id",
}
"""What is no call in SQL, or has several names, and what Spark calls it."""
_UPPER = re.compile(
    r"a?(cos|sin|tan)h?|atan2|cbrt|cot|csc|(dense_|percent_)?rank|degrees|e|exp|expm1|hypot|pi|power"
    r"|log10|log1p|log2|radians|regexp(_like)?|rlike|sec|signum|spark_partition_id|sqrt"
)
"""Calls whose name Spark writes in upper case."""
_FORMS = {
    call: form
    for form, calls in {
        "=trim({0})": "trim both/1",
        "=TRIM(BOTH {0} FROM {1})": "trim both/2",
        "=ltrim({0})": "trim leading/1",
        "=TRIM(LEADING {0} FROM {1})": "trim leading/2, ltrim/2",
        "=rtrim({0})": "trim trailing/1",
        "=TRIM(TRAILING {0} FROM {1})": "trim trailing/2, rtrim/2",
        "{all}, 1": "instr/3, locate/2, position/2, percentile/2, regexp_replace/3, "
            "regexp_extract/2, regexp_extract_all/2",
        "{all},  ": "lpad/2, rpad/2",
        "{0}, X, x, n, NULL": "mask/1",
        "{all}, x, n, NULL": "mask/2",
        "{all}, n, NULL": "mask/3",
        "{all}, NULL": "mask/4, lag/2, lead/2",
        "{all}, -1": "overlay/3, split/2",
        "{all}, ": "replace/2",
        "{all}, 2147483647": "substr/2, substring/2",
        "{all}, SHA-256": "hmac/2",
        "=({0} << {1})": "<</2",
        "=({0} >> {1})": ">>/2",
        "=({0} >>> {1})": ">>>/2",
        "{0}, 0": "round/1",
        "={0} LIKE {1}": "like/2",
        "=({0} IS NULL)": "isnull/1",
        "=({0} IS NOT NULL)": "isnotnull/1",
        "{0}": "any_value/2, first/2, first_value/2, last/2, last_value/2, to_json/2, mode/1",
        "=collect_list({0})": "array_agg/1",
        "=CEIL({0})": "ceil/1",
        "=FLOOR({0})": "floor/1",
        "=current_date()": "curdate/0",
        "=date_add({all})": "dateadd/2",
        "?": "dateadd/3, date_diff/3, datediff/3, timestampadd/3, timestampdiff/3, mode/2, "
            "to_varchar/2, to_char/2, raise_error/1",
        "{0} FROM {1}": "datepart/2",
        "{0}, yyyy-MM-dd HH:mm:ss": "from_unixtime/1, unix_timestamp/1, to_unix_timestamp/1",
        "{0}, 1, NULL": "lag/1, lead/1",
        "{0}, NULL": "listagg/1, string_agg/1",
        "=LOG(E(), {0})": "log/1",
        "{all}, true": "months_between/2",
        "{all}, 10000": "percentile_approx/2, approx_percentile/2",
        "=(+ {0})": "positive/1",
        "{all}, 0": "regexp_instr/2",
        "{0}, true": "sort_array/1",
        "{0}, ,, :": "str_to_map/1",
        "{all}, :": "str_to_map/2",
        "{0}, {1}": "try_variant_get/3, variant_get/3",
        "{0}, '{0}' is not true!": "assert_true/1",
        "{all}, lambdafunction(namedlambdavariable(), namedlambdavariable())":
            "aggregate/3, reduce/3",
        "{0}, lambdafunction((IF((({v} IS NULL) AND ({v} IS NULL)), 0, (IF(({v} IS NULL), 1,"
        " (IF(({v} IS NULL), -1, (IF(({v} < {v}), -1, (IF(({v} > {v}), 1, 0)))))))))), {v}, {v})":
            "array_sort/1",
        "{all}, TIMESTAMP '1970-01-01 00:00:00'": "time_bucket/2",
    }.items()
    for call in calls.split(", ")
}  # fmt: skip
"""The parts in parentheses, by name and number of arguments, where they are not those written;
with `=` the whole name, and `?` where Spark decides by their types."""


_PATH: ContextVar[Callable[[Sequence[str]], Sequence[str]]] = ContextVar("path")


def column_name(
    node: exp.Expr, path: Callable[[Sequence[str]], Sequence[str]] = lambda parts: parts
) -> str:
    """The name of an unnamed column; `path` takes the table from the parts of a name.

    Raises NeedsSpark where it is not known.
    """
    node = node.unnest()
    inner = node.this if isinstance(node, exp.Cast) else None
    if isinstance(inner, exp.Column) and len(path([part.name for part in inner.parts])) == 1:
        node = inner  # no field
    if isinstance(node, exp.Column | exp.Dot) and not node.find(exp.Func):
        return str(node.parts[-1].name)
    before = _PATH.set(path)
    try:
        return name_of(node)
    finally:
        _PATH.reset(before)


def _has_fraction(node: exp.Binary) -> bool:
    return any(
        isinstance(part, exp.Literal) and not part.is_string and "." in part.this
        for side in (node.left, node.right)
        for part in (side, side.this)
    )


def name_of(node: exp.Expr) -> str:
    """The name of an expression in the name of a column. Raises NeedsSpark."""
    name = _name_of(node)
    take_room(len(name))
    return name


def _unknown(node: exp.Expr) -> NeedsSpark:
    return NeedsSpark(f"the name of the column {node.sql('spark')}; give it one with AS")


def _name_of(node: exp.Expr) -> str:
    if type(node) in _CALLS and node.meta.get(CALLED) is None:
        name = f"{_CALLS[type(node)]}({_names(*node.iter_expressions())})"
        return f"(NOT {name})" if node.args.get("negate") else name
    match node:
        case exp.Dot() if node.find(exp.Func):
            if isinstance(node.this, exp.Dot) or node.this.name == "namedlambdavariable":
                return f"{name_of(node.this)}.{node.expression.name}"
            raise _unknown(node)
        case exp.Column() | exp.Dot():
            return ".".join(_PATH.get()([part.name for part in node.parts]))
        case exp.Literal() if node.is_string:
            return str(node.this)
        case exp.Literal():
            return _number(node.this)
        case exp.HexString():
            return f"X'{'0' * (len(node.this) % 2)}{node.this.upper()}'"
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
        case exp.Neg() if isinstance(node.this, exp.Literal) or _is_suffixed(node.this):
            name = name_of(node.this)
            return f"-{name}" if Decimal(name) or _is_floating(node.this) else name
        case exp.Neg():
            return f"(- {name_of(node.this)})"
        case exp.BitwiseNot():
            return f"~{name_of(node.this)}"
        case exp.Add() if is_interval(node) and (interval := interval_of(node)) is not None:
            return interval.printed
        case exp.Add() | exp.Sub() if is_interval(node.left) or is_interval(node.right):
            raise _unknown(node)  # Spark writes `date_add`, or no parentheses, by the types
        case exp.Binary() if type(node) in COMPARISONS and _has_fraction(node):
            sides = [side for side in (node.left, node.right) if not _is_fraction(side)]
            if any(not (isinstance(side, exp.Literal) and side.is_string) for side in sides):
                raise _unknown(node)  # Spark writes another comparison beside a whole number
            return f"({name_of(node.left)} {_OPERATORS[type(node)]} {name_of(node.right)})"
        case exp.Binary() if type(node) in _OPERATORS and node.meta.get(CALLED) is None:
            return f"({name_of(node.left)} {_OPERATORS[type(node)]} {name_of(node.right)})"
        case exp.In() if node.expressions:
            return f"({name_of(node.this)} IN ({_names(*node.expressions)}))"
        case exp.Filter():
            return f"{name_of(node.this)} FILTER (WHERE {name_of(node.expression.this)})"
        case exp.Like() | exp.RegexpLike() if not node.meta.get(ARGUMENTS):
            form = "{} LIKE {}" if isinstance(node, exp.Like) else "RLIKE({}, {})"
            name = form.format(name_of(node.this), name_of(node.expression))
            return f"(NOT {name})" if node.args.get("negate") else name
        case exp.Like():
            return f"{name_of(node.this)} LIKE {name_of(node.expression)}"
        case exp.Escape() if isinstance(node.this, exp.Like):
            return f"{name_of(node.this)} ESCAPE '{node.expression.name}'"
        case exp.Escape():
            return name_of(node.this)
        case exp.Case():
            return _case(node)
        case exp.If() if node.args.get("false") is not None:
            return f"(IF({_names(node.this, node.args['true'], node.args['false'])}))"
        case exp.Extract() if UNIT in node.meta:
            return f"extract({node.meta[UNIT]} FROM {name_of(node.expression)})"
        case exp.Cast() if node.meta.get(CALLED) in _CASTS:
            return _cast(node)
        case exp.IgnoreNulls() | exp.RespectNulls() if node.meta.get(CALLED) is None:
            match node.this:
                case exp.FirstValue() | exp.LastValue():
                    name = "first" if isinstance(node.this, exp.FirstValue) else "last"
                    return f"{name}({name_of(node.this.this)})"
                case exp.Lag() | exp.Lead() | exp.First() | exp.Last() | exp.AnyValue():
                    return name_of(node.this)
        case exp.Window():
            return _window(node)
        case exp.Lambda():
            return _lambda(node)
        case exp.Distinct() if not node.args.get("on"):
            return f"DISTINCT {_names(*node.expressions)}"
        case exp.Count() if isinstance(node.this, exp.Star):
            return "count(1)"
        case exp.Interval() if (interval := interval_of(node)) is not None:
            return interval.printed
    written = arguments_of(node)
    if written is None:
        return _within_group(node)
    called, arguments = written
    return _call_name(node, called, arguments)


def _call_name(node: exp.Expr, called: str, arguments: Sequence[exp.Expr]) -> str:
    form = _form(called, arguments)
    if form == "?":
        raise _unknown(node)
    names = [name_of(argument) for argument in arguments]
    shown = called.upper() if _UPPER.fullmatch(called) else called
    whole = form.removeprefix("=") if form.startswith("=") else f"{shown}({form})"
    return whole.format(*names, all=", ".join(names), v="namedlambdavariable()")


def _form(called: str, arguments: Sequence[exp.Expr]) -> str:
    first = arguments[0] if arguments else None
    literal = first.this if isinstance(first, exp.Neg) else first
    match called, len(arguments), arguments[-1:]:
        case "mode", 2, [exp.Boolean(this=descends)]:
            return "=mode() WITHIN GROUP (ORDER BY {0} DESC)" if descends else "{0}"
        case (("to_char" | "to_varchar"), 2, [exp.Literal() as written]):
            word = written.name.lower()
            if isinstance(literal, exp.Literal) and not literal.is_string:
                return "=to_char({all})"
            if isinstance(first, exp.Cast) and first.to.this == exp.DType.DATE:
                return "=date_format({all})"
            if isinstance(first, exp.HexString) and called == "to_char":
                return f"={word}({{0}})"
            if isinstance(first, exp.HexString):
                return "{0}"
            if isinstance(first, exp.Encode):
                return "=decode({all})" if called == "to_char" else "{all}"
    return _FORMS.get(f"{called}/{len(arguments)}", "{all}")


_CASTS = (None, "cast", "try_cast", "int", "bigint", "smallint", "tinyint", "string", "boolean",
          "float", "double", "decimal", "date", "timestamp", "binary")  # fmt: skip
"""What a node for CAST was written as: with `::`, as a literal of a type, or as a call."""


def _window(node: exp.Window) -> str:
    if node.args.get("spec") or not node.args.get("order") or node.args.get("alias"):
        raise _unknown(node)
    parts = []
    if keys := node.args.get("partition_by"):
        parts.append(f"PARTITION BY {_names(*keys)}")
    terms = []
    for term in node.args["order"].expressions:
        way = "DESC" if term.args.get("desc") else "ASC"
        nulls = "FIRST" if term.args.get("nulls_first") else "LAST"
        terms.append(f"{name_of(term.this)} {way} NULLS {nulls}")
    parts.append(f"ORDER BY {', '.join(terms)}")
    call, frame = node.this, "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):
        call = call.this if isinstance(call.this, exp.Lag | exp.Lead) else call
    match call:
        case exp.Ntile():
            name, frame = name_of(call), frame.replace("RANGE", "ROWS")
        case exp.RowNumber() | exp.Rank() | exp.DenseRank() | exp.PercentRank():
            name = f"{name_of(call).partition('(')[0]}()"  # whatever its arguments
            frame = frame.replace("RANGE", "ROWS")
        case exp.Lag() | exp.Lead():
            offset = call.args.get("offset")
            if offset is not None and not (isinstance(offset, exp.Literal) and offset.is_int):
                raise _unknown(node)
            by = int(offset.name) if offset is not None else 1
            by = -by if isinstance(call, exp.Lag) else by
            name, frame = name_of(call), f"ROWS BETWEEN {by} FOLLOWING AND {by} FOLLOWING"
        case _:
            name = name_of(call)
    return f"{name} OVER ({' '.join(parts)} {frame})"


def _lambda(node: exp.Lambda) -> str:
    parameters = {parameter.name.lower() for parameter in node.expressions}

    def renamed(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Identifier) and part.name.lower() in parameters:
            return exp.Anonymous(this="namedlambdavariable")
        if isinstance(part, exp.Tuple):
            pairs = ((exp.Literal.string(f.name), f.transform(renamed)) for f in part.expressions)
            return exp.Anonymous(
                this="named_struct", expressions=[x for pair in pairs for x in pair]
            )
        if isinstance(part, exp.Column) and part.parts[0].name.lower() in parameters:
            names = ("namedlambdavariable()", *(name.name for name in part.parts[1:]))
            return exp.column(exp.to_identifier(".".join(names)))
        if ARGUMENTS in part.meta:
            given = (each.copy().transform(renamed) for each in part.meta[ARGUMENTS])
            part.meta[ARGUMENTS] = Written(given)
        return part

    body = node.this.copy().transform(renamed)
    variables = ", ".join("namedlambdavariable()" for _ in node.expressions)
    return f"lambdafunction({name_of(body)}, {variables})"


def _is_suffixed(node: exp.Expr) -> bool:
    """Whether it is a number with the suffix of a type, such as `1L`."""
    return isinstance(node, exp.Cast) and SUFFIXED in node.to.meta


def _is_floating(number: exp.Expr) -> bool:
    """Whether it is a literal double or float, which alone have a zero with a sign."""
    if isinstance(number, exp.Cast):
        return number.to.this in (exp.DType.FLOAT, exp.DType.DOUBLE)
    return "e" in number.name.lower()


def _is_fraction(node: exp.Expr) -> bool:
    number = node.this if isinstance(node, exp.Neg) else node
    return isinstance(number, exp.Literal) and not number.is_string and "." in number.this


def _number(written: str) -> str:
    """A literal number as Spark writes it."""
    value = analysis.number(written)
    return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(value: float) -> str:
    """As Java's Double.toString. Raises NeedsSpark for numbers of which Java writes more digits."""
    digits, _, exponent = f"{value!r}".partition("e")
    if len(digits) > 16:
        raise NeedsSpark(f"the name of a column with {value!r}; give it one with AS")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return f"{Decimal(repr(value)):f}" if exponent else digits
    sign, figures, power = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(power, int)
    first, *rest = map(str, figures)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{power + len(figures) - 1}"


def _case(node: exp.Case) -> str:
    operand = None if node.this is None else name_of(node.this)
    tests = [
        name_of(branch.this) if operand is None else f"({operand} = {name_of(branch.this)})"
        for branch in node.args["ifs"]
    ]
    branches = (
        f"WHEN {test} THEN {name_of(branch.args['true'])}"
        for test, branch in zip(tests, node.args["ifs"], strict=True)
    )
    default = node.args.get("default")
    other = "" if default is None else f" ELSE {name_of(default)}"
    return f"CASE {' '.join(branches)}{other} END"


def _cast(node: exp.Cast) -> str:
    """A cast, or what sqlglot takes for one: a literal of a type, and a call of a type's name."""
    kind, called = node.to, node.meta.get(CALLED)
    if isinstance(node, exp.TryCast):
        if _is_suffixed(node) and kind.this in exp.DataType.INTEGER_TYPES:
            return name_of(node.this)
        if _is_suffixed(node) and kind.this in (exp.DType.FLOAT, exp.DType.DOUBLE):
            if (
                len(node.this.name.lstrip("0.").replace(".", "")) > 7
                or "e" in node.this.name.lower()
            ):
                raise _unknown(node)
            return _java_double(float(node.this.name))
        if _is_suffixed(node) or (
            isinstance(node.this, exp.Literal)
            and node.this.is_string
            and kind.this == exp.DType.DECIMAL
        ):
            raise _unknown(node)  # `2.5BD` and `0D` have names of their own
        if isinstance(node.this, exp.Null) and kind.this in exp.DataType.NESTED_TYPES:
            raise _unknown(node)
        word = "TRY_CAST" if node.args.get("safe") else "CAST"
        return f"{word}({name_of(node.this)} AS {_type_name(kind)})"
    if called is not None:
        return name_of(node.this)
    if not isinstance(node.this, exp.Literal):
        raise _unknown(node)
    written = node.this.this
    try:
        match kind.this:
            case exp.DType.DATE:
                return f"DATE '{analysis.date(written, written).isoformat()}'"
            case exp.DType.TIMESTAMPNTZ if (moment := ntz_text(written)) is not None:
                return f"TIMESTAMP_NTZ '{moment.rstrip('0') if '.' in moment else moment}'"
            case exp.DType.TIMESTAMPTZ | exp.DType.TIMESTAMPLTZ:
                moment = analysis.timestamp(written, written).isoformat(" ")
                return f"TIMESTAMP '{moment.rstrip('0') if '.' in moment else moment}'"
    except InvalidExpression:
        pass
    raise _unknown(node)


def _type_name(kind: exp.DataType) -> str:
    """A type as Spark's SQL writes it."""
    name = kind.sql("spark").replace(", ", ",")
    return f"{name}(10,0)" if name == "DECIMAL" else name


def _within_group(node: exp.Expr) -> str:
    call = call_of(node) if isinstance(node, exp.WithinGroup | exp.GroupConcat) else None
    if call is None:
        raise _unknown(node)
    word, _, way = call[0].partition(" within")
    key, *arguments = map(name_of, call[1])
    if word == "mode":  # which Spark turns around
        return f"mode() WITHIN GROUP (ORDER BY {key}{'' if way else ' DESC'})"
    order = f"{key}{way.upper()}"
    if word == "listagg":
        order = f"{key} {'DESC NULLS LAST' if way else 'ASC NULLS FIRST'}"
        arguments = [key, "NULL"]
    return f"{word}({', '.join(arguments)}) WITHIN GROUP (ORDER BY {order})"


def _names(*nodes: exp.Expr) -> str:
    return ", ".join(map(name_of, nodes))
