"""How Spark names columns without an alias: expressions as its `toPrettySQL` prints them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from sqlglot import exp

from acid_platform.engine.local.translation import arithmetic
from acid_platform.engine.local.translation.casts import ntz_text
from acid_platform.engine.local.translation.duckdb_sql import take_room
from acid_platform.engine.local.translation.functions import arguments_of, calls_of
from acid_platform.engine.local.translation.intervals import interval_of, is_interval
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.predicates import literals
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
    "trim both/1": "=trim({0})", "trim both/2": "=TRIM(BOTH {0} FROM {1})",
    "trim leading/1": "=ltrim({0})", "trim leading/2": "=TRIM(LEADING {0} FROM {1})",
    "trim trailing/1": "=rtrim({0})", "trim trailing/2": "=TRIM(TRAILING {0} FROM {1})",
    "ltrim/2": "=TRIM(LEADING {0} FROM {1})", "rtrim/2": "=TRIM(TRAILING {0} FROM {1})",
    "instr/3": "{all}, 1", "locate/2": "{all}, 1", "position/2": "{all}, 1", "lpad/2": "{all},  ",
    "rpad/2": "{all},  ", "mask/1": "{0}, X, x, n, NULL", "mask/2": "{all}, x, n, NULL",
    "mask/3": "{all}, n, NULL", "mask/4": "{all}, NULL", "overlay/3": "{all}, -1",
    "replace/2": "{all}, ", "substr/2": "{all}, 2147483647", "substring/2": "{all}, 2147483647",
    "hmac/2": "{all}, SHA-256", "<</2": "=({0} << {1})", ">>/2": "=({0} >> {1})",
    ">>>/2": "=({0} >>> {1})", "round/1": "{0}, 0", "like/2": "={0} LIKE {1}",
    "isnull/1": "=({0} IS NULL)", "isnotnull/1": "=({0} IS NOT NULL)",
    "aes_decrypt/2": "{all}, GCM, DEFAULT, ", "aes_decrypt/3": "{all}, DEFAULT, ",
    "aes_decrypt/4": "{all}, ", "aes_encrypt/2": "{all}, GCM, DEFAULT, , ",
    "aes_encrypt/3": "{all}, DEFAULT, , ", "aes_encrypt/4": "{all}, , ", "aes_encrypt/5": "{all}, ",
    "try_aes_decrypt/2": "{all}, GCM, DEFAULT, ", "try_aes_decrypt/3": "{all}, DEFAULT, ",
    "any_value/2": "{0}", "first/2": "{0}", "first_value/2": "{0}", "last/2": "{0}",
    "last_value/2": "{0}", "approx_top_k/1": "{0}, 5, 10000", "approx_top_k/2": "{all}, 10000",
    "approx_top_k_accumulate/1": "{0}, 10000", "approx_top_k_estimate/1": "{0}, 5",
    "array_agg/1": "=collect_list({0})", "ceil/1": "=CEIL({0})",
    "floor/1": "=FLOOR({0})", "curdate/0": "=current_date()",
    "current_database/0": "=current_schema()", "dateadd/2": "=date_add({all})",
    "dateadd/3": "?", "date_diff/3": "?", "datediff/3": "?", "timestampadd/3": "?",
    "timestampdiff/3": "?", "datepart/2": "{0} FROM {1}", "explode/1": "=col",
    "explode_outer/1": "=col", "from_csv/2": "{0}", "from_csv/3": "{0}", "from_json/2": "{0}",
    "from_json/3": "{0}", "from_xml/2": "{0}", "from_xml/3": "{0}", "to_csv/2": "{0}",
    "to_json/2": "{0}", "to_xml/2": "{0}", "schema_of_json/2": "{0}", "schema_of_csv/2": "{0}",
    "schema_of_xml/2": "{0}", "from_unixtime/1": "{0}, yyyy-MM-dd HH:mm:ss",
        "lag/1": "{0}, 1, NULL",
    "lag/2": "{all}, NULL", "lead/1": "{0}, 1, NULL", "lead/2": "{all}, NULL",
    "listagg/1": "{0}, NULL", "string_agg/1": "{0}, NULL", "log/1": "=LOG(E(), {0})",
    "log/2": "=LOG({all})", "make_dt_interval/1": "{all}, 0, 0, 0.000000",
    "make_dt_interval/2": "{all}, 0, 0.000000", "make_dt_interval/3": "{all}, 0.000000",
    **{f"{word}make_interval/{n}": "{all}" + ", 0" * (6 - n) + ", 0.000000"
       for word in ("", "try_") for n in range(1, 7)},
    "make_ym_interval/1": "{0}, 0", "mode/2": "?", "months_between/2": "{all}, true",
    "percentile/2": "{all}, 1", "percentile_approx/2": "{all}, 10000",
    "approx_percentile/2": "{all}, 10000", "mode/1": "{0}",
    "positive/1": "=(+ {0})", "random/0": "=rand()",
    "random/1": "=rand({0})", "regexp_instr/2": "{all}, 0", "regexp_replace/3": "{all}, 1",
    "regexp_extract/2": "{all}, 1", "regexp_extract_all/2": "{all}, 1", "regexp_substr/2": "{all}",
    "sort_array/1": "{0}, true", "sentences/1": "{0}, , ", "sentences/2": "{all}, ",
    "split/2": "{all}, -1",
    "str_to_map/1": "{0}, ,, :",
    "str_to_map/2": "{all}, :", "to_varchar/2": "?", "to_char/2": "?",
    "try_variant_get/3": "{0}, {1}", "variant_get/3": "{0}, {1}", "raise_error/1": "?",
    "unix_timestamp/0": "current_timestamp(), yyyy-MM-dd HH:mm:ss",
    "assert_true/1": "{0}, '{0}' is not true!",
    "unix_timestamp/1": "{0}, yyyy-MM-dd HH:mm:ss", "to_unix_timestamp/1":
    "{0}, yyyy-MM-dd HH:mm:ss", "try_make_timestamp/7": "?", "make_timestamp/7": "?",
    **dict.fromkeys(("aggregate/3", "reduce/3"),
                    "{all}, lambdafunction(namedlambdavariable(), namedlambdavariable())"),
    "array_sort/1": "{0}, lambdafunction((IF((({v} IS NULL) AND ({v} IS NULL)), 0, (IF(({v} IS"
    " NULL), 1, (IF(({v} IS NULL), -1, (IF(({v} < {v}), -1, (IF(({v} > {v}), 1, 0)))))))))),"
    " {v}, {v})",
    "time_bucket/2": "{all}, TIMESTAMP '1970-01-01 00:00:00'",
    **dict.fromkeys(("current_time/0",), "?"),
}  # fmt: skip
"""The parts in parentheses, by name and number of arguments, where they are not those written;
with `=` the whole name, and `?` where Spark decides by their types."""


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
            raise _unknown(node)
        case exp.Column() | exp.Dot():
            return str(node.parts[-1].name)
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
            return f"-{name_of(node.this)}"
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
        return _entry_name(node)
    called, arguments = written
    if _UNNAMED.fullmatch(called):
        raise _unknown(node)
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


_UNNAMED = re.compile(
    r"variant_strip_nulls|tuple_.*|(try_)?variant_set|localtime|hll_.*|theta_.*|st_.*"
)
"""Calls of which nothing here knows the names."""
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
    match call:
        case exp.RowNumber():
            name, frame = "row_number()", frame.replace("RANGE", "ROWS")
        case exp.Rank() | exp.DenseRank() | exp.PercentRank():
            name = {"rank": "RANK", "dense_rank": "DENSE_RANK"}.get(call.sql_name().lower(), "")
            name, frame = f"{name or 'PERCENT_RANK'}()", frame.replace("RANGE", "ROWS")
        case exp.Ntile():
            name, frame = name_of(call), frame.replace("RANGE", "ROWS")
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
    body = node.this.copy()

    def renamed(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Identifier) and part.name.lower() in parameters:
            return exp.Anonymous(this="namedlambdavariable")
        if isinstance(part, exp.Tuple):
            pairs = ((exp.Literal.string(f.name), f.transform(renamed)) for f in part.expressions)
            return exp.Anonymous(
                this="named_struct", expressions=[x for pair in pairs for x in pair]
            )
        plain = isinstance(part, exp.Column) and len(part.parts) == 1
        if plain and part.name.lower() in parameters:
            return exp.Anonymous(this="namedlambdavariable")
        for name in (ARGUMENTS,):
            if name in part.meta:
                part.meta[name] = Written(
                    each.copy().transform(renamed) for each in part.meta[name]
                )
        return part

    body = body.transform(renamed)
    variables = ", ".join("namedlambdavariable()" for _ in node.expressions)
    return f"lambdafunction({name_of(body)}, {variables})"


def _is_suffixed(node: exp.Expr) -> bool:
    """Whether it is a number with the suffix of a type, such as `1L`."""
    return isinstance(node, exp.Cast) and SUFFIXED in node.to.meta


def _is_fraction(node: exp.Expr) -> bool:
    number = node.this if isinstance(node, exp.Neg) else node
    return isinstance(number, exp.Literal) and not number.is_string and "." in number.this


def _number(written: str) -> str:
    """A literal number as Spark writes it."""
    value = literals.number(written)
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
                return f"DATE '{literals.date(written, written).isoformat()}'"
            case exp.DType.TIMESTAMPNTZ if (moment := ntz_text(written)) is not None:
                return f"TIMESTAMP_NTZ '{moment.rstrip('0') if '.' in moment else moment}'"
            case exp.DType.TIMESTAMPTZ | exp.DType.TIMESTAMPLTZ:
                moment = literals.timestamp(written, written).isoformat(" ")
                return f"TIMESTAMP '{moment.rstrip('0') if '.' in moment else moment}'"
    except InvalidExpression:
        pass
    raise _unknown(node)


def _type_name(kind: exp.DataType) -> str:
    """A type as Spark's SQL writes it."""
    name = kind.sql("spark").replace(", ", ",")
    return f"{name}(10,0)" if name == "DECIMAL" else name


def _entry_name(node: exp.Expr) -> str:
    """The name of a call that functions.py has."""
    for function, arguments in calls_of(node):
        names = {letter: name_of(argument) for letter, argument in arguments.items()}
        pieces = _LETTER.split(function.column or function.call)
        name = "".join(names.get(piece, piece) for piece in pieces)
        return name
    raise _unknown(node)


_LETTER = re.compile(r"\b([a-g])\b")


def _names(*nodes: exp.Expr) -> str:
    return ", ".join(map(name_of, nodes))
