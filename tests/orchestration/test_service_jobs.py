"""The jobs of the services: what they publish, report, refuse, and leave behind."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import definitions
from acid_platform import NotEnoughHistory
from acid_platform.cli.main import main
from acid_platform.compaction.profiles import Invariant, Profile, measures
from acid_platform.compaction.states import ErasureState
from acid_platform.metastore.operations.compaction import GetErasures
from acid_platform.orchestration.checks import Expectation
from acid_platform.orchestration.evaluation import table_checks
from acid_platform.orchestration.metadata import TableDeclaration, TableStats
from acid_platform.orchestration.resources import SparkResource
from acid_platform.orchestration.sensors import erasure_sensor
from acid_platform.orchestration.service_jobs import kept
from acid_platform.services.worker import CompactionRun
from acid_platform.transactions import TxnType
from tests.acid_files import stored_rows
from tests.compaction.test_kills import made
from tests.compaction.test_kills import rows as stored
from tests.orchestration.conftest import Place, quiet

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.


pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Parameter `owners`")]

TABLE = TableDeclaration("db.t", "id int, v string", partitioned_by=("p int",))


@pytest.fixture
def filled(place: Place, spark: SparkSession) -> Iterator[Place]:
    """Two partitions with an insert, an update and a delete each."""
    place.warehouse._given = spark
    table = place.warehouse.create_table(TABLE.name, TABLE.columns, TABLE.partitioned_by)
    rows = pd.DataFrame({"id": range(1, 7), "v": list("abcdef"), "p": [1, 2] * 3})
    table.insert(rows)
    table.update({"v": "upper(v)"}, "id IN (3, 4)")
    table.delete("id > 4")
    for partition in ("p=1", "p=2"):
        place.warehouse.metastore.request_compaction(TABLE.name, partition, "major")
    yield place


LEFT = [(1, "a", 1), (2, "b", 2), (3, "C", 1), (4, "D", 2)]


def rows(place: Place) -> list[tuple[Any, ...]]:
    place.warehouse.release()
    return sorted(tuple(row) for row in place.warehouse.table(TABLE.name).read().collect())


def compact(place: Place, table: str = TABLE.name, spark: Any = None) -> dg.ExecuteInProcessResult:
    job = definitions.defs().resolve_job_def("compaction_job")
    return job.execute_in_process(
        run_config=quiet(queued={"config": {"table": table}}),
        instance=place.instance,
        resources={
            "warehouse": place.resource,
            "spark": spark or SparkResource(),
            "in_memory": dg.mem_io_manager,
        },
        raise_on_error=False,
    )


def expectations(result: dg.ExecuteInProcessResult) -> list[tuple[str, bool]]:
    """Which invariants held, as the outputs and the failures of the run tell it."""
    told: list[tuple[str, bool]] = []
    for event in result.all_events:
        if event.is_successful_output:
            metadata = event.step_output_data.metadata
        elif event.is_step_failure and event.step_failure_data.user_failure_data:
            metadata = event.step_failure_data.user_failure_data.metadata
        else:
            continue
        if "invariants" in metadata:
            told += [
                (str(one.data["expectation"]), bool(one.data["passed"]))
                for one in metadata["invariants"].records
            ]
    return told


def chosen(result: dg.ExecuteInProcessResult) -> list[tuple[str, str]]:
    """The engine of each merge and why it was chosen, as the run tells it."""
    merges = [
        event.step_output_data.metadata
        for event in result.all_events
        if event.is_successful_output and event.step_key.startswith("merge")
    ]
    return [
        (str(merge["engine"].value), str(merge["engine chosen because"].value)) for merge in merges
    ]


class NoSpark:
    """A resource `spark` that must not be used."""

    @property
    def spark_session(self) -> Any:
        raise AssertionError("no JVM for small tables")


def queue(place: Place) -> dict[str, str]:
    return {row["partname"]: row["state"] for row in place.warehouse.metastore.compactions()}


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_C31_the_job_compacts_every_queued_partition(
    filled: Place, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("ACID_ENGINE", engine)
    entities = filled.warehouse.metastore.entities(TABLE.name)
    assert TableStats.of(entities).rows == len(LEFT)
    result = compact(filled)
    assert result.success
    assert queue(filled) == {"p=1": "ready for cleaning", "p=2": "ready for cleaning"}
    assert rows(filled) == LEFT
    observed = [
        one.asset_observation_data.asset_observation
        for one in result.get_asset_observation_events()
    ]
    assert [
        (
            str(one.metadata["partition"].value),
            one.metadata["before: delta directories"].value,
            one.metadata["after: base directories"].value,
            one.metadata["rows"].value,
        )
        for one in observed
    ] == [("p=1", 2, 1, 2), ("p=2", 2, 1, 2)]
    assert not result.get_asset_materialization_events()  # the data has not changed
    tags = filled.instance.get_run_tags(tag_keys=["acid/compaction-1"])
    [(_, [job_name])] = tags
    assert job_name.endswith("-compactor-db.t.p=1")
    _, ids = filled.warehouse.metastore.query(
        f"SELECT run_id, count(*) FROM txns WHERE kind = {TxnType.COMPACTION.value} GROUP BY 1"
    )
    assert ids == [[result.run_id, 2]]
    steps = [
        event.step_key
        for event in result.all_events
        if event.event_type is dg.DagsterEventType.STEP_SUCCESS
    ]
    assert chosen(result) == [(engine, f"engine={engine}")] * 2
    # Five invariants of each partition.
    assert len(expectations(result)) == 10
    assert set(expectations(result)) == {
        (f"compaction_keeps_{one}", True)
        for one in ("rows", "row_ids", "delete_events", "column_values", "order")
    }
    pages = [
        event.step_output_data.metadata["data docs"]
        for event in result.all_events
        if event.is_successful_output and event.step_key.startswith("validate")
    ]
    assert ["5 of 5 expectations hold" in str(page.value) for page in pages] == [True, True]
    assert steps[1:5] == [f"{op}[1_p_1]" for op in ("plan", "merge", "validate", "publish")]


def test_small_tables_are_compacted_by_the_job_without_spark(place: Place) -> None:
    name = made(place.warehouse, "db.small")
    before = stored(place.warehouse, name)
    place.warehouse.metastore.request_compaction(name, None, "minor")
    result = compact(place, name, NoSpark())
    assert result.success
    [(engine, reason)] = chosen(result)
    assert engine == "local" and reason.endswith(" bytes to read")
    assert expectations(result) and all(passed for _, passed in expectations(result))
    assert stored(place.warehouse, name) == before


def test_C32_a_compaction_that_would_change_the_data_is_not_published(
    filled: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = CompactionRun.merge

    def wrong(run: CompactionRun) -> object:
        staged = merge(run)
        if run.task.partition == "p=1":
            actual = dataclasses.replace(
                staged.actual, row_id_checksum=staged.actual.row_id_checksum + 1
            )
            run.staged = dataclasses.replace(staged, actual=actual)
        return run.staged

    monkeypatch.setattr(CompactionRun, "merge", wrong)
    result = compact(filled)
    assert not result.success
    assert queue(filled) == {"p=1": "failed", "p=2": "ready for cleaning"}  # the other goes on
    [failed] = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_key == "validate[1_p_1]"
    assert [name for name, passed in expectations(result) if not passed] == [
        "compaction_keeps_row_ids"
    ]
    error = next(
        row["errormessage"]
        for row in filled.warehouse.metastore.compactions()
        if row["partname"] == "p=1"
    )
    assert "would change the data: row ids" in error and "inputs were kept" in error
    left = [one for one in filled.warehouse.metastore.transactions() if one["state"] == "OPEN"]
    assert left == []
    assert rows(filled) == LEFT
    partition = Path(filled.warehouse.table(TABLE.name).location, "p=1")
    assert not [one for one in partition.iterdir() if one.name.startswith(("base_", "_tmp_"))]


def test_the_job_says_that_nothing_waits_and_that_a_table_is_not_there(place: Place) -> None:
    place.table("db.idle")
    place.table("db.gone")
    place.warehouse.drop_table("db.gone")
    misspelt = compact(place, "db.idel")
    assert not misspelt.success
    assert "did you mean db.idle?" in str(misspelt.all_events)
    for table, reason in [
        ("db.gone", "there is no table db.gone"),
        ("DB.Idle", "the queue has no compaction of db.idle"),
    ]:
        done = compact(place, table)
        assert done.success
        [told] = [
            event.user_message
            for event in place.instance.all_logs(done.run_id)
            if "there is nothing to compact" in event.user_message
        ]
        assert reason in told


def test_every_measure_of_the_profiles_counts() -> None:
    base = Profile(3, 1 << 63, 0, 0, {"v": 2**64 - 1}, {"v": 0})
    assert [one.passed for one in kept(measures(base, base))] == [True] * len(Invariant)
    changes: list[tuple[str, dict[str, Any]]] = [
        ("rows", {"rows": 4}),
        ("row_ids", {"row_id_checksum": (1 << 63) + 1}),
        ("delete_events", {"delete_events": 1}),
        ("delete_events", {"delete_event_checksum": 1}),
        ("column_values", {"column_checksums": {"v": 2**64 - 2}}),
        ("column_values", {"column_checksums": {}}),
        ("column_values", {"null_counts": {"v": 1}}),
        ("order", {"disordered": 1}),
    ]
    for name, change in changes:
        found = kept(measures(base, dataclasses.replace(base, **change)))
        broken = [one.name for one in found if one.blocks]
        assert broken == [f"compaction_keeps_{name}"], change


POSITIVE = Expectation(
    "ids_are_positive", "ExpectColumnValuesToBeBetween", {"column": "id", "min_value": 1}
)


def test_checks_of_a_table_run_on_spark(place: Place, spark: SparkSession) -> None:
    place.warehouse._given = spark
    place.warehouse.create_table("db.t", "id int").insert([{"id": 3}, {"id": 4}])
    checks = table_checks(
        "t_checks",
        TABLE.name,
        [
            POSITIVE,
            Expectation(
                "ids_are_small",
                "ExpectColumnValuesToBeBetween",
                {"column": "id", "max_value": 3},
                blocking=False,
            ),
        ],
        columns=["id"],
    )
    assert checks.can_subset  # else the pages would not offer to execute one of them
    job = dg.Definitions(
        asset_checks=[checks],
        resources={"warehouse": place.resource, "spark": SparkResource()},
        executor=dg.in_process_executor,
    ).resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=place.instance, run_config=quiet())
    found = {one.check_name: one for one in result.get_asset_check_evaluations()}
    assert found["ids_are_positive"].passed
    assert not found["ids_are_small"].passed
    assert found["ids_are_small"].severity is dg.AssetCheckSeverity.WARN
    told = found["ids_are_small"].metadata["details"].value
    assert isinstance(told, dict) and told["unexpected_count"] == 1


# No `from __future__ import annotations`: Dagster reads the annotations of its functions.


def erase(
    place: Place, tags: Mapping[str, str] | None = None, **config: Any
) -> dg.ExecuteInProcessResult:
    return (
        definitions.defs()
        .resolve_job_def("erase")
        .execute_in_process(
            run_config=quiet(delete_rows={"config": {"table": "db.t", **config}}),
            instance=place.instance,
            raise_on_error=False,
            tags=dict(tags or {}),
            resources={
                "warehouse": place.resource,
                "spark": SparkResource(),
                "in_memory": dg.mem_io_manager,
            },
        )
    )


def observed(place: Place, result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The logged metadata, even of a failed run, whose result lacks it."""
    [event] = [
        entry.dagster_event
        for entry in place.instance.all_logs(
            result.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION
        )
    ]
    assert event
    metadata = event.asset_observation_data.asset_observation.metadata
    return {name: value.value for name, value in metadata.items()}


def test_the_run_tells_the_counts_and_fails_while_a_snapshot_is_held(
    place: Place, spark: SparkSession
) -> None:
    place.warehouse._given = spark
    place.warehouse.create_table("db.t", "id int, v string").insert(
        [{"id": 1, "v": "Ann"}, {"id": 2, "v": "Bob"}]
    )
    held = place.warehouse.snapshot()
    waiting = erase(place, where="id = 1")
    assert not waiting.success
    told = observed(place, waiting)
    assert "held by transaction" in told.pop("what holds them")
    assert told == {
        "rows deleted": 1,
        "directories rewritten": 1,
        "directories removed": 0,
        "files read": 3,
        "files still holding rows": 1,
    }
    [tagged] = place.instance.get_run_tags(tag_keys=["acid/table"])
    assert tagged == ("acid/table", {"db.t"})
    wh = ["--warehouse", place.warehouse.path]
    refused = CliRunner().invoke(main, ["erase", "db.t", "--where", "id = 1", *wh])
    assert refused.exit_code == 1 and "db.t: not erased" in refused.output
    held.close()
    done = erase(place, where="id = 1")
    assert done.success and observed(place, done)["files still holding rows"] == 0
    assert place.warehouse.table("db.t").to_arrow().to_pylist() == [{"id": 2, "v": "Bob"}]
    erased = CliRunner().invoke(main, ["erase", "db.t", "--where", "id = 1", *wh])
    assert erased.exit_code == 0 and erased.output.startswith("db.t: erased: 0 rows deleted")


def test_a_recorded_request_is_worked_off_and_answered(place: Place, spark: SparkSession) -> None:
    place.warehouse._given = spark
    table = place.warehouse.create_table("db.t", "id int, v string")
    table.insert([{"id": 1, "v": "Ann"}, {"id": 2, "v": "Bob"}])
    metastore = place.warehouse.metastore
    wh = ["--warehouse", place.warehouse.path]
    recorded = CliRunner().invoke(main, ["erase", "db.t", "--where", "id = 1", "--later", *wh])
    assert recorded.exit_code == 0 and recorded.output.startswith("request 1: ")
    assert table.count() == 2  # nothing has happened yet

    def tick() -> Any:
        context = place.context()
        context.log.setLevel("CRITICAL")
        return erasure_sensor(context)

    def run() -> dg.ExecuteInProcessResult:
        [request] = tick().run_requests
        return erase(place, request.tags, **request.run_config["ops"]["delete_rows"]["config"])

    held = place.warehouse.snapshot()
    assert not run().success
    [waiting] = metastore.call(GetErasures())
    assert waiting.state is ErasureState.WAITING and len(waiting.waits_for) == 1
    assert "waits for transactions" in tick().skip_reason.skip_message
    held.close()
    done = run()
    assert done.success
    [erased] = metastore.call(GetErasures())
    assert (erased.state, erased.run_id, erased.waits_for) == (ErasureState.ERASED, done.run_id, ())
    assert not tick().run_requests
    assert table.to_arrow().to_pylist() == [{"id": 2, "v": "Bob"}]
    for path in Path(table.location).rglob("bucket_*"):
        assert all(row[0] == 2 for row in stored_rows(path))
    shown = CliRunner().invoke(main, ["show", "erasures", "--json", *wh])
    [row] = json.loads(shown.output)
    assert (row["state"], row["condition"]) == ("erased", "id = 1")


def test_the_job_and_the_command_end_a_history_if_they_are_told_to(
    place: Place, spark: SparkSession
) -> None:
    place.warehouse._given = spark
    wh = ["--warehouse", place.warehouse.path]
    table = place.warehouse.create_table(
        "db.t", "id int, v string", properties={"acid.history.retention": "1h"}
    )
    table.insert([{"id": 1, "v": "Ann"}, {"id": 2, "v": "Bob"}, {"id": 3, "v": "Cy"}])
    kept = erase(place, where="id = 1")
    assert not kept.success and "--end-history" in observed(place, kept)["what holds them"]
    assert erase(place, where="id = 1", end_history=True).success
    with pytest.raises(NotEnoughHistory, match="rows were erased"):
        table.to_arrow(as_of=1)
    command = ["erase", "db.t", "--where", "id = 2", *wh]
    assert CliRunner().invoke(main, command).exit_code == 1
    both = CliRunner().invoke(main, [*command, "--end-history", "--later"])
    assert both.exit_code == 2 and "can't be recorded for later" in both.output
    ended = CliRunner().invoke(main, [*command, "--end-history"])
    assert ended.exit_code == 0 and "db.t: erased" in ended.output
    assert table.to_arrow().to_pylist() == [{"id": 3, "v": "Cy"}]


def test_a_wrong_predicate_deletes_nothing(place: Place) -> None:
    place.table()
    result = erase(place, where="nobody = 1")
    assert not result.success
    [failed] = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_key == "delete_rows"
    assert "no column 'nobody'" in str(failed.step_failure_data.error)
    assert place.warehouse.table("db.t").history() == []
