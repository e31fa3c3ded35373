"""What is checked: expectations, also those in suites of Great Expectations.

A suite gives its expectations, which the platform evaluates like its own. Neither its JSON file nor
the schemas of classes, by which names and arguments are checked when a module is loaded, need an
import of Great Expectations, which takes seconds.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from acid_platform.base.arguments import nearest_name
from acid_platform.base.paths import user_path
from acid_platform.errors import InvalidDefinition

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation and the asset check that it becomes.

    `kind` is the class name in Great Expectations, `arguments` are those of the class. A failure
    aborts the transaction or stops downstream assets if `blocking`, otherwise it only warns. With
    `quarantine`, of an asset's `expectations` alone, the returned rows that fail are written to the
    table `…_quarantine` instead.
    """

    name: str
    kind: str
    arguments: Mapping[str, Any]
    description: str = ""
    blocking: bool = True
    quarantine: bool = False

    @property
    def columns(self) -> frozenset[str]:
        """The columns that its arguments name."""
        single = (self.arguments.get(name) for name in ("column", "column_A", "column_B"))
        return frozenset(filter(None, (*single, *self.arguments.get("column_list", ()))))

    def spec(
        self, key: dg.AssetKey, partitions_def: dg.PartitionsDefinition[str] | None = None
    ) -> dg.AssetCheckSpec:
        """The check; with partitions, each evaluation is of one of them (P56)."""
        about: dict[str, Any] = {"description": self.description, "blocking": self.blocking}
        if partitions_def is not None and _CHECKS_HAVE_PARTITIONS:
            about["partitions_def"] = partitions_def
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.PreviewWarning)
            return dg.AssetCheckSpec(self.name, asset=key, **about)


_CHECKS_HAVE_PARTITIONS = "partitions_def" in signature(dg.AssetCheckSpec.__new__).parameters
"""Not in the first versions of Dagster 1.13."""


def refuse_quarantine(expectations: Sequence[Expectation], owner: str) -> None:
    """Raises InvalidDefinition for checks of rows that are written already."""
    for expectation in expectations:
        if expectation.quarantine:
            raise InvalidDefinition(
                f"{owner}: the check {expectation.name} can't set rows aside; quarantine=True is"
                " for the expectations of an asset"
            )


def require_columns(
    expectations: Sequence[Expectation], columns: Iterable[str], owner: str, advice: str = ""
) -> None:
    """Raises InvalidDefinition, with the advice, if an expectation names an unknown column.

    It is called when a module is loaded, so a misspelt column is found before a run starts.
    """
    names = {column.lower() for column in columns}
    for expectation in expectations:
        if unknown := sorted(
            column for column in expectation.columns if column.lower() not in names
        ):
            near = nearest_name(unknown[0].lower(), names)
            raise InvalidDefinition(
                f"{owner}: the expectation {expectation.name} names the column"
                f" {', '.join(map(repr, unknown))}; the columns are {', '.join(sorted(names))}"
                f"{advice}{f'; did you mean {near}?' if near else ''}"
            )


if TYPE_CHECKING:
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
