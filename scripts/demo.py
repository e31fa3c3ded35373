"""`make demo`: loads a year of flights into Hive ACID tables, through Dagster, Spark and DuckDB.

One process with one JVM loads 53 weekly deliveries, each in a transaction and a materialization. It
compacts and cleans when the sensors ask for it. In the end it compares every table with what pandas
computes from the raw files. The exit code is 1 if anything differs or fails.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from acid_platform import AcidError

if TYPE_CHECKING:
    import dagster as dg
    import pandas as pd

    from acid_platform import Warehouse
    from scripts.demo_report import Change
    from scripts.demo_verify import Verdict

ROOT = Path(__file__).parent.parent

SERVICES_EVERY = 8
"""Weeks between two evaluations of the sensors."""

METASTORE = "metastore"
"""The directory of the metastore below the demo's, if the warehouse is elsewhere."""
DRIVER_MEMORY = "1g"
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""Dagster keeps the logs of steps, and the terminal shows progress."""


@dataclass(slots=True)
class Tour:
    """What the demo has done so far, for the report."""

    home: Path
    place: str
    """The warehouse: a directory below `home`, or a URI."""
    instance: dg.DagsterInstance
    definitions: dg.Definitions
    progress: Progress
    compactions: list[dict[str, Any]] = field(default_factory=list)
    removed: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    checks: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    engines: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each engine wrote a table or merged a partition, by what it did."""
    changes: list[Change] = field(default_factory=list)
    """What deliveries did to flights of earlier deliveries."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    peak_bytes: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def say(self, text: str) -> None:
        self.progress.console.print(text, highlight=False)

    def warehouse(self) -> Warehouse:
        from acid_platform import Warehouse

        return Warehouse.open(self.place)

    def run(
        self,
        phase: str,
        job: dg.JobDefinition,
        config: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> dg.ExecuteInProcessResult:
        """One Dagster run in this process; its checks and events go into the report."""
        started = time.monotonic()
        result = job.execute_in_process(
            instance=self.instance, run_config={**QUIET, **(config or {})}, **arguments
        )
        self.seconds[phase] += time.monotonic() - started
        self.runs[phase] += 1
        for check in result.get_asset_check_evaluations():
            self.checks[check.asset_key.to_user_string(), check.check_name, check.passed] += 1
        for event in result.get_asset_materialization_events():
            self.operations.update(row_counts(event.materialization))
            for engine in engines_of(event.materialization):
                self.engines["materializations", engine] += 1
        for step in result.get_asset_observation_events():
            self._observe(step.asset_observation_data.asset_observation)
        return result

    def _observe(self, observed: dg.AssetObservation) -> None:
        values: dict[str, Any] = {name: value.value for name, value in observed.metadata.items()}
        if "compaction" in values:
            self.compactions.append(values)
            self.engines["compactions", values["engine"]] += 1
        self.removed += values.get("removed directories and files", 0)

    def watch_memory(self) -> None:
        """Keeps the highest memory of all processes of the demo, until it is over."""
        with self.warehouse() as warehouse:
            metastore = psutil.Process(int(warehouse.metastore.status()["pid"]))
        me = psutil.Process()
        while not self.over.wait(0.5):
            taking_part = (metastore, me, *me.children(recursive=True))
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident, taking_part)))


def row_counts(materialization: dg.AssetMaterialization) -> dict[str, int]:
    """Rows by what was done to them: inserted, updated, deleted, overwritten."""
    return {
        name.removeprefix("rows "): int(str(value.value))
        for name, value in materialization.metadata.items()
        if name.startswith("rows ")
    }


def engines_of(materialization: dg.AssetMaterialization) -> set[str]:
    """The engines that ran the statements of a materialization."""
    text = str(materialization.metadata["engines"].value)
    return {entry.partition(":")[0] for entry in text.split("; ") if entry}


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def reset(home: Path) -> None:
    """Stops the demo's metastore and removes what an earlier demo left below `home`."""
    from acid_platform.metastore.client.metastore import Metastore

    for metastore in (home / "warehouse" / "_metastore", home / METASTORE):
        if metastore.exists():
            with suppress(AcidError), Metastore.connect(metastore, autostart=False) as running:
                running.stop()
    for name in ("warehouse", METASTORE, "report.html", "spark.log"):
        path = home / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    dagster_home = home / "dagster"
    dagster_home.mkdir(parents=True, exist_ok=True)
    for path in dagster_home.iterdir():
        if path.name != "dagster.yaml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copyfile(ROOT / "dagster_home" / "dagster.yaml", dagster_home / "dagster.yaml")


def environment(home: Path, place: str) -> None:
    """Sets what the definitions read from the environment; call it before they are imported."""
    os.environ.pop("ACID_METASTORE", None)
    os.environ["ACID_WAREHOUSE"] = place
    if "://" in place:
        os.environ["ACID_METASTORE"] = str(home / METASTORE)
    os.environ["DAGSTER_HOME"] = str(home / "dagster")
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    os.environ.setdefault("ACID_SPARK_MEMORY", DRIVER_MEMORY)


# --- the tour ----------------------------------------------------------------------------------


def ingest(tour: Tour, weeks: int) -> None:
    """Loads the dimensions, then the weeks; evaluates the sensors every few weeks."""
    from assets import flights_source
    from assets.flights import WEEKLY
    from scripts.demo_report import changes_of

    def job(name: str) -> dg.JobDefinition:
        return tour.definitions.resolve_job_def(name)

    tour.say("Dimension tables: each is replaced as a whole (INSERT OVERWRITE)")
    tour.run("ingestion", job("dimensions_job"))
    tour.say(f"Flights, partitioned by month: {weeks} weekly deliveries, each in a transaction")
    # The year is a time window of Dagster: its keys are the first days of the weeks.
    keys = WEEKLY.get_partition_keys()[:weeks]
    task = tour.progress.add_task("flights", total=len(keys), rows=0, now="")
    for number, key in enumerate(keys, 1):
        tour.progress.update(task, now=f"week of {key}")
        result = tour.run("ingestion", job("week_job"), partition_key=key)
        done = result.get_asset_materialization_events()[0].materialization
        rows = done.metadata["dagster/row_count"].value
        tour.changes += changes_of(key, flights_source.delivery(number - 1), row_counts(done))
        tour.progress.update(task, advance=1, rows=rows)
        if not tour.progress.console.is_terminal and number % 4 == 0:
            tour.say(f"  week {number} of {len(keys)}: {rows:,} rows")
        if number % SERVICES_EVERY == 0 or number == len(keys):
            services(tour)
    tour.say("Delays by carrier and month, after the checks of the whole flights table")
    tour.run("downstream", job("delays_job"))


def services(tour: Tour) -> None:
    """Does what the daemon does in `make dev`: evaluates the sensors and runs what they request."""
    import dagster as dg

    from acid_platform.orchestration.resources import WarehouseResource
    from acid_platform.orchestration.sensors import cleaner_sensor, initiator_sensor

    for phase, sensor in (("compaction", initiator_sensor), ("cleaning", cleaner_sensor)):
        context = dg.build_sensor_context(
            instance=tour.instance,
            resources={"warehouse": WarehouseResource()},
            sensor_name=sensor.name,
        )
        context.log.setLevel(logging.WARNING)
        evaluated: Any = sensor(context)
        before = len(tour.compactions), tour.removed
        for request in evaluated.run_requests or []:
            job = tour.definitions.resolve_job_def(str(sensor.job_name))
            tour.run(phase, job, request.run_config, tags=request.tags)
        done = [compaction["partition"] for compaction in tour.compactions[before[0] :]]
        if done:
            tour.say(f"  compacted {', '.join(done)}")
        if tour.removed > before[1]:
            tour.say(f"  cleaned {tour.removed - before[1]} directories that nobody reads")


Expected = dict[str, tuple["pd.DataFrame", list[str]]]
"""By table: the rows that it must have, and the key of its rows."""


def expected_tables(weeks: int) -> Expected:
    """The rows of every table, computed by pandas from the raw files."""
    from assets import flights_source
    from assets.flights import DELAYS, DIMENSIONS, FLIGHTS

    flights = flights_source.expected_flights(weeks)
    keys = {
        "airlines": ["carrier"],
        "airports": ["faa"],
        "planes": ["tailnum"],
        "weather": ["origin", "month", "day", "hour", "time_hour"],
    }
    return {
        FLIGHTS.name: (flights, flights_source.KEY),
        DELAYS.name: (flights_source.expected_delays(flights), ["month", "carrier"]),
        **{
            table.name: (flights_source.dimension(name), keys[name])
            for name, table in DIMENSIONS.items()
        },
    }


def verify(tour: Tour, expected: Expected) -> list[Verdict]:
    """Compares each table, read by Spark, with the expected rows."""
    from scripts.demo_verify import compare

    started = time.monotonic()
    with tour.warehouse() as warehouse:
        verdicts = [
            compare(name, warehouse.table(name).read().toPandas(), frame, key)
            for name, (frame, key) in expected.items()
        ]
    tour.seconds["verification"] += time.monotonic() - started
    return verdicts


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, or 1 if a table differs from what pandas computed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.demo", description=__doc__)
    parser.add_argument(
        "--home",
        type=Path,
        default=Path("var/demo"),
        help="the directory for the warehouse, Dagster's history and the report",
    )
    parser.add_argument(
        "--warehouse", help="a URI for the warehouse, such as s3://bucket/demo; it must be empty"
    )
    parser.add_argument("--weeks", type=int, default=53, help="how many weeks of the year to load")
    options = parser.parse_args(arguments)
    console = Console()
    home = options.home.absolute()
    try:
        return tell(console, home, options.warehouse or str(home / "warehouse"), options.weeks)
    except AcidError as error:
        console.print(f"[bold red]The demo stopped:[/] {error}", highlight=False)
        return 1


def tell(console: Console, home: Path, place: str, weeks: int) -> int:
    """Runs the tour from an empty warehouse to the report; returns the exit code."""
    started = time.monotonic()
    reset(home)
    environment(home, place)
    with console.status("Starting Dagster, Spark and the metastore"):
        # Two cores: while the JVM starts and works, Python loads and computes beside it.
        beside = ThreadPoolExecutor(1)
        loaded = beside.submit(load_ahead)
        expected = beside.submit(expected_tables, weeks)
        start_spark()
        loaded.result()  # two threads that import one package can see it half initialised
        import dagster as dg

        import definitions
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[now]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        console=console,
    )
    with dg.DagsterInstance.get() as instance, bar:
        tour = Tour(home, place, instance, definitions.defs(), bar)
        # A thread that lives when Python ends keeps what it can reach, DuckDB's modules too.
        watch = threading.Thread(target=tour.watch_memory, daemon=True)
        watch.start()
        try:
            tour.seconds["start"] = time.monotonic() - started
            ingest(tour, weeks)
            tour.say("Reading every table, and comparing each value with pandas")
            verdicts = verify(tour, expected.result())
            tour.seconds["total"] = time.monotonic() - started
        finally:
            tour.over.set()
            watch.join()
    return conclude(console, tour, verdicts)


def load_ahead() -> None:
    """Does the slow imports in the background."""
    import definitions  # noqa: F401


def start_spark() -> None:
    """The session that all runs of this process share.

    The statements of the demo are small. Light compilation, garbage collection in one thread and
    shuffles into one task halve the work of two cores.
    """
    from acid_platform.orchestration.resources import SparkResource

    conf = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    os.environ.setdefault("ACID_SPARK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    _ = SparkResource(conf=conf).spark_session


def conclude(console: Console, tour: Tour, verdicts: Sequence[Verdict]) -> int:
    """Prints and writes the report."""
    from scripts import demo_report

    path = tour.home / "report.html"
    with tour.warehouse() as warehouse:
        report = demo_report.sections(warehouse, tour, verdicts)
        delays, carriers = (
            warehouse.table(name).read().toPandas()
            for name in ("nyc.delays_by_carrier_month", "nyc.airlines")
        )
    demo_report.show(console, report)
    demo_report.write_html(path, report, demo_report.delay_chart(delays, carriers))
    wrong = [verdict for verdict in verdicts if not verdict.right]
    for verdict in wrong:
        for line in verdict.differences:
            console.print(f"[bold red]{verdict.table} is wrong:[/] {line}", highlight=False)
    if not wrong:
        console.print(
            f"[bold green]All {len(verdicts)} tables hold exactly what pandas computes"
            " from the raw files.[/]"
        )
    console.print(f"Report: {path}", highlight=False)
    if "://" not in tour.place:
        console.print(
            f"To see runs, assets and checks in Dagster: make dev"
            f" ACID_HOME={os.path.relpath(tour.home)}",
            highlight=False,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
