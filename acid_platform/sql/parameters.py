"""Parameters of a script: `:name` becomes a literal of the type of its value.

The script is divided as every parser divides it, so a `:name` in a literal, a comment or a name in
backticks is none. A value can only become one literal, whatever characters it has.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from acid_platform.errors import InvalidExpression
from acid_platform.layout.sql_text import pieces, sql_string
from acid_platform.predicates.literals import MOST_DIGITS

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
