"""The composition root: what Dagster loads (workspace.yaml)."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import dagster as dg

from acid_platform.orchestration import load_defs, services
from resources import RESOURCES


def restore_environment() -> None:
    """Gives the settings the values that `make dev` was told: Dagster lets .env override them, and
    would open the warehouse that stands there."""
    written = os.environ.get("ACID_ENVIRONMENT")
    if written is None:
        return
    for name in [name for name in os.environ if name.startswith("ACID_")]:
        del os.environ[name]
    os.environ |= dict(line.split("=", 1) for line in written.splitlines() if "=" in line)
    os.environ["ACID_ENVIRONMENT"] = written


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
