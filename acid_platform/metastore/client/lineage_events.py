"""Events of OpenLineage: tells a collector of each commit, by the official client.

On in a process whose environment has ACID_OPENLINEAGE_URL; the package is in the extra `lineage`. A
commit waits for no collector: one thread of the process makes the events and sends them, and a log
says which were not sent. At the end of the process the rest is sent, for at most 5 s.
"""

from __future__ import annotations

import logging
import multiprocessing.util
import os
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from acid_platform.base.paths import without_credentials
from acid_platform.errors import visible

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import OutputDataset, RunEvent

    from acid_platform.metastore.records import TableRecord, WriteReport

_log = logging.getLogger(__name__)

URL = "ACID_OPENLINEAGE_URL"
_MOST_WAITING = 1000
_LAST_SECONDS = 5.0
_PRODUCER = "acid_platform"

Columns = Mapping[str, Iterable[tuple[str, str]]]
"""By column of a table the columns that it is computed of, each with the full name of its table."""


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """A query whose rows are written. `tables`: what it reads; `columns`: asked after the commit,
    in another thread."""

    query: str
    tables: frozenset[str]
    columns: Callable[[], Columns]


@dataclass(slots=True)
class Derivation:
    """What is known of where a transaction's rows come from."""

    job: str = ""
    """The asset, if the transaction is that of one."""
    origins: dict[str, list[RowOrigin]] = field(default_factory=dict)
    """By the table that is written."""

    def note(self, table: str) -> None:
        """A statement writes the table, perhaps the rows of the query that `deriving` names."""
        origin = _ORIGIN.get()
        if origin is not None:
            self.origins.setdefault(table, []).append(origin)


_ORIGIN: ContextVar[RowOrigin | None] = ContextVar("origin", default=None)


@contextmanager
def deriving(origin: Callable[[], RowOrigin | None]) -> Iterator[None]:
    """What the block writes are the rows of this query. `origin` is asked if `is_on`."""
    before = _ORIGIN.set(_tried(origin) if is_on() else None)
    try:
        yield
    finally:
        _ORIGIN.reset(before)


_Asked = TypeVar("_Asked")


def _tried(asked: Callable[[], _Asked]) -> _Asked | None:
    """The answer; None, with a line in the log, if there is none: no statement fails for that."""
    try:
        return asked()
    except Exception as error:
        _log.info("OpenLineage: no lineage of columns: %s", _shown(error))
        return None


@dataclass(frozen=True, slots=True)
class ToldTable:
    """What a commit has written into a table. `rows`: those that it brought, not what it deleted;
    None if nobody knows. `sources`: where each column comes from, if a query says so."""

    table: str
    columns: tuple[tuple[str, str], ...]
    rows: int | None = None
    bytes: int = 0
    files: int = 0
    overwrite: bool = False
    sources: Columns = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """A commit. `warehouse`: its path or URI, the namespace of the tables; `run`: of Dagster.
    `inputs`: the names of the datasets that it has read; `branch`: where it is seen."""

    warehouse: str
    txn: int
    by: str
    """`asset`, `statement`, `gateway` or `merge`."""
    outputs: tuple[ToldTable, ...]
    inputs: frozenset[str] = frozenset()
    job: str = ""
    run: str = ""
    queries: tuple[str, ...] = ()
    branch: str = ""


def dataset(table: str, branch: str) -> str:
    """The name of a table's dataset: what a branch shows has another one."""
    return f"{table}@{branch}" if branch else table


def outputs_of(
    reports: Collection[WriteReport],
    record_of: Callable[[str], TableRecord],
    origins: Mapping[str, Iterable[RowOrigin]],
) -> tuple[ToldTable, ...]:
    """What the reports of a commit say of each table. Raises what `record_of` raises."""
    by_table: dict[str, list[WriteReport]] = {}
    for report in reports:
        by_table.setdefault(report.table, []).append(report)
    outputs = []
    for table, written in by_table.items():
        record = record_of(table)
        outputs.append(
            ToldTable(
                table,
                columns_of(record),
                rows=sum(report.rows for report in written if not _deletes(report)),
                bytes=sum(report.bytes for report in written),
                files=sum(report.files for report in written),
                overwrite=any(report.overwrite for report in written),
                sources=_sources(origins.get(table, ())),
            )
        )
    return tuple(outputs)


def columns_of(record: TableRecord) -> tuple[tuple[str, str], ...]:
    return (*record.columns, *record.partition_columns)


def _deletes(report: WriteReport) -> bool:
    return report.directory.startswith("delete_delta_")


def _sources(origins: Iterable[RowOrigin]) -> Columns:
    """Those of all queries together."""
    sources: dict[str, set[tuple[str, str]]] = {}
    for origin in origins:
        for column, pairs in (_tried(origin.columns) or {}).items():
            sources.setdefault(column, set()).update(pairs)
    return sources


def is_on() -> bool:
    return bool(os.environ.get(URL))


def tell(txn: int, facts: Callable[[], CommitFacts]) -> None:
    """Sends an event of a commit that was just made, later: `facts` is called in another thread.
    Does nothing unless `is_on`; never fails, and waits for nobody."""
    if not is_on():
        return
    what = f"transaction {txn}"
    try:
        with _GUARD:
            _start()
            _WAITING.put_nowait((what, time.time(), facts))
    except queue.Full:
        _log.warning("OpenLineage: not sent: %s: %d others wait", what, _MOST_WAITING)
    except Exception as error:  # no thread can be started
        _log.warning("OpenLineage: not sent: %s: %s", what, _shown(error))


_Told = tuple[str, float, Callable[[], CommitFacts]]
_WAITING: queue.Queue[_Told] = queue.Queue(_MOST_WAITING)
_GUARD = threading.Lock()
_sender: threading.Thread | None = None
_sending = ""
"""The commit that is being sent."""


def _start() -> None:
    """Starts the thread, if there is none. Raises RuntimeError if the system has none left."""
    global _sender
    if _sender is None:
        thread = threading.Thread(target=_send_all, name="openlineage", daemon=True)
        thread.start()
        _sender = thread
        # Also at the end of a process that `multiprocessing` made, where `atexit` does nothing.
        multiprocessing.util.Finalize(None, flush, exitpriority=100)


def _after_fork() -> None:
    """The parent sends its own."""
    global _WAITING, _GUARD, _sender, _sending
    _WAITING, _GUARD, _sender, _sending = queue.Queue(_MOST_WAITING), threading.Lock(), None, ""


os.register_at_fork(after_in_child=_after_fork)


def _send_all() -> None:
    global _sending
    client: OpenLineageClient | None = None
    url = ""
    while True:
        what, at, facts = _WAITING.get()
        _sending = what
        try:
            commit = facts()
            if client is None or url != os.environ.get(URL, ""):
                url = os.environ.get(URL, "")
                client = _client(url)
            client.emit(event_of(commit, at))
        except ModuleNotFoundError as missing:
            _log.warning(
                "OpenLineage: not sent: %s: %s; pip install 'acid-platform[lineage]'", what, missing
            )
        except Exception as error:  # whatever it is, the commit is done
            client = None
            _log.warning("OpenLineage: not sent: %s: %s", what, _shown(error))
        finally:
            _sending = ""
            del facts
            _WAITING.task_done()


def _shown(error: Exception) -> str:
    """The error in one line, without what a collector or an address could bring into a log."""
    text = re.sub(r"\w+://\S+", lambda found: without_credentials(found[0]), str(error))
    return visible(f"{type(error).__name__}: {text}"[:500])


def flush(seconds: float = _LAST_SECONDS) -> None:
    """Waits until everything was sent, at most so long; a log names what was not."""
    with _WAITING.all_tasks_done:
        if _WAITING.all_tasks_done.wait_for(lambda: not _WAITING.unfinished_tasks, seconds):
            return
        left = [*filter(None, [_sending]), *(what for what, _, _ in _WAITING.queue)]
    more = f" and {len(left) - 20} others" if len(left) > 20 else ""
    _log.warning("OpenLineage: not sent at the end: %s%s", ", ".join(left[:20]), more)


def _client(url: str) -> OpenLineageClient:
    from openlineage.client import OpenLineageClient

    transport: dict[str, Any] = {"type": "http", "url": url, "retry": {"total": 2}}
    key = os.environ.get("OPENLINEAGE_API_KEY")
    if key:
        transport["auth"] = {"type": "api_key", "apiKey": key}
    return OpenLineageClient(config={"transport": transport})


# --- the event ------------------------------------------------------------------------------------


def event_of(commit: CommitFacts, at: float) -> RunEvent:
    """The event of a commit, which began and ended at once."""
    from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        job_type_job,
        parent_run,
        processing_engine_run,
        sql_job,
    )

    from acid_platform import __version__

    space = namespace_of(commit.warehouse)
    outputs = sorted(dataset(output.table, commit.branch) for output in commit.outputs)
    name = commit.job or f"{commit.by} {', '.join(outputs)}"
    run_facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=__version__, name=_PRODUCER
        )
    }
    if _is_uuid(commit.run):
        run_facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(commit.run), job=parent_run.Job(space, name)
        )
    job_facets: dict[str, Any] = {
        "jobType": job_type_job.JobTypeJobFacet("BATCH", "ACID", commit.by.upper())
    }
    if commit.queries:
        job_facets["sql"] = sql_job.SQLJobFacet(query=";\n".join(commit.queries), dialect="hive")
    return RunEvent(
        eventTime=datetime.fromtimestamp(at, UTC).isoformat(),
        eventType=RunState.COMPLETE,
        run=Run(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{space}#{commit.txn}")), run_facets),
        job=Job(space, name, job_facets),
        producer=_PRODUCER,
        inputs=[InputDataset(space, name) for name in sorted(commit.inputs)],
        outputs=[_output(space, output, commit.branch) for output in commit.outputs],
    )


def _output(space: str, output: ToldTable, branch: str) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        column_lineage_dataset,
        lifecycle_state_change_dataset,
        output_statistics_output_dataset,
        schema_dataset,
    )

    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in output.columns]
    facets: dict[str, Any] = {"schema": schema_dataset.SchemaDatasetFacet(fields)}
    if output.overwrite:
        state = lifecycle_state_change_dataset.LifecycleStateChange.OVERWRITE
        facets["lifecycleStateChange"] = (
            lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(state)
        )
    if output.sources:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            {
                column: column_lineage_dataset.Fields(
                    [
                        column_lineage_dataset.InputField(space, dataset(table, branch), field)
                        for table, field in sorted(pairs)
                    ]
                )
                for column, pairs in output.sources.items()
            }
        )
    if output.rows is None:
        return OutputDataset(space, dataset(output.table, branch), facets=facets)
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=output.rows, size=output.bytes, fileCount=output.files
    )
    return OutputDataset(
        space,
        dataset(output.table, branch),
        facets=facets,
        outputFacets={"outputStatistics": written},
    )


def namespace_of(warehouse: str) -> str:
    """The namespace of the tables of a warehouse: its URI."""
    return warehouse if "://" in warehouse else f"file://{warehouse}"


def _is_uuid(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text))
