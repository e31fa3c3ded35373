"""Rows about the pasts of tables, for listings: tags, and what histories cost (P36)."""

from __future__ import annotations

from typing import Any

from acid_platform.metastore.pasts import CursorRow, KeptHistory, SinkRow


def tag_rows(kept: KeptHistory) -> list[dict[str, Any]]:
    """A row for each tag, as `show_columns.TAGS` names the columns."""
    return [
        {
            "table": kept.table,
            "tag": tag.name,
            "write_id": None if tag.write_id < 0 else tag.write_id,
            "snapshot": tag.at,
            "created": tag.created,
            "expires": tag.expires,
            "user": tag.user,
        }
        for tag in kept.tags
    ]


def retained_row(kept: KeptHistory) -> dict[str, Any]:
    """As `show_columns.RETAINED` names the columns."""
    return {
        "table": kept.table,
        "retention": kept.retention,
        "since": kept.since,
        "write_id": None if kept.write_id < 0 else kept.write_id,
        "directories": kept.directories,
        "bytes": kept.bytes,
        "tags": [tag.name for tag in kept.tags],
    }


def cursor_rows(cursors: list[CursorRow]) -> list[dict[str, Any]]:
    """A row for each consumer of changes, as `show_columns.CURSORS` names the columns (P39)."""
    return [
        {
            "table": row.table,
            "consumer": row.cursor.consumer,
            "write_id": row.cursor.write_id,
            "snapshot": row.cursor.at,
            "txn": row.cursor.txn_id,
            "behind": row.behind,
        }
        for row in cursors
    ]


def sink_rows(sinks: list[SinkRow]) -> list[dict[str, Any]]:
    """A row for each streaming query's sink, as `show_columns.SINKS` names the columns (P42)."""
    return [
        {
            "table": row.table,
            "sink": row.sink.sink,
            "query": row.sink.query,
            "batch": row.sink.batch,
            "rows": row.sink.rows,
            "txn": row.sink.txn_id,
            "time": row.sink.at,
        }
        for row in sinks
    ]
