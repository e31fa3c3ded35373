"""Expectation suites and checkpoints of Great Expectations, as its users have them, as checks.

A suite gives its expectations, which the platform evaluates like its own. A checkpoint is run as a
whole, with its actions, on the rows that would be committed. Their JSON files are read without
importing Great Expectations, which takes seconds.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from acid_platform.base.paths import user_path
from acid_platform.errors import CheckErrored, InvalidDefinition
from acid_platform.orchestration.checks import Expectation, Finding, data_docs, details_of, errored
from acid_platform.orchestration.known_expectations import class_of_type

if TYPE_CHECKING:
    from great_expectations import Checkpoint, ExpectationSuite

    Given: TypeAlias = Expectation | ExpectationSuite | Checkpoint | str | Path
    """What `expectations=[…]` takes; a text is the path of a JSON file."""

CHECK = "check"
"""The key in an expectation's `meta` that names its check."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnCheckpoint:
    """A checkpoint of a user: the object, or its file in the folder of a file context."""

    source: Checkpoint | Path

    def loaded(self) -> Checkpoint:
        """Raises InvalidDefinition if it reads its rows from somewhere else."""
        checkpoint = self._load()
        for definition in checkpoint.validation_definitions:
            if definition.data.data_asset.type != "dataframe":
                raise InvalidDefinition(
                    f"the checkpoint {checkpoint.name} reads {definition.data.data_asset.name} of"
                    f" {definition.data.data_asset.datasource.name} by itself, so it would not see"
                    " rows before their commit; give its validation definition a dataframe asset of"
                    " pandas or Spark, or give the asset its suite instead"
                )
        return checkpoint

    def _load(self) -> Checkpoint:
        import great_expectations as gx

        if not isinstance(self.source, Path):
            return self.source
        context = gx.get_context(mode="file", context_root_dir=self.source.parent.parent)
        return context.checkpoints.get(self.source.stem)


@dataclass(frozen=True, slots=True)
class CheckpointExpectation(Expectation):
    """An expectation that a checkpoint of the user evaluates."""

    checkpoint: OwnCheckpoint | None = None
    id: str = ""
    """What Great Expectations knows it by."""


def expectations_of(given: Iterable[Given], owner: str) -> tuple[Expectation, ...]:
    """The expectations, those of suites and checkpoints included, each with the name of its check.

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
        if "validation_definitions" in content:
            yield from _of_checkpoint(OwnCheckpoint(path), _suites_of(path, content, owner), owner)
        elif "expectations" in content:
            yield from _of_suite(content["expectations"], owner)
        else:
            raise InvalidDefinition(
                f"{owner}: {path} is neither an expectation suite nor a checkpoint of Great"
                " Expectations"
            )
    elif gx and isinstance(item, gx.ExpectationSuite):
        yield from _of_suite(_configurations(item), owner)
    elif gx and isinstance(item, gx.Checkpoint):
        suites = [_configurations(each.suite) for each in item.validation_definitions]
        yield from _of_checkpoint(OwnCheckpoint(item), suites, owner)
    else:
        raise InvalidDefinition(
            f"{owner}: expectations are of Expectation, or a suite or checkpoint of Great"
            f" Expectations, or the path of its JSON file, not {type(item).__name__}"
        )


def _json(path: Path, owner: str) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidDefinition(
            f"{owner}: can't read {path}: {error.strerror}; give the path of a suite's or"
            " checkpoint's JSON file"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{owner}: {path} is no JSON file: {error}") from error
    return content if isinstance(content, Mapping) else {}


def _suites_of(
    checkpoint: Path, content: Mapping[str, Any], owner: str
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The expectations of each suite of a checkpoint in a file context."""
    root = checkpoint.parent.parent
    for each in content["validation_definitions"]:
        definition = _json(root / "validation_definitions" / f"{each['name']}.json", owner)
        yield _json(root / "expectations" / f"{definition['suite']['name']}.json", owner)[
            "expectations"
        ]


def _configurations(suite: ExpectationSuite) -> list[Mapping[str, Any]]:
    """As in a suite's file, but the values of arguments stay objects."""
    return [
        {
            "type": each.configuration.type,
            "kwargs": each.configuration.kwargs,
            "meta": each.configuration.meta,
            "description": each.configuration.description,
            "severity": each.configuration.severity,
            "id": each.id,
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


def _of_checkpoint(
    checkpoint: OwnCheckpoint, suites: Iterable[Sequence[Mapping[str, Any]]], owner: str
) -> Iterator[Expectation]:
    by_id = {each.get("id"): each for suite in suites for each in suite}
    if None in by_id:
        raise InvalidDefinition(
            f"{owner}: {by_id[None]['type']} of a checkpoint has no id; save its suite in the data"
            " context (suite.save()), then give the checkpoint"
        )
    for number, each in zip(by_id, _of_suite(by_id.values(), owner), strict=True):
        yield CheckpointExpectation(
            each.name,
            each.kind,
            each.arguments,
            each.description,
            each.blocking,
            checkpoint=checkpoint,
            id=str(number),
        )


def evaluate_checkpoint(
    checkpoint: Checkpoint, frame: Any, expectations: Sequence[CheckpointExpectation]
) -> list[Finding]:
    """Runs the checkpoint on the frame; returns the findings of these expectations of it.

    Raises CheckErrored if one can't be evaluated, or if the checkpoint raises an error.
    """
    from great_expectations.checkpoint.actions import UpdateDataDocsAction
    from great_expectations.exceptions.exceptions import (
        GreatExpectationsAggregateError,
        GreatExpectationsError,
    )

    try:
        report = checkpoint.run(batch_parameters={"dataframe": frame})
    except (GreatExpectationsError, GreatExpectationsAggregateError) as error:
        raise CheckErrored(f"the checkpoint {checkpoint.name} raised an error: {error}") from error
    has_site = any(isinstance(action, UpdateDataDocsAction) for action in checkpoint.actions)
    context = checkpoint.validation_definitions[0].data.data_asset.datasource.data_context
    results: dict[str, Any] = {}
    sites: dict[str, str] = {}
    for key, validation in report.run_results.items():
        site = ""
        if has_site and context is not None:
            urls = context.get_docs_sites_urls(resource_identifier=key)
            site = next((str(each["site_url"]) for each in urls if each["site_url"]), "")
        for result in validation.results:
            config: Any = result.expectation_config
            results[config.id], sites[config.id] = result, site
    findings = []
    for expectation in expectations:
        result = results[expectation.id]
        if message := errored(result.exception_info):
            raise CheckErrored(
                f"expectation {expectation.name!r} of the checkpoint {checkpoint.name} could not be"
                f" evaluated: {message}; correct its arguments or the columns that it names"
            )
        findings.append(
            Finding(
                expectation.name,
                bool(result.success),
                expectation.blocking,
                details_of(expectation, result.result or {}),
                site=sites[expectation.id],
            )
        )
    page = data_docs(findings)
    return [replace(finding, docs=page) for finding in findings]
