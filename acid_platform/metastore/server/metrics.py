"""Counters of the metastore's own work, for `status` and for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from acid_platform.metastore.wire import LEADER

if TYPE_CHECKING:
    from prometheus_client import Metric

_PREFIX = "acid_metastore_"
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper bounds in seconds; one more bucket counts everything above."""


@dataclass(slots=True)
class Histogram:
    """Durations in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """The upper bound of the bucket in which that share of all durations has ended."""
        enough = share * self.count
        bounds = zip((*BUCKETS, BUCKETS[-1]), accumulate(self.counts), strict=True)
        return next(end for end, upto in bounds if upto >= enough)

    def cumulative(self) -> dict[str, int]:
        """The number of durations up to each bound, as Prometheus counts."""
        return dict(zip((*map(str, BUCKETS), "+Inf"), accumulate(self.counts), strict=True))


@dataclass(slots=True)
class Counters:
    """Counted since the process started."""

    requests: int = 0
    batches: int = 0
    events: int = 0
    failed_writes: int = 0
    bad_requests: int = 0
    snapshots: int = 0
    failed_snapshots: int = 0
    writing: Histogram = field(default_factory=Histogram)


_METRICS = (
    # name in `status`, name in Prometheus, type, help
    ("open", "open_transactions", "gauge", "Transactions that are open."),
    ("aborted", "aborted_transactions", "gauge", "Aborted transactions with data not yet cleaned."),
    ("waiting", "waiting_locks", "gauge", "Lock requests that are waiting."),
    ("clients", "clients", "gauge", "Connected clients."),
    ("tables", "tables", "gauge", "Tables."),
    ("last_txn", "last_transaction_id", "gauge", "Highest transaction id that was allocated."),
    ("doubtful", "doubtful_write_ids", "gauge", "Write ids that a restore left in doubt."),
    ("changed_rows", "changed_rows_bytes", "gauge", "Row sets that commits are compared with."),
    ("epoch", "epoch", "gauge", "How often this metastore was started."),
    ("journal", "journal_bytes", "gauge", "Size of the log since the newest snapshot."),
    ("requests", "requests_total", "counter", "Requests handled."),
    ("commits", "durable_writes_total", "counter", "Journal writes, each made durable once."),
    ("events", "events_total", "counter", "Events journaled."),
    ("failed_writes", "failed_writes_total", "counter", "Journal writes that failed."),
    ("bad_requests", "bad_requests_total", "counter", "Requests that could not be understood."),
    ("refused", "refused_connections_total", "counter", "Connections dropped for what they sent."),
    ("snapshots", "snapshots_total", "counter", "Snapshots of the state."),
    ("failed_snapshots", "failed_snapshots_total", "counter", "Snapshots that failed."),
    ("compactions_queued", "compactions_queued", "gauge", "Compactions that wait for a Worker."),
    ("compactions_running", "compactions_running", "gauge", "Compactions that a Worker does."),
    ("compactions_failed", "compactions_failed", "gauge", "Failed compactions in the history."),
    ("to_clean", "to_clean", "gauge", "Compactions and drops that wait for the Cleaner."),
    ("unarchived", "unarchived_batches", "gauge", "Batches that the archive lacks."),
    ("cpu_seconds", "process_cpu_seconds_total", "counter", "CPU time of the process."),
    ("resident_bytes", "process_resident_memory_bytes", "gauge", "Memory of the process."),
)


def histogram(durations: Histogram) -> dict[str, Any]:
    return {
        "count": durations.count,
        "seconds": round(durations.total, 6),
        "buckets": durations.cumulative(),
        "p50_ms": 1000 * durations.quantile(0.5),
        "p95_ms": 1000 * durations.quantile(0.95),
        "p99_ms": 1000 * durations.quantile(0.99),
    }


def families(status: Mapping[str, Any] | None) -> Iterator[Metric]:
    """A status for Prometheus; None if the metastore does not run."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    yield GaugeMetricFamily(f"{_PREFIX}up", "Whether the metastore runs.", int(status is not None))
    if status is None:
        return
    leads = GaugeMetricFamily(f"{_PREFIX}leads", "Whether it leads.", int(status["role"] == LEADER))
    yield leads
    for name, metric, kind, text in _METRICS:
        family = GaugeMetricFamily if kind == "gauge" else CounterMetricFamily
        yield family(f"{_PREFIX}{metric}", text, status[name])
    writes = status["write_latency"]
    yield HistogramMetricFamily(
        f"{_PREFIX}durable_write_seconds",
        "Time of a journal write.",
        [*writes["buckets"].items()],
        writes["seconds"],
    )
