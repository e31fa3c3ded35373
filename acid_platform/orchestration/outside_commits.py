"""What Trino, Hive, `acid sql`, notebooks and streams commit, shown on the pages of the assets.

Each commit that no run of Dagster shows becomes one event of each asset whose table it wrote: an
observation, or a materialization of an external asset. Not a materialization where Dagster has a
function to run: that would say that the function has run with what is upstream now, and automation
conditions would take the asset for refreshed.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import dagster as dg

from acid_platform.metastore.client.metastore import Metastore
from acid_platform.orchestration.resources import WarehouseResource
from acid_platform.transactions import RowOperation, TxnType

MOST_COMMITS = 500
"""The most transactions that one tick shows; the next tick goes on."""
DATA_VERSION = "dagster/data_version"
_PAGE = 1000
_EVENTS = {dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION}

AssetEvent = dg.AssetMaterialization | dg.AssetObservation
Identity = tuple[int, int, int]
"""Transaction, write id and time of a commit: a metastore that was restored to the past gives ids
again, but not at the same time."""


@dataclass(frozen=True, slots=True)
class CommitCursor:
    """How far the sensor has come: a snapshot of the metastore's transactions.

    Transactions do not commit in the order of their ids, so the last id alone would miss some.
    """

    history: str = ""
    """The id of the metastore's log; in another one the numbers mean nothing."""
    next_txn: int = 1
    waiting: tuple[int, ...] = ()
    """Transactions below `next_txn` that were open, or whose run was."""
    last_event: int = 0
    """The last event in Dagster's log when the tick began. If the daemon dies before it has stored
    the cursor, what it had shown by then comes after it."""

    @classmethod
    def parse(cls, text: str | None) -> "CommitCursor | None":
        """None for what is no cursor of this sensor, such as that of an earlier one of its name."""
        if not text:
            return cls()
        try:
            values = json.loads(text)
            cursor = cls(**{**values, "waiting": tuple(values["waiting"])})
        except (ValueError, TypeError, KeyError):
            return None
        numbers = (cursor.next_txn, cursor.last_event, *cursor.waiting)
        whole = all(type(number) is int and number >= 0 for number in numbers)
        return cursor if whole and isinstance(cursor.history, str) else None

    def __str__(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class OutsideCommit:
    """What a transaction wrote to a table, which had this name then."""

    table: str
    txn: int
    write_id: int
    time: int
    """Milliseconds UTC."""
    user: str
    run_id: str
    engine: str
    rows: int
    deleted: int
    """Rows that it deleted or wrote anew; of an overwrite: 0."""
    overwrites: bool
    bytes: int
    partitions: str
    """The first hundred of them."""

    @property
    def identity(self) -> Identity:
        return self.txn, self.write_id, self.time

    def event(self, key: dg.AssetKey, external: bool) -> AssetEvent:
        metadata = {
            "transaction": dg.MetadataValue.int(self.txn),
            "write id": dg.MetadataValue.int(self.write_id),
            "committed": dg.MetadataValue.timestamp(self.time / 1000),
            "user": dg.MetadataValue.text(self.user),
            "rows written": dg.MetadataValue.int(self.rows),
            "rows deleted": dg.MetadataValue.int(self.deleted),
            "overwrites": dg.MetadataValue.bool(self.overwrites),
            "written bytes": dg.MetadataValue.int(self.bytes),
        }
        if self.engine:
            metadata["engine"] = dg.MetadataValue.text(self.engine)
        if self.partitions:
            metadata["partitions"] = dg.MetadataValue.text(self.partitions)
        if self.run_id:
            metadata["run id"] = dg.MetadataValue.text(self.run_id)
        what = f"transaction {self.txn} of {self.user or 'an unknown user'}"
        if external:
            version = {DATA_VERSION: str(self.write_id)}
            return dg.AssetMaterialization(key, what, metadata, tags=version)
        return dg.AssetObservation(key, what, metadata=metadata)


@dg.sensor(
    minimum_interval_seconds=30,
    description="Shows the commits of Trino, Hive, `acid sql`, notebooks and streams.",
)
def commit_sensor(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SensorResult:
    """An event for each commit to the table of an asset of this code location, in order.

    Exactly once: what is in Dagster's log already is not shown again, whatever became of the
    cursor. A commit by a run is left to the run; if the run ends without an event of the asset, the
    commit is shown. Without a cursor, all that the metastore remembers is new.
    """
    instance = context.instance
    assets = _assets(context)
    before = CommitCursor.parse(context.cursor)
    anew = ""
    with warehouse.open(branch="") as opened:
        now = _now(opened.metastore)
        if before is None or before.history != now.history:
            if context.cursor:
                whose = "of another metastore" if before else "none of this sensor"
                anew = f"; its cursor was {whose} ({context.cursor[:80]}), so it began anew"
            before = CommitCursor()
        commits = _commits(opened.metastore, before, now)
    txns = sorted({commit.txn for commit in commits})
    if len(txns) == MOST_COMMITS:
        now = replace(now, next_txn=txns[-1] + 1)
    commits = [commit for commit in commits if commit.table in assets]
    finished = _finished_runs(instance, {commit.run_id for commit in commits})
    commits_of_runs = {commit.txn for commit in commits if finished.get(commit.run_id) is False}
    waiting = {txn for txn in now.waiting if txn < now.next_txn} | commits_of_runs
    after = replace(
        now,
        waiting=tuple(sorted(waiting)),
        last_event=instance.event_log_storage.get_maximum_record_id() or 0,
    )
    shown_by_runs = {run: _shown_by(instance, run) for run, ended in finished.items() if ended}
    recorded: dict[dg.AssetKey, set[Identity]] = {}
    events: list[AssetEvent] = []
    for commit in commits:
        key, external = assets[commit.table]
        if commit.txn in commits_of_runs or key in shown_by_runs.get(commit.run_id, ()):
            continue
        if key not in recorded:
            recorded[key] = _recorded(instance, key, before.last_event)
        if commit.identity not in recorded[key]:
            events.append(commit.event(key, external))
    shows = f"{len(events)} commits are shown" if events else "there is no commit to show"
    return dg.SensorResult(asset_events=events, cursor=str(after), skip_reason=shows + anew)


# --- the metastore ------------------------------------------------------------------------------


def _now(metastore: Metastore) -> CommitCursor:
    """The present snapshot."""
    _, rows = metastore.query(
        "SELECT (SELECT value FROM meta WHERE key = 'history'),"
        " (SELECT value::BIGINT FROM meta WHERE key = 'next_txn'),"
        " (SELECT string_agg(txn_id::VARCHAR, ',') FROM v_open_txns"
        f" WHERE kind <> {TxnType.READ_ONLY.value})"
    )
    [(history, next_txn, writers)] = rows
    waiting = sorted(map(int, writers.split(","))) if writers else ()
    return CommitCursor(history, next_txn, tuple(waiting))


def _commits(metastore: Metastore, before: CommitCursor, now: CommitCursor) -> list[OutsideCommit]:
    """The commits that the first snapshot does not see and the second does, in order of ids."""
    first = min((before.next_txn, *before.waiting))
    _, rows = metastore.query(
        'SELECT "table", txn, write_id, "time", "user", run_id,'
        " coalesce(string_agg(DISTINCT engine, ', ' ORDER BY engine), ''),"
        " coalesce(sum(\"rows\") FILTER (NOT starts_with(directory, 'delete_')), 0)::BIGINT,"
        " coalesce(sum(\"rows\") FILTER (starts_with(directory, 'delete_')), 0)::BIGINT,"
        " bool_or(overwrite), sum(bytes)::BIGINT,"
        ' coalesce(array_to_string(list(DISTINCT "partition" ORDER BY "partition")[:100],'
        " ', '), '')"
        f" FROM writes WHERE operation <> '{RowOperation.COMPACT.value}'"
        f" AND txn >= {first} AND txn < {now.next_txn} AND {_among(now.waiting, 'NOT ')}"
        f" AND (txn >= {before.next_txn} OR {_among(before.waiting)})"
        ' GROUP BY "table", txn, write_id, "time", "user", run_id'
        f" QUALIFY dense_rank() OVER (ORDER BY txn) <= {MOST_COMMITS} ORDER BY txn, write_id"
    )
    return [OutsideCommit(*row) for row in rows]


def _among(txns: Iterable[int], negated: str = "") -> str:
    return f"txn {negated}IN ({', '.join(map(str, (0, *txns)))})"  # there is no transaction 0


# --- Dagster ------------------------------------------------------------------------------------


def _assets(context: dg.SensorEvaluationContext) -> dict[str, tuple[dg.AssetKey, bool]]:
    """By table: its asset, and whether a commit materializes it. That of a part of an asset with
    partitions does not."""
    assert context.repository_def
    return {
        str(spec.metadata.get("dagster/table_name", ".".join(spec.key.path))): (
            spec.key,
            asset.is_external and spec.partitions_def is None,
        )
        for asset in context.repository_def.assets_defs_by_key.values()
        if not asset.is_auto_created_stub  # upstream of an asset, and nothing is said of it
        for spec in asset.specs
    }


def _finished_runs(instance: dg.DagsterInstance, run_ids: Iterable[str]) -> dict[str, bool]:
    """Whether each run has ended, of those that this Dagster has."""
    listed = sorted(filter(None, run_ids))
    if not listed:
        return {}
    runs = instance.get_runs(dg.RunsFilter(run_ids=listed))
    return {run.run_id: run.is_finished for run in runs}


def _shown_by(instance: dg.DagsterInstance, run_id: str) -> set[dg.AssetKey]:
    """The assets of which the run has recorded an event."""
    records = instance.get_records_for_run(run_id, of_type=_EVENTS).records
    return {record.asset_key for record in records if record.asset_key}


def _recorded(instance: dg.DagsterInstance, key: dg.AssetKey, after: int) -> set[Identity]:
    """The commits that events of the asset show, of those after this one in Dagster's log."""
    identities = set()
    chosen = dg.AssetRecordsFilter(asset_key=key, after_storage_id=after)
    for fetch in (instance.fetch_observations, instance.fetch_materializations):
        cursor: str | None = None
        more = True
        while more:
            page = fetch(chosen, limit=_PAGE, cursor=cursor)
            for record in page.records:
                event = record.asset_observation or record.asset_materialization
                if event and (identity := _identity(event.metadata)):
                    identities.add(identity)
            cursor, more = page.cursor, page.has_more
    return identities


def _identity(metadata: Mapping[str, dg.MetadataValue]) -> Identity | None:
    values = [metadata.get(name) for name in ("transaction", "write id", "committed")]
    match values:
        case [
            dg.IntMetadataValue(value=int(txn)),
            dg.IntMetadataValue(value=int(write_id)),
            dg.TimestampMetadataValue(value=seconds),
        ]:
            return txn, write_id, round(seconds * 1000)
    return None
