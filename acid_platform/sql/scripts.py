"""What a script names, from its text alone: its parameters, and its tables and columns.

A `:name` becomes a literal of the type of its value. The script is divided as every parser divides
it, so a `:name` in a literal, a comment or a name in backticks is none. A value can only become one
literal, whatever characters it has.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from acid_platform.errors import InvalidExpression, UnsupportedStatement
from acid_platform.layout.sql_text import pieces, sql_string
from acid_platform.predicates.analysis import MOST_DIGITS
from acid_platform.sql.parse import parse, split
from acid_platform.sql.scopes import ColumnsOf, full_name, stored_tables
from acid_platform.sql.statements import Change, names_read
from acid_platform.sql.text import DIALECT, Query
from acid_platform.sql.time_travel import stored_name

if TYPE_CHECKING:
    from sqlglot.lineage import Node

Parameters = Mapping[str, object]
"""By name: None, bool, int, float, Decimal, str, bytes, date, datetime, or numpy's scalars."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ENDS_A_VALUE = re.compile(r"[\w`'\")\]>:]$")
"""How a piece ends whose following `:` belongs to it, as in `struct<a:int>` and `a::int`."""


def bound(script: str, parameters: Parameters) -> str:
    """The script in which each `:name` is a literal.

    Raises InvalidExpression for a name without a value, a value without its name in the script, a
    value that no literal can state, and a parameter beside a literal, which would be part of it.
    """
    parts = [*pieces(script, several=True)]
    literals: dict[int, str] = {}
    names: set[str] = set()
    for number in _markers(parts):
        name = parts[number + 2]
        if name not in parameters:
            among = f"; there are {', '.join(parameters)}" if parameters else ""
            raise InvalidExpression(f"the parameter :{name} has no value{among}")
        names.add(name)
        literals[number] = literal(name, parameters[name])
    unused = [name for name in parameters if name not in names]
    if unused:
        raise InvalidExpression(f"the script has no parameter :{unused[0]}")
    for number, text in literals.items():
        parts[number : number + 3] = [text, "", ""]
    _refuse_neighbours(parts, literals)
    return "".join(parts)


def parameters_of(script: str) -> frozenset[str]:
    """The names of the parameters of a script."""
    parts = [*pieces(script, several=True)]
    return frozenset(parts[number + 2] for number in _markers(parts))


def _markers(parts: list[str]) -> list[int]:
    """Where a `:` stands that begins a parameter: a name follows it at once, and no value or name
    comes before it at once. Blanks are pieces, too, and may be empty."""
    return [
        number
        for number in range(1, len(parts) - 2)
        if parts[number] == ":"
        and not parts[number + 1]
        and _NAME.fullmatch(parts[number + 2])
        and (parts[number - 1] or number < 2 or not _ENDS_A_VALUE.search(parts[number - 2]))
    ]


def _refuse_neighbours(parts: list[str], literals: Mapping[int, str]) -> None:
    for number in literals:
        before = next((part for part in reversed(parts[:number]) if part.strip()), "")
        after = next((part for part in parts[number + 3 :] if part.strip()), "")
        for neighbour in (before, after):
            if neighbour.startswith("'"):
                raise InvalidExpression(
                    f"the parameter {parts[number]} stands beside {neighbour}, and would become a"
                    " part of it; join them with ||"
                )


def literal(name: str, value: object) -> str:
    """A literal of the type that the value has. Raises InvalidExpression."""
    match _of_python(value):
        case None:
            return "NULL"
        case bool(truth):
            return str(truth).upper()
        case int(number):
            return _number(name, f"{int(number)}", len(f"{abs(int(number))}"))
        case float(double):
            return _double(float(double))
        case Decimal() as decimal:
            return _decimal(name, decimal)
        case str(text):
            return sql_string(text)
        case bytes(octets):
            return f"X'{octets.hex().upper()}'"
        case datetime.datetime() as moment:
            return _timestamp(name, moment)
        case datetime.date() as day:
            return f"DATE '{day.isoformat()}'"
    raise InvalidExpression(
        f"the parameter :{name} is a {type(value).__name__}, which no literal can state; give None,"
        " a bool, int, float, Decimal, str, bytes, date or datetime"
    )


def _of_python(value: Any) -> object:
    """The Python value of a scalar of numpy, None for NaT; any other value as it is."""
    if type(value).__module__ != "numpy" or getattr(value, "shape", None) != ():
        is_moment = isinstance(value, datetime.datetime)
        return None if is_moment and value != value else value
    kind = value.dtype.kind
    if kind == "M" and isinstance(value.item(), int):  # it has nanoseconds
        rounded = value.astype("datetime64[us]")
        return rounded.item() if rounded == value else value
    return value if kind == "m" else value.item()


def _number(name: str, text: str, digits: int) -> str:
    if digits > MOST_DIGITS:
        raise InvalidExpression(
            f"the parameter :{name} has {digits} digits; a decimal has at most {MOST_DIGITS}"
        )
    return f"({text})" if text.startswith("-") else text  # `x -:n` must not become a comment


def _double(value: float) -> str:
    if math.isfinite(value):
        text = repr(value) if "e" in repr(value) else f"{value!r}e0"  # 1.5 would be a decimal
        return f"({text})" if text.startswith("-") else text
    text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"CAST('{text}' AS DOUBLE)"


def _decimal(name: str, value: Decimal) -> str:
    if not value.is_finite():
        raise InvalidExpression(f"the parameter :{name} is {value}; a decimal is a finite number")
    text = f"{value:f}"
    whole, _, fraction = text.lstrip("-").partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    number = _number(name, text, max(digits, len(fraction), 1))
    return number if fraction else f"CAST({number} AS DECIMAL({max(digits, 1)},0))"


def _timestamp(name: str, value: datetime.datetime) -> str:
    if getattr(value, "nanosecond", 0):
        raise InvalidExpression(
            f"the parameter :{name} has nanoseconds, which a literal cuts; round it to microseconds"
        )
    if value.tzinfo is not None:  # P17: timestamps without a zone are in UTC
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    moment = datetime.datetime.combine(value.date(), value.time())
    return f"TIMESTAMP '{moment.isoformat(' ')}'"


@dataclass(frozen=True, slots=True)
class ScriptTables:
    """Full names of the tables and views that a script reads, and of the tables that it changes.

    A name without a database is in `default`.
    """

    reads: frozenset[str]
    changes: frozenset[str]
    query: Query | None
    """The script if it is one query; then it changes nothing."""


def tables_of_script(script: str) -> ScriptTables:
    """What one query names, or statements that change rows.

    Raises UnsupportedStatement for any other script, InvalidExpression.
    """
    statements = [parse(statement) for statement in split(script)]
    changing = [statement for statement in statements if isinstance(statement, Change)]
    query = statements[0] if len(statements) == 1 and isinstance(statements[0], Query) else None
    if query is None and (not changing or len(changing) < len(statements)):
        raise UnsupportedStatement(
            f"{'there is no statement: ' if not statements else ''}write one SELECT, or only"
            " statements that change rows: INSERT, UPDATE, DELETE, MERGE, TRUNCATE or LOAD DATA"
        )
    return ScriptTables(
        frozenset(name for each in statements for name in names_read(each, "default")),
        frozenset(_full(part.table) for statement in changing for part in statement.parts),
        query,
    )


def column_names(query: Query) -> list[str] | None:
    """The names of its columns, in lower case; None if its text alone does not tell all of them."""
    plain = (exp.Column, exp.Alias, exp.Aliases)
    names = [name.lower() for name in query.tree.named_selects]
    told = all(isinstance(column, plain) for column in query.tree.selects) and "*" not in names
    return names if told else None


def group_columns(query: Query, among: Collection[str] | None = None) -> list[str]:
    """The names of its columns (of `among`, if given) that tell its groups apart, in lower case;
    none without GROUP BY."""
    group = query.tree.args.get("group")
    if not group:
        return []
    keys = group.expressions
    named = {column.name.lower() for column in group.find_all(exp.Column)}
    found = []
    for number, column in enumerate(query.tree.selects, 1):
        value, name = column.unalias(), column.output_name.lower()
        aggregate = value.find(exp.AggFunc) is not None
        if group.args.get("all"):
            chosen = not aggregate
        else:
            chosen = value in keys or exp.Literal.number(number) in keys or name in named
        if name and chosen and not aggregate and (among is None or name in among):
            found.append(name)
    return found


def _full(name: str) -> str:
    return name if "." in name else f"default.{name}"


Sources = frozenset[tuple[str, str]]
"""Full names of tables or views, each with the name of a column."""


def column_lineage(query: Query, columns_of: ColumnsOf) -> Mapping[str, Sources]:
    """By the name of each column of the query, in lower case; a name without a database is in
    `default`.

    A column that only a condition names is no source. Raises UnsupportedStatement for a query that
    sqlglot does not resolve, and what `columns_of` raises.
    """
    from sqlglot.lineage import lineage  # only assets ask for it
    from sqlglot.schema import MappingSchema

    tree = query.tree.copy()
    schema: dict[str, dict[str, dict[str, str]]] = {}
    for table in stored_tables(tree):
        database, _, name = full_name(table, "default").partition(".")
        table.set("db", exp.to_identifier(database, quoted=True))
        columns = columns_of(stored_name(f"{database}.{name}"))
        schema.setdefault(database, {})[name] = dict.fromkeys(columns, "string")
    try:
        nodes = lineage(
            None,
            tree,
            MappingSchema({**schema}, dialect=DIALECT, normalize=False),
            dialect=DIALECT,
            copy=False,
            trim_selects=False,
            validate_qualify_columns=True,
        )
    except (SqlglotError, ValueError) as error:
        raise UnsupportedStatement(
            f"the columns of this query are not resolved: {error}"
        ) from error
    return {name.lower(): frozenset(_sources(node)) for name, node in nodes.items()}


def _sources(column: Node) -> Iterator[tuple[str, str]]:
    for node in column.walk():
        if isinstance(node.expression, exp.Table):
            name = exp.to_column(node.name).name.lower()
            yield stored_name(full_name(node.expression, "default")), name
