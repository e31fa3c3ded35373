"""The job `erase`: what its run reports, and what makes it fail."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pyorc
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import definitions
from acid_platform import NotEnoughHistory
from acid_platform.cli.main import main
from acid_platform.compaction.states import ErasureState
from acid_platform.metastore.operations.compaction import GetErasures
from acid_platform.orchestration.resources import SparkResource
from acid_platform.orchestration.sensors import erasure_sensor
from tests.orchestration.conftest import Place, quiet

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Parameter `owners`")]


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
        with path.open("rb") as stream:
            assert all(event[-1][0] == 2 for event in pyorc.Reader(stream))
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
