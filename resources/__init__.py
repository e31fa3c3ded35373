"""The resources of this project, by the names under which assets, jobs and sensors ask for them.

An `AcidIOManager` under the name `io_manager` would make tables of assets by plain `@dg.asset`.
"""

from acid_platform.orchestration import SparkResource, WarehouseResource

RESOURCES = {"warehouse": WarehouseResource(), "spark": SparkResource()}
