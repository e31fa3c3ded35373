"""Which expectations there are and what arguments they take, when a module is loaded.

Great Expectations itself takes seconds to import, but its schemas of the classes are files.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acid_platform.base.visible import nearest_name
from acid_platform.errors import InvalidDefinition

if TYPE_CHECKING:
    from acid_platform.orchestration.checks import Expectation

_NAME = re.compile(r"[A-Za-z0-9_]+")
_OURS = "meta"
"""The argument that the platform sets."""


def require_names(expectations: Sequence[Expectation], owner: str) -> None:
    """Raises InvalidDefinition for a name that Dagster does not take, or that two of them have."""
    names = [expectation.name for expectation in expectations]
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidDefinition(
                f"{owner}: {name!r} is no name of a check: use letters, digits and _"
            )
        if names.count(name) > 1:
            raise InvalidDefinition(f"{owner}: two checks have the name {name}")


def require_known(expectations: Sequence[Expectation], owner: str) -> None:
    """Raises InvalidDefinition for a class that Great Expectations does not have, and for arguments
    that the class does not take or that are missing."""
    for expectation in expectations:
        if why := _fault(expectation):
            raise InvalidDefinition(f"{owner}: the check {expectation.name}: {why}")


def _fault(expectation: Expectation) -> str | None:
    kind, arguments = expectation.kind, expectation.arguments
    if not isinstance(kind, str):
        return f"give the name of the class as text, such as 'ExpectColumnToExist', not {kind!r}"
    if _OURS in arguments:
        return f"the platform sets {_OURS!r} itself: leave it out"
    kinds = _kinds()
    if kinds and kind not in kinds:
        registry = sys.modules.get("great_expectations.expectations.registry")
        if registry and kind in registry.list_registered_expectation_implementations():
            return None
        hint = _hint(kind, sorted(kinds)) or "; import the module of your own classes before"
        return f"Great Expectations has no class {kind!r}{hint}"
    schema = _schema(kind)
    if schema is None:
        return None
    names = sorted(name for name in schema["properties"] if name not in (_OURS, "metadata"))
    if unknown := [name for name in arguments if name not in names]:
        own = ", ".join(name for name in names if name not in _COMMON)
        hint = _hint(str(unknown[0]), names)
        return f"{kind} has no argument {unknown[0]!r}; it takes {own}{hint}"
    if missing := [name for name in schema.get("required", ()) if name not in arguments]:
        return f"{kind} needs the argument {', '.join(map(repr, missing))}"
    mostly = arguments.get("mostly", 1)
    if isinstance(mostly, int | float) and not 0 <= mostly <= 1:
        return f"mostly={mostly!r} is a share of the rows: give a number from 0 to 1"
    return None


_COMMON = frozenset(
    ("id", "notes", "result_format", "description", "catch_exceptions", "rendered_content",
     "severity", "windows", "batch_id", "condition_parser")
)  # fmt: skip
"""Arguments of every class, which messages need not name."""


def class_of_type(kind: str) -> str:
    """The class of a type such as `expect_column_to_exist`; of a user's own class the type."""
    return {name.lower(): name for name in _kinds()}.get(kind.replace("_", ""), kind)


def _hint(name: str, names: Sequence[str]) -> str:
    near = nearest_name(name, names)
    return f"; did you mean {near!r}?" if near else ""


@lru_cache(1)
def _core() -> Path | None:
    """Where the classes are; None if the package is not installed."""
    spec = importlib.util.find_spec("great_expectations")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) / "expectations" / "core" if places else None


@lru_cache(1)
def _kinds() -> frozenset[str]:
    """The names of all classes; empty if they can't be listed, so that evaluation decides."""
    core = _core()
    listing = core / "__init__.py" if core else None
    if listing is None or not listing.exists():
        return frozenset()
    text = listing.read_text("utf-8")
    return frozenset(re.findall(r"\b(?:Expect[A-Z]\w*|UnexpectedRowsExpectation)\b", text))


@lru_cache(256)
def _schema(kind: str) -> Mapping[str, Any] | None:
    """The schema of a class; None if it has none."""
    core = _core()
    path = core / "schemas" / f"{kind}.json" if core else None
    if path is None or not path.exists():
        return None
    schema: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return schema
