"""What the modules of a project's package define: all that `definitions.py` gives to Dagster."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg

from acid_platform.errors import InvalidDefinition

_RESOURCES = (
    dg.ConfigurableResource,
    dg.ConfigurableIOManager,
    dg.ConfigurableIOManagerFactory,
    dg.ResourceDefinition,
)


def modules_of(package: str) -> list[ModuleType]:
    """The package and every module below it, in subfolders too; empty if there is none.

    A subfolder needs no `__init__.py`. Raises what a module raises when it is loaded.
    """
    try:
        top = importlib.import_module(package)
    except ModuleNotFoundError as missing:
        if missing.name != package:  # it exists, but one of its imports failed
            raise
        return []
    names = {name for root in top.__path__ for name in _names(Path(root))}
    return [top, *(importlib.import_module(f"{package}.{name}") for name in sorted(names))]


def _names(root: Path) -> Iterator[str]:
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield ".".join(parts)


def collected(modules: Sequence[ModuleType], services: dg.Definitions) -> dg.Definitions:
    """The services, and the assets, checks, jobs, schedules and sensors at the top of the modules,
    alone or in lists.

    A resource at the top of a module is one under the name of its variable. What several modules
    import is taken once. Raises InvalidDefinition for a name that two resources have, and for a
    module that makes a `dg.Definitions`, which would be lost.
    """
    resources = dict(services.resources or {})
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, dg.Definitions) or type(value).__name__ == "LazyDefinitions":
                raise InvalidDefinition(
                    f"{module.__name__} makes a dg.Definitions, {name}, which nobody reads: leave"
                    " it out; definitions.py finds what stands at the top of the module"
                )
            is_resource = isinstance(value, _RESOURCES) and not name.startswith("_")
            if is_resource and resources.setdefault(name, value) is not value:
                raise InvalidDefinition(
                    f"two resources have the name {name!r}, one is in {module.__name__}: give its"
                    " variable another name"
                )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        own = dg.load_definitions_from_modules(modules)
    return dg.Definitions(
        assets=_once(services.assets, own.assets),
        asset_checks=_once(services.asset_checks, own.asset_checks),
        jobs=_once(services.jobs, own.jobs),
        schedules=_once(services.schedules, own.schedules),
        sensors=_once(services.sensors, own.sensors),
        resources=resources,
        executor=services.executor,
    )


def _once(*parts: Iterable[Any] | None) -> list[Any]:
    """The objects in their order; a schedule's module may import a job of the services."""
    return list({id(each): each for part in parts for each in part or ()}.values())
