"""Expectation suites of Great Expectations, as its users have them, as checks.

A suite gives its expectations, which the platform evaluates like its own. Its JSON file is read
without importing Great Expectations, which takes seconds.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from acid_platform.base.paths import user_path
from acid_platform.errors import InvalidDefinition
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.known_expectations import class_of_type

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

    Given: TypeAlias = Expectation | ExpectationSuite | str | Path
    """What `expectations=[…]` takes; a text is the path of a JSON file."""

CHECK = "check"
"""The key in an expectation's `meta` that names its check."""


def expectations_of(given: Iterable[Given], owner: str) -> tuple[Expectation, ...]:
    """The expectations, those of suites included, each with the name of its check.

    The name is `check` in the expectation's meta, else its type and columns. Only an expectation of
    the severity critical blocks. Raises InvalidDefinition.
    """
    found: list[Expectation] = []
    for item in given:
        if isinstance(item, Expectation):
            found.append(item)
            continue
        names = {expectation.name for expectation in found}
        for expectation in _read(item, owner):
            name, number = expectation.name, 1
            while name in names:
                number += 1
                name = f"{expectation.name}_{number}"
            names.add(name)
            found.append(replace(expectation, name=name))
    return tuple(found)


def _read(item: object, owner: str) -> Iterator[Expectation]:
    gx = sys.modules.get("great_expectations")  # who has an object of it has imported it
    if isinstance(item, str | Path):
        path = Path(user_path(item))
        content = _json(path, owner)
        if "expectations" not in content:
            raise InvalidDefinition(
                f"{owner}: {path} is no expectation suite of Great Expectations; of a checkpoint"
                " give the suites"
            )
        yield from _of_suite(content["expectations"], owner)
    elif gx and isinstance(item, gx.ExpectationSuite):
        yield from _of_suite(_configurations(item), owner)
    else:
        raise InvalidDefinition(
            f"{owner}: expectations are of Expectation, or a suite of Great Expectations, or the"
            f" path of its JSON file, not {type(item).__name__}; of a checkpoint give the suites"
        )


def _json(path: Path, owner: str) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidDefinition(
            f"{owner}: can't read {path}: {error.strerror}; give the path of a suite's JSON file"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{owner}: {path} is no JSON file: {error}") from error
    return content if isinstance(content, Mapping) else {}


def _configurations(suite: ExpectationSuite) -> list[Mapping[str, Any]]:
    """As in a suite's file, but the values of arguments stay objects."""
    return [
        {
            "type": each.configuration.type,
            "kwargs": each.configuration.kwargs,
            "meta": each.configuration.meta,
            "description": each.configuration.description,
            "severity": each.configuration.severity,
        }
        for each in suite.expectations
    ]


def _of_suite(expectations: Iterable[Mapping[str, Any]], owner: str) -> Iterator[Expectation]:
    for each in expectations:
        arguments = {name: value for name, value in each["kwargs"].items() if name != "batch_id"}
        if parameter := next(filter(_is_parameter, arguments.values()), None):
            raise InvalidDefinition(
                f"{owner}: {each['type']} has the parameter {parameter['$PARAMETER']}, and nothing"
                " gives it a value: write the value into the suite"
            )
        expectation = Expectation("", class_of_type(each["type"]), arguments)
        named = (each.get("meta") or {}).get(CHECK)
        parts = [each["type"].removeprefix("expect_"), *sorted(expectation.columns)]
        # In JSON it is a text, in the object an enum of texts.
        severity = getattr(each.get("severity"), "value", each.get("severity"))
        yield replace(
            expectation,
            name=named or re.sub(r"\W", "_", "_".join(parts), flags=re.ASCII),
            description=each.get("description") or "",
            blocking=severity in (None, "critical"),
        )


def _is_parameter(value: object) -> bool:
    return isinstance(value, Mapping) and "$PARAMETER" in value
