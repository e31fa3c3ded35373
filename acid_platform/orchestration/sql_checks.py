"""Checks in SQL: the expectations that queries over the rows answer, in either engine.

What such a query finds is what Great Expectations finds on a Spark frame, which a test compares for
each expectation and type of column. So most checks start no JVM, and nothing that takes seconds to
import. `quarantine=True` takes its conditions from here.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from acid_platform.errors import CheckErrored, InvalidExpression, NeedsSpark, Terminal
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import INTEGRAL
from acid_platform.orchestration.checks import Expectation

NOT_NULL = "ExpectColumnValuesToNotBeNull"
MOST_SHOWN = 20
"""The failing rows of a check that are shown, as Great Expectations does."""
_EXACT = (*INTEGRAL, "decimal")
_NUMBERS = (*_EXACT, "float", "double")
_KEYS = (*_EXACT, "string", "boolean", "date", "timestamp")
_ANY = (*_KEYS, "float", "double")
_BOUNDED = (*_NUMBERS, "date", "timestamp")
_ORDERED = (*_BOUNDED, "string")
_TEXT = ("string",)
TEXTS = frozenset(("notes", "description", "severity"))
"""Arguments that say nothing about rows."""
_COLUMNS = frozenset(("column", "column_A", "column_B", "column_list"))

Arguments = Mapping[str, Any]
Rows = list[dict[str, Any]]
"""The answer to a query."""
Query = Callable[[str], Rows]
Result = dict[str, Any]
"""Great Expectations' document of a result."""


@dataclass(frozen=True, slots=True)
class SqlCheck:
    """An expectation in SQL: one that judges rows has the condition of a row that fails, given the
    names of its columns, unless equal rows fail; one of a value between bounds has an aggregate;
    one that reads other tables, too, asks queries of its own."""

    types: tuple[str, ...]
    """Those of its columns that were compared."""
    arguments: tuple[str, ...]
    """Those that were compared, beside columns."""
    failing: Callable[[Sequence[str], Arguments], str] | None = None
    aggregate: str = ""
    asks: Callable[[Query, str, Arguments], Result] | None = None
    """Given what answers queries, the source of the rows and the arguments, the result."""


def _outside(column: str, arguments: Arguments) -> str:
    tests = []
    if (low := arguments.get("min_value")) is not None:
        tests.append(f"{column} {'<=' if arguments.get('strict_min') else '<'} {_literal(low)}")
    if (high := arguments.get("max_value")) is not None:
        tests.append(f"{column} {'>=' if arguments.get('strict_max') else '>'} {_literal(high)}")
    return " OR ".join(tests) or "false"


def _among(column: str, arguments: Arguments) -> str:
    values = [_literal(value) for value in arguments["value_set"] if value is not None]
    return f"{column} IN ({', '.join(values)})" if values else f"{column} <> {column}"


def _regex(arguments: Arguments) -> str:
    return _literal(arguments["regex"])


def _beside_other(query: Query, source: str, arguments: Arguments) -> Result:
    own, other = (
        query(f"SELECT count(*) AS n FROM {each}")[0]["n"]
        for each in (source, dotted(arguments["other_table_name"]))
    )
    return {"success": own == other, "observed_value": {"self": own, "other": other}}


def _unexpected(query: Query, source: str, arguments: Arguments) -> Result:
    """The rows that a query of the user's finds; `{batch}` in it are those that are checked."""
    text = arguments["unexpected_rows_query"].rstrip("; \t\r\n\v\f")
    try:
        text = text.format(batch=f"(SELECT * FROM {source})")
    except (LookupError, ValueError) as error:
        raise InvalidExpression(
            f"{text}: {{batch}} stands for the rows; write {{{{ and }}}} for braces"
        ) from error
    text = f"({text}\n) AS found"
    (counted,) = query(f"SELECT count(*) AS n FROM {text}")
    rows = query(f"SELECT * FROM {text} LIMIT {MOST_SHOWN}") if counted["n"] else []
    shown = {"partial_unexpected_list": rows} if rows else {}
    return {"success": not rows, "observed_value": counted["n"], **shown}


def dotted(table: str) -> str:
    """The name of a table as SQL has it, each part in quotes."""
    return ".".join(map(quoted, table.split(".")))


_BOUNDS = ("min_value", "max_value", "strict_min", "strict_max")
IN_SQL: Mapping[str, SqlCheck] = {
    NOT_NULL: SqlCheck(_ANY, ("mostly",), lambda of, _: f"{of[0]} IS NULL"),
    "ExpectColumnValuesToBeNull": SqlCheck(_ANY, ("mostly",), lambda of, _: f"{of[0]} IS NOT NULL"),
    "ExpectColumnValuesToBeBetween": SqlCheck(
        _BOUNDED, (*_BOUNDS, "mostly"), lambda of, given: _outside(of[0], given)
    ),
    "ExpectColumnValuesToBeInSet": SqlCheck(
        _KEYS, ("value_set", "mostly"), lambda of, given: f"NOT ({_among(of[0], given)})"
    ),
    "ExpectColumnValuesToNotBeInSet": SqlCheck(
        _KEYS, ("value_set", "mostly"), lambda of, given: _among(of[0], given)
    ),
    "ExpectColumnValuesToMatchRegex": SqlCheck(
        _TEXT, ("regex", "mostly"), lambda of, given: f"NOT {of[0]} RLIKE {_regex(given)}"
    ),
    "ExpectColumnValuesToNotMatchRegex": SqlCheck(
        _TEXT, ("regex", "mostly"), lambda of, given: f"{of[0]} RLIKE {_regex(given)}"
    ),
    "ExpectColumnValueLengthsToBeBetween": SqlCheck(
        _TEXT, (*_BOUNDS, "mostly"), lambda of, given: _outside(f"length({of[0]})", given)
    ),
    "ExpectColumnValueLengthsToEqual": SqlCheck(
        _TEXT,
        ("value", "mostly"),
        lambda of, given: f"length({of[0]}) <> {_literal(given['value'])}",
    ),
    "ExpectColumnPairValuesAToBeGreaterThanB": SqlCheck(
        _ORDERED,
        ("or_equal",),
        lambda of, given: f"{of[0]} {'<' if given.get('or_equal') else '<='} {of[1]}",
    ),
    "ExpectColumnPairValuesToBeEqual": SqlCheck(
        _ORDERED, (), lambda of, _: f"NOT ({of[0]} <=> {of[1]})"
    ),
    "ExpectColumnValuesToBeUnique": SqlCheck(_KEYS, ("mostly",)),
    "ExpectCompoundColumnsToBeUnique": SqlCheck(_KEYS, ()),
    "ExpectColumnMinToBeBetween": SqlCheck((*_EXACT, "date"), _BOUNDS, aggregate="min({})"),
    "ExpectColumnMaxToBeBetween": SqlCheck((*_EXACT, "date"), _BOUNDS, aggregate="max({})"),
    "ExpectColumnSumToBeBetween": SqlCheck(_EXACT, _BOUNDS, aggregate="sum({})"),
    "ExpectColumnMeanToBeBetween": SqlCheck(
        ("int", "bigint", "decimal"), _BOUNDS, aggregate="avg({})"
    ),
    "ExpectColumnUniqueValueCountToBeBetween": SqlCheck(
        _KEYS, _BOUNDS, aggregate="count(DISTINCT {})"
    ),
    "ExpectTableRowCountToBeBetween": SqlCheck((), _BOUNDS[:2], aggregate="count(*)"),
    "ExpectTableRowCountToEqual": SqlCheck((), ("value",), aggregate="count(*)"),
    "ExpectTableRowCountToEqualOtherTable": SqlCheck((), ("other_table_name",), asks=_beside_other),
    "UnexpectedRowsExpectation": SqlCheck((), ("unexpected_rows_query",), asks=_unexpected),
}
ROW_LEVEL = tuple(
    kind for kind, check in IN_SQL.items() if check.failing is not None and "Pair" not in kind
)
"""Those that judge each row by one column."""


def failing_rows(expectation: Expectation, names: Sequence[str]) -> str:
    """The condition for the rows that fail; `names` are the columns that the rows have.

    Raises TypeError for a value that has no literal.
    """
    check, columns = IN_SQL[expectation.kind], _named(expectation)
    assert check.failing is not None
    if not {*columns} <= {*names}:  # it is NULL then
        return "true" if expectation.kind == NOT_NULL else "false"
    return check.failing(list(map(quoted, columns)), expectation.arguments)


def unlike(expectation: Expectation, types: Mapping[str, str]) -> str:
    """What of an expectation was not compared with Great Expectations, which has to evaluate it; ""
    if nothing. `types` are the kinds of the columns by name.

    Raises CheckErrored for a column that is not among them.
    """
    kind, given = expectation.kind, expectation.arguments
    check, columns = IN_SQL.get(kind), _named(expectation)
    if missing := [name for name in columns if name not in types]:
        raise CheckErrored(
            f"expectation {expectation.name!r} could not be evaluated: there is no column"
            f" {missing[0]}; correct its arguments or the columns that it names"
        )
    if check is None:
        return kind
    if other := set(given) - {*check.arguments} - _COLUMNS - TEXTS:
        return f"the argument {min(other)} of {kind}"
    if len({*columns}) < len(columns):
        return f"{kind} of a column beside itself"
    of = [types[name] for name in columns]
    counts = "Lengths" in kind or "Count" in kind
    wrong = [name for name in columns if types[name] not in check.types]
    if not wrong and "Pair" in kind and not _alike(*of):
        wrong = columns
    if not wrong and not all(_comparable("bigint" if counts else of[0], x) for x in _values(given)):
        wrong = columns or ["rows"]
    named = " and ".join(f"{name} ({types.get(name)})" for name in wrong)
    return f"{kind} of {named}" if wrong else ""


def _values(arguments: Arguments) -> Iterator[Any]:
    """What is compared with the column."""
    for name in ("min_value", "max_value", "value", "regex"):
        if arguments.get(name) is not None:
            yield arguments[name]
    yield from arguments.get("value_set") or ()


def _comparable(kind: str, value: object) -> bool:
    match value:
        case bool():
            return kind == "boolean"
        case int() | Decimal():
            return kind in _NUMBERS
        case float():
            return kind in _NUMBERS and math.isfinite(value)
        case str():
            return kind == "string"
        case datetime.datetime():
            return kind == "timestamp" and value.tzinfo is None
        case datetime.date():
            return kind == "date"
    return False


def _alike(left: str, right: str) -> bool:
    return left == right or (left in _NUMBERS and right in _NUMBERS)


def _literal(value: Any) -> str:
    """Raises TypeError."""
    match value:
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case datetime.datetime() if value.tzinfo is None:
            return f"TIMESTAMP '{value}'"
        case datetime.date() if not isinstance(value, datetime.datetime):
            return f"DATE '{value}'"
        case str():
            return sql_string(value)
    raise TypeError(f"{value!r} is no number, text, date or time without a zone")


# --- evaluation -----------------------------------------------------------------------------------


def evaluated(
    query: Query,
    source: str,
    expectations: Sequence[Expectation],
    key: Sequence[str] = (),
) -> dict[str, Result]:
    """Results by the names of the expectations, as Great Expectations' documents of results.

    `query` answers a SELECT, `source` is what follows FROM: a table, and WHERE with a condition.
    For those that fail or allow failing rows there are counts and examples with the columns of
    `key`. One query counts for all expectations, further ones find equal values and examples.
    """
    counted = {"every": "count(*)"}
    for number, each in enumerate(expectations):
        counted |= {f"{part}{number}": text for part, text in _counts(each).items()}
    columns = ", ".join(f"{text} AS {name}" for name, text in counted.items())
    (found,) = query(f"SELECT {columns} FROM {source}")
    results = {}
    for number, each in enumerate(expectations):
        if IN_SQL[each.kind].asks:
            results[each.name] = _asked(query, source, each)
            continue
        if IN_SQL[each.kind].aggregate:
            results[each.name] = _between(found[f"value{number}"], each.arguments)
            continue
        if IN_SQL[each.kind].failing:
            failing = found[f"failing{number}"]
        else:
            failing = _repeated(query, source, each)
        counts = _Counts(found["every"], found.get(f"judged{number}"), failing)
        results[each.name] = _result(query, source, each, counts, key)
    return results


def _asked(query: Query, source: str, expectation: Expectation) -> Result:
    asks = IN_SQL[expectation.kind].asks
    assert asks
    try:
        return asks(query, source, expectation.arguments)
    except NeedsSpark:
        raise
    except Terminal as error:
        raise CheckErrored(
            f"expectation {expectation.name!r} could not be evaluated: {error}"
        ) from error


def _named(expectation: Expectation) -> list[str]:
    """The names of its columns in order."""
    given = expectation.arguments
    if "column_list" in given:
        return [str(name).lower() for name in given["column_list"]]
    names = (given.get(name) for name in ("column", "column_A", "column_B"))
    return [str(name).lower() for name in names if name is not None]


def _present(expectation: Expectation) -> str:
    """The condition of a row that is judged: one of the columns has a value."""
    return " OR ".join(f"{quoted(name)} IS NOT NULL" for name in _named(expectation))


def _counts(expectation: Expectation) -> dict[str, str]:
    """The aggregates of an expectation by part."""
    check, columns = IN_SQL[expectation.kind], _named(expectation)
    if check.asks:
        return {}
    if check.aggregate:
        return {"value": check.aggregate.format(*map(quoted, columns))}
    of_null = expectation.kind in (NOT_NULL, "ExpectColumnValuesToBeNull")  # all rows are judged
    counts = {} if of_null else {"judged": f"count_if({_present(expectation)})"}
    if check.failing:
        counts["failing"] = f"count_if({failing_rows(expectation, columns)})"
    return counts


def _repeated(query: Query, source: str, expectation: Expectation) -> int:
    """The number of rows whose values others have, too."""
    columns = ", ".join(map(quoted, _named(expectation)))
    groups = f"SELECT count(*) AS n FROM {source} AND ({_present(expectation)}) GROUP BY {columns}"
    (row,) = query(f"SELECT coalesce(sum(n), 0) AS n FROM ({groups}) AS g WHERE n > 1")
    return int(row["n"])


def _between(value: Any, arguments: Arguments) -> Result:
    if value is None or value != value:
        return {"success": False, "observed_value": None}
    low, high = (arguments.get(name, arguments.get("value")) for name in _BOUNDS[:2])
    above = low is None or (value > low if arguments.get("strict_min") else value >= low)
    below = high is None or (value < high if arguments.get("strict_max") else value <= high)
    return {"success": above and below, "observed_value": value}


@dataclass(frozen=True, slots=True)
class _Counts:
    """Numbers of rows."""

    every: int
    with_value: int | None
    """None if those without a value are judged, too."""
    failing: int


def _result(
    query: Query,
    source: str,
    expectation: Expectation,
    counts: _Counts,
    key: Sequence[str],
) -> Result:
    mostly = expectation.arguments.get("mostly", 1)
    judged = counts.every if counts.with_value is None else counts.with_value
    passed = judged == 0 or (float(judged) - float(counts.failing)) / float(judged) >= mostly
    result = {
        "success": passed,
        "element_count": counts.every,
        "unexpected_count": counts.failing,
        "unexpected_percent": counts.failing / judged * 100 if judged else None,
    }
    if counts.with_value is not None:
        missing = counts.every - judged
        share = missing / counts.every * 100 if counts.every else None
        result |= {"missing_count": missing, "missing_percent": share}
    if passed and "mostly" not in expectation.arguments:
        return result
    rows = _examples(query, source, expectation, key) if counts.failing else []
    names = _named(expectation)
    values: list[Any] = [
        row[names[0]]
        if "column" in expectation.arguments
        else tuple(row[name] for name in names)
        if "Pair" in expectation.kind
        else {name: row[name] for name in names}
        for row in rows
    ]
    shown = {"partial_unexpected_index_list": rows} if key else {}
    return {**result, "partial_unexpected_list": values, **shown}


def _examples(query: Query, source: str, expectation: Expectation, key: Sequence[str]) -> Rows:
    names = list(dict.fromkeys([*_named(expectation), *map(str.lower, key)]))
    shown = ", ".join(map(quoted, names))
    if IN_SQL[expectation.kind].failing:
        condition = failing_rows(expectation, names)
        return query(f"SELECT {shown} FROM {source} AND ({condition}) LIMIT {MOST_SHOWN}")
    same = ", ".join(map(quoted, _named(expectation)))
    counted = (
        f"SELECT {shown}, count(*) OVER (PARTITION BY {same}) AS __rows"
        f" FROM {source} AND ({_present(expectation)})"
    )
    return query(f"SELECT {shown} FROM ({counted}) AS c WHERE __rows > 1 LIMIT {MOST_SHOWN}")
