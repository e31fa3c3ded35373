"""The results of the benchmark `metastore` as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
_COLUMNS = (
    "per_second",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "max_ms",
    "server_cpu_ms",
    "fewest_of_a_client",
    "conflicts",
)


def write(report: dict[str, Any]) -> str:
    """Writes both files and answers the page."""
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / f"{report['date']}-metastore"
    page = render(report)
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    stem.with_suffix(".md").write_text(page)
    return page


def lost(report: dict[str, Any]) -> int:
    """Acknowledged transactions that no database has, of all stores."""
    compared = [one for one in report.get("compare", {}).values() if isinstance(one, dict)]
    every = [*compared, report.get("long", {}), report.get("proof", {})]
    return sum(one.get("lost", 0) + one.get("twice", 0) for one in every)


def render(report: dict[str, Any]) -> str:
    lines = [
        f"# Metastore, {report['date']}",
        "",
        f"{report['machine']}, {report['cpus']} CPUs, Python {report['python']}, DuckDB"
        f" {report['duckdb']}, {report['clients']} client processes on the same machine; load"
        f" {report['load_before'][0]} before, {report['load_after'][0]} after. A transaction:"
        " open, write id, shared-write lock on one of 1000 partitions, snapshot; heartbeat; commit"
        " with conflict check.",
        "",
    ]
    if "proof" in report:
        one = report["proof"]
        lines += [
            f"**Durable**: {one['durable_writes']} acknowledged batches, {one['syncs']} syncs"
            f" ({one['how']}), {one['transactions']} transactions, {one['lost']} lost.",
            "",
        ]
    if "compare" in report:
        lines += _compared(report["compare"])
    if "history" in report:
        empty = report["history"][0]["per_second"]
        lines += [
            "## Ended transactions in the history",
            "",
            *_table(
                (
                    "history",
                    "per_second",
                    "of an empty one",
                    "p50_ms",
                    "p99_ms",
                    "start_seconds",
                    "resident_mb",
                    "snapshots",
                    "slices_per_second",
                ),
                [
                    {
                        **one,
                        "history": f"{one['history']:,}",
                        "of an empty one": f"{one['per_second'] / empty:.0%}",
                    }
                    for one in report["history"]
                ],
            ),
            "",
        ]
    if "long" in report:
        lines += _long(report["long"])
    return "\n".join(lines)


def _compared(found: dict[str, Any]) -> list[str]:
    stores = {name: one for name, one in found.items() if isinstance(one, dict)}
    lines = [
        f"## The same transaction, alternating slices of {found['slice_seconds']:g} s"
        f" x {found['rounds']}",
        "",
        *_table(
            ("store", *_COLUMNS, "lost", "slices"),
            [
                {"store": name, **one, "slices": " ".join(map(str, one["slices_per_second"]))}
                for name, one in stores.items()
            ],
        ),
        "",
    ]
    ours = stores["metastore"]["per_second"]
    lines += [
        f"The metastore does {ours / one['per_second']:.1f} times the rate of {name}."
        for name, one in stores.items()
        if name != "metastore"
    ]
    if found["left_out"]:
        lines.append(f"PostgreSQL was left out: {found['left_out']}.")
    return [*lines, ""]


def _long(one: dict[str, Any]) -> list[str]:
    bins, offered = one["per_second_by_10s"], one["offered_per_second"]
    how = f"{offered:g} transactions a second offered" if offered else "as fast as they can"
    return [
        f"## {one['seconds']:g} s without a break, {how}",
        "",
        *_table((*_COLUMNS, "transactions", "lost"), [one]),
        "",
        f"{one['per_second'] * 3600:,.0f} transactions an hour; least and most in 10 s:"
        f" {min(bins)} and {max(bins)} per second. {one['durable_writes_per_transaction']} durable"
        f" writes per transaction, each p50 {one['write_latency']['p50_ms']:g} ms, p99"
        f" {one['write_latency']['p99_ms']:g} ms at most; {one['snapshots']} snapshots.",
        f"Memory of the server over time, MB: {', '.join(map(str, one['memory_mb']))}; last"
        f" {one['memory_mb_last']}.",
        "",
    ]


def _table(columns: Iterable[str], rows: list[dict[str, Any]]) -> list[str]:
    names = list(columns)
    return [
        f"| {' | '.join(names)} |",
        f"|{'---|' * len(names)}",
        *(f"| {' | '.join(str(row[name]) for name in names)} |" for row in rows),
    ]
