"""The composition root: what Dagster loads (workspace.yaml)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import dagster as dg

from acid_platform.orchestration import load_defs, services
from acid_platform.orchestration.resources import restore_environment
from resources import RESOURCES

restore_environment()


@dg.definitions
def defs() -> dg.Definitions:
    """The services, and what Dagster finds in the folder `assets`: the definitions at the top of
    each module, and components in YAML.

    A run uses one process, and so one JVM, for all of its steps.
    """
    own = [dg.Definitions(resources=RESOURCES, executor=dg.in_process_executor)]
    if importlib.util.find_spec("assets") is not None:
        own.append(load_defs(Path(__file__).parent))
    return dg.Definitions.merge(services(), *own)
