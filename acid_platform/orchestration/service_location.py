"""The services as a code location of their own, all of them switched on:

    - python_module:
        module_name: acid_platform.orchestration.service_location
        location_name: services

They go on if a module of assets can't be loaded, and Automation shows them as one group. The
warehouse is that of the environment.
"""

from __future__ import annotations

import dagster as dg

from acid_platform.orchestration.resources import (
    SparkResource,
    WarehouseResource,
    restore_environment,
)
from acid_platform.orchestration.service_definitions import warehouse_services

restore_environment()

defs = dg.Definitions.merge(
    warehouse_services(on=True),
    dg.Definitions(resources={"warehouse": WarehouseResource(), "spark": SparkResource()}),
)
