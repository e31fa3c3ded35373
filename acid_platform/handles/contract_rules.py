"""Rules of a data contract as expectations of Great Expectations, and back. Pure.

An expectation is an object as in the JSON file of a suite, which assets take as their checks:
`type`, `kwargs`, and perhaps `meta`, whose `check` is the check's name, `description` and
`severity`. Each expectation has a form in a contract: a metric of the standard where one means
exactly the same, else the expectation itself under `custom`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from acid_platform.layout.sql_text import quoted

Expectation = dict[str, Any]
Rule = dict[str, Any]

ENGINE = "greatExpectations"
_ENGINES = (ENGINE.lower(), "great-expectations", "great_expectations", "gx")
_OPERATORS = {
    "mustBe": "= {0}",
    "mustNotBe": "<> {0}",
    "mustBeGreaterThan": "> {0}",
    "mustBeGreaterOrEqualTo": ">= {0}",
    "mustBeLessThan": "< {0}",
    "mustBeLessOrEqualTo": "<= {0}",
    "mustBeBetween": "> {0} AND measured < {1}",
    "mustNotBeBetween": "<= {0} OR measured >= {1}",
}
"""The standard says that `mustBeBetween` is `mustBeGreaterThan` with `mustBeLessThan`."""
_SEVERITIES = {"error": "critical", "critical": "critical", "warning": "warning", "info": "info"}
_NONE = {"nullValues": "expect_column_values_to_not_be_null"}
_UNIQUE = "expect_column_values_to_be_unique"
_UNIQUE_TOGETHER = "expect_compound_columns_to_be_unique"
_ROWS = "expect_table_row_count_to_be_between"
_EXACT_ROWS = "expect_table_row_count_to_equal"
_IN_SET = "expect_column_values_to_be_in_set"
_REGEX = "expect_column_values_to_match_regex"
_BETWEEN = "expect_column_values_to_be_between"
_LENGTHS = "expect_column_value_lengths_to_be_between"
_QUERY = "unexpected_rows_expectation"


class NotExpressed(Exception):
    """Why a rule has no expectation."""


def expectation_of(rule: Rule, column: str = "") -> Expectation:
    """The expectation of a rule, of which what is carried over is taken out of `rule`.

    `column`: whose rule it is; empty: the table's. Raises NotExpressed, which says why.
    """
    kind = rule.get("type") or "library"
    if kind == "custom":
        found = _of_custom(rule)
    elif kind == "sql":
        found = _measured(_of_query(rule["query"], column), _operator(rule))
        _took(rule, "query")
    elif kind == "library":
        found = _of_metric(rule, column)
    else:
        raise NotExpressed(f"a rule of type {kind} is for people: nothing evaluates it")
    _took(rule, "type", *_OPERATORS)
    name = rule.get("name") or rule.get("id")
    if name and "check" not in found.get("meta", {}):
        found["meta"] = {**found.get("meta", {}), "check": re.sub(r"\W", "_", name, flags=re.A)}
    _took(rule, "name" if rule.get("name") else "id")
    if rule.get("description"):
        found["description"] = rule.pop("description")
    if (severity := _SEVERITIES.get(rule.get("severity") or "error")) is not None:
        _took(rule, "severity")
        if severity != "critical":
            found["severity"] = severity
    return found


def _took(rule: Rule, *names: str) -> None:
    for name in names:
        rule.pop(name, None)


def _operator(rule: Rule) -> tuple[str, list[Any]]:
    for name in _OPERATORS:
        if name in rule:
            value = rule[name]
            return name, value if isinstance(value, list) else [value]
    raise NotExpressed("it has no operator, such as mustBe: 0")


def _of_custom(rule: Rule) -> Expectation:
    import yaml

    if str(rule["engine"]).lower() not in _ENGINES:
        raise NotExpressed(f"it is for {rule['engine']}; only {ENGINE} is evaluated here")
    given = rule["implementation"]
    if isinstance(given, str):
        try:
            given = yaml.safe_load(given)
        except yaml.YAMLError as error:
            raise NotExpressed(f"its implementation is no YAML: {error}") from error
    kind = isinstance(given, Mapping) and (given.get("type") or given.get("expectation_type"))
    if not isinstance(kind, str) or not isinstance(given.get("kwargs", {}), Mapping):
        raise NotExpressed("its implementation has no type, such as expect_column_to_exist")
    _took(rule, "engine", "implementation")
    rest = {name: given[name] for name in given if name not in ("type", "expectation_type")}
    return {"type": kind, "kwargs": {}, **rest}


def _of_metric(rule: Rule, column: str) -> Expectation:
    metric = str(rule.get("metric") or rule.get("rule"))
    given = dict(rule.get("arguments") or {})
    operator = _operator(rule)
    percent = rule.get("unit") == "percent"
    if rule.get("unit") not in (None, "rows", "percent"):
        raise NotExpressed(f"its unit is {rule['unit']}, not rows or percent")
    found = _native(metric, given, column, operator, percent)
    if given:
        raise NotExpressed(f"{metric} has no argument {min(given)} here")
    _took(rule, "metric", "rule", "arguments", "unit")
    return found


def _native(
    metric: str,
    given: dict[str, Any],
    column: str,
    operator: tuple[str, list[Any]],
    percent: bool,
) -> Expectation:
    none = operator in (("mustBe", [0]), ("mustBeLessOrEqualTo", [0])) or (
        operator == ("mustBeLessThan", [1]) and not percent
    )
    if metric == "rowCount" and not column and not percent:
        name, bound = operator
        bounds = {"mustBeGreaterOrEqualTo": "min_value", "mustBeLessOrEqualTo": "max_value"}
        if name == "mustBe":
            return {"type": _EXACT_ROWS, "kwargs": {"value": bound[0]}}
        if name in bounds:
            return {"type": _ROWS, "kwargs": {bounds[name]: bound[0]}}
        return _measured("SELECT count(*) FROM {batch} AS t", operator)
    if metric == "duplicateValues" and none:
        if column:
            return {"type": _UNIQUE, "kwargs": {"column": column}}
        names = [str(name).lower() for name in given.pop("properties", ())]
        if len(names) == 1:
            return {"type": _UNIQUE, "kwargs": {"column": names[0]}}
        if names:
            return {"type": _UNIQUE_TOGETHER, "kwargs": {"column_list": names}}
    if metric == "duplicateValues":
        raise NotExpressed("the standard does not say how duplicates are counted: only mustBe: 0")
    if not column or metric not in ("nullValues", "missingValues", "invalidValues"):
        raise NotExpressed(f"there is no metric {metric} of a {'column' if column else 'table'}")
    values: list[Any] | None = None
    if metric != "nullValues":
        values = given.pop("missingValues" if metric == "missingValues" else "validValues", None)
    pattern = given.pop("pattern", None) if metric == "invalidValues" else None
    if metric == "invalidValues" and none and (values is None) != (pattern is None):
        if pattern is not None:
            return {"type": _REGEX, "kwargs": {"column": column, "regex": pattern}}
        return {"type": _IN_SET, "kwargs": {"column": column, "value_set": values}}
    if none and metric == "nullValues":
        return {"type": _NONE[metric], "kwargs": {"column": column}}
    bad = _bad(metric, quoted(column), values, pattern)
    counted = f"count(CASE WHEN {bad} THEN 1 END)"
    if percent:
        counted = f"coalesce({counted} * 100.0D / nullif(count(*), 0), 0)"
    return _measured(f"SELECT {counted} FROM {{batch}} AS t", operator)


def _bad(metric: str, column: str, values: list[Any] | None, pattern: str | None) -> str:
    """The condition of a row that the metric counts; NULL is not invalid."""
    if metric == "nullValues":
        return f"{column} IS NULL"
    listed = ", ".join(_literal(value) for value in values or () if value is not None)
    if metric == "missingValues":
        among = [f"{column} IN ({listed})"] if listed else []
        null = [f"{column} IS NULL"] if values is None or None in values else []
        return " OR ".join([*null, *among]) or "false"
    tests = [f"{column} NOT IN ({listed})"] if listed else []
    if pattern is not None:
        tests.append(f"NOT {column} RLIKE {_literal(pattern)}")
    if not tests:
        raise NotExpressed("invalidValues needs validValues or a pattern")
    return " OR ".join(tests)


def _literal(value: object) -> str:
    """Braces are doubled: the text is one with {batch}."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        raise NotExpressed(f"{value!r} is no value of a column")
    text = value.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")
    return f"'{text}'"


_TABLE = re.compile(r"\$?\{(?:object|table|model|schema)\}")
_COLUMN = re.compile(r"\$?\{(?:property|column|field)\}")


def _of_query(text: str, column: str) -> str:
    """The query of a rule; braces that stand for nothing are doubled."""
    if not column and _COLUMN.search(text):
        raise NotExpressed("its query names {property}, and it is a rule of the table")
    parts = re.split(r"(\$?\{\w+\})", text.strip().rstrip(";"))
    done = []
    for part in parts:
        if _TABLE.fullmatch(part):
            done.append("{batch}")
        elif _COLUMN.fullmatch(part):
            done.append(quoted(column).replace("{", "{{").replace("}", "}}"))
        else:
            done.append(part.replace("{", "{{").replace("}", "}}"))
    return "".join(done)


def _measured(query: str, operator: tuple[str, list[Any]]) -> Expectation:
    """Passes if the only value of the query is as the operator says; NULL is not."""
    name, values = operator
    test = _OPERATORS[name].format(*map(_literal, values))
    text = f"SELECT measured FROM ({query}\n) AS m(measured) WHERE (measured {test}) IS NOT TRUE"
    return {"type": _QUERY, "kwargs": {"unexpected_rows_query": text}}


# --- what a property says besides -----------------------------------------------------------------


def expectations_of_options(
    options: dict[str, Any], enum: Sequence[Mapping[str, Any]], column: str
) -> Iterator[Expectation]:
    """Those of `logicalTypeOptions` and of `enum`; takes what it carries over out of `options`."""
    pairs = {
        _BETWEEN: (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")),
        _LENGTHS: (("minLength", ""), ("maxLength", "")),
    }
    for kind, bounds in pairs.items():
        kwargs: dict[str, Any] = {}
        for side, (plain, strict) in zip(("min", "max"), bounds, strict=True):
            if plain in options:
                kwargs[f"{side}_value"] = options.pop(plain)
            elif strict in options:
                kwargs |= {f"{side}_value": options.pop(strict), f"strict_{side}": True}
        if kwargs:
            yield {"type": kind, "kwargs": {"column": column, **kwargs}}
    if "pattern" in options:
        yield {"type": _REGEX, "kwargs": {"column": column, "regex": options.pop("pattern")}}
    if enum:
        values = [each["value"] for each in enum]
        yield {"type": _IN_SET, "kwargs": {"column": column, "value_set": values}}


# --- back -----------------------------------------------------------------------------------------


def rule_of(expectation: Mapping[str, Any]) -> tuple[str, Rule]:
    """The column whose rule it is, empty for the table, and the rule."""
    rest = dict(expectation)
    kind, kwargs = rest.pop("type"), dict(rest.pop("kwargs", None) or {})
    kwargs.pop("batch_id", None)
    meta = dict(rest.get("meta") or {})
    name = meta.get("check")
    about = {"name": name} if name else {}
    plain = {key for key, value in rest.items() if value} <= {"meta", "description", "severity"}
    usual = plain and set(meta) <= {"check"} and rest.get("severity") in (None, "warning", "info")
    column = kwargs.pop("column", "")
    metric = _metric_of(kind, kwargs) if usual else None
    if metric is None:
        same = {key: value for key, value in rest.items() if value}
        own = {"column": column} if column else {}
        implementation = {"type": kind, "kwargs": {**own, **kwargs}, **same}
        custom = {"type": "custom", "engine": ENGINE, "implementation": implementation}
        return column, {**about, **custom}
    for key in ("description", "severity"):
        if rest.get(key):
            about[key] = rest[key]
    return column, {**about, **metric}


def _metric_of(kind: str, kwargs: dict[str, Any]) -> Rule | None:
    """The metric that means the same; None if there is none."""
    if kind == _NONE["nullValues"] and not kwargs:
        return {"metric": "nullValues", "mustBe": 0}
    if kind == _UNIQUE and not kwargs:
        return {"metric": "duplicateValues", "mustBe": 0}
    if kind == _UNIQUE_TOGETHER and [*kwargs] == ["column_list"] and len(kwargs["column_list"]) > 1:
        given = {"properties": list(kwargs["column_list"])}
        return {"metric": "duplicateValues", "arguments": given, "mustBe": 0}
    if kind == _EXACT_ROWS and [*kwargs] == ["value"]:
        return {"metric": "rowCount", "mustBe": kwargs["value"]}
    numbers = all(isinstance(value, int) for value in kwargs.values())
    if kind == _ROWS and [*kwargs] in (["min_value"], ["max_value"]) and numbers:
        operator = "GreaterOrEqual" if "min_value" in kwargs else "LessOrEqual"
        return {"metric": "rowCount", f"mustBe{operator}To": next(iter(kwargs.values()))}
    argument = {_IN_SET: "value_set", _REGEX: "regex"}.get(kind)
    if argument and [*kwargs] == [argument]:
        name = "validValues" if kind == _IN_SET else "pattern"
        given = {name: kwargs[argument]}
        return {"metric": "invalidValues", "arguments": given, "mustBe": 0}
    return None
