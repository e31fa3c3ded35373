"""A sensor that materializes the assets that consume changes, when there are some (P39)."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Sequence

import dagster as dg

from acid_platform.errors import InvalidDefinition, NoSuchTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.metastore.operations.history import GetCursors
from acid_platform.metastore.operations.tables import GetLastWriteId
from acid_platform.orchestration.access import WarehouseAccess
from acid_platform.orchestration.decorators import CONSUMES
from acid_platform.orchestration.inputs import consumer_of
from acid_platform.orchestration.sensors import MOST_ATTEMPTS, UNFINISHED

CONSUMER_TAG, CHANGES_TAG = "acid/consumer", "acid/changes"


def change_sensor(
    assets: Sequence[dg.AssetsDefinition],
    name: str = "change_sensor",
    minimum_interval_seconds: int = 30,
) -> dg.SensorDefinition:
    """A sensor, shipped STOPPED, for assets with `TableInput(changes=True)`.

    It starts a run of an asset when a table whose changes it consumes has commits that it has not
    seen, and no such run is under way. After MOST_ATTEMPTS runs that did not consume the same
    changes, it waits for a person, or for another commit. Needs no JVM. Raises InvalidDefinition
    for an asset that consumes no changes.
    """
    consumed = {consumer_of(asset.keys): (sorted(asset.keys), _tables(asset)) for asset in assets}

    @dg.sensor(
        name=name,
        target=list(assets),
        minimum_interval_seconds=minimum_interval_seconds,
        description="Materializes assets that consume changes when there are some.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseAccess]
    ) -> dg.SensorResult:
        requests, reasons = [], []
        with warehouse.open() as opened:
            for consumer, (keys, tables) in consumed.items():
                news = _news(opened, consumer, tables)
                verdict = _request(context.instance, consumer, keys, news)
                if isinstance(verdict, dg.RunRequest):
                    requests.append(verdict)
                else:
                    reasons.append(f"{consumer}: {verdict}")
        if requests:
            return dg.SensorResult(run_requests=requests)
        return dg.SensorResult(skip_reason="; ".join(reasons) or "no asset consumes changes")

    return sensor


def _tables(asset: dg.AssetsDefinition) -> list[str]:
    for spec in asset.specs:
        found = spec.metadata.get(CONSUMES)
        if found is not None:
            return [str(table) for table in getattr(found, "value", found)]
    raise InvalidDefinition(
        f"{consumer_of(asset.keys)} consumes no changes: give it an input"
        " TableInput(table, changes=True), or leave it out of change_sensor"
    )


def _news(warehouse: Warehouse, consumer: str, tables: Sequence[str]) -> str:
    """What the consumer has not seen: for each table its cursor and the last commit; '' if all."""
    news = []
    for table in tables:
        try:
            rows = warehouse.metastore.call(GetCursors(table))
        except NoSuchTable:
            continue
        mine = next((row for row in rows if row.cursor.consumer == consumer), None)
        if mine is not None:
            if mine.behind:
                news.append(f"{table}:{mine.cursor.moment}-{mine.last}")
            continue
        last = warehouse.metastore.call(GetLastWriteId(warehouse.table(table).record.table_id))
        if last:
            news.append(f"{table}:new-{last}")
    return ",".join(news)


def _request(
    instance: dg.DagsterInstance, consumer: str, keys: list[dg.AssetKey], news: str
) -> dg.RunRequest | str:
    """A run of the consumer, or why there is none."""
    if not news:
        return "it has seen every change"
    tags = {CONSUMER_TAG: consumer}
    if instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED, tags=tags)):
        return "a run is consuming changes"
    tags |= {CHANGES_TAG: news}
    earlier = instance.get_runs_count(dg.RunsFilter(tags=tags))
    if earlier >= MOST_ATTEMPTS:
        return f"{earlier} runs have not consumed {news}; look at the runs, then launch one"
    return dg.RunRequest(
        run_key=f"{consumer}:{news}:{earlier + 1}", tags=tags, asset_selection=keys
    )
