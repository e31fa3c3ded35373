"""A page of a whole warehouse as one HTML file, and the facts about a table: what the metastore
knows, without opening a file of a table."""

from __future__ import annotations

import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from acid_platform.base.clock import wall_ms
from acid_platform.display.listing import SHOWN, human_bytes, show_table, shown
from acid_platform.layout.formats import FileFormat
from acid_platform.metastore.operations import listings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acid_platform.metastore.client.metastore import Metastore
    from acid_platform.metastore.records import TableRecord

_MOST_COMMITS = 20
"""So many of the newest directories of a table's history are shown."""
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
summary { cursor: pointer; padding: .3rem 0; }
summary b { margin-right: 1rem; }
details > div { margin: .5rem 0 1rem 1rem; }
"""


def facts_of(metastore: Metastore, record: TableRecord) -> dict[str, Any]:
    """What is known of a table: rows, bytes, files, partitions, format, place, last commit."""
    live = [
        directory
        for entity in metastore.entities(record.name)
        for directory in entity.directories
        if not directory.obsolete
    ]
    counted = not any(each.bytes and not each.rows for each in live)  # adopted files were not (P24)
    rows = sum(-each.rows if each.deletes else each.rows for each in live)
    last = max(metastore.history(record.name), key=lambda commit: commit["write_id"], default={})
    properties = {name: text for name, text in record.properties.items() if name != "comment"}
    return {
        "table": record.name,
        "comment": record.properties.get("comment", ""),
        "rows": rows if counted else "",
        "size": human_bytes(sum(each.bytes for each in live)),
        "files": sum(each.files for each in live),
        "partitions": len(metastore.partitions(record.name)) if record.partitioned else "",
        "format": FileFormat.of(record.properties).name,
        "location": record.location,
        "properties": ", ".join(f"{name}={text}" for name, text in sorted(properties.items())),
        "constraints": ", ".join(map(str, record.constraints)),
        "last write id": last.get("write_id", ""),
        "last commit": shown("time", last["time"]) if last else "",
        "committed by": last.get("user") or "",
        "message": last.get("message") or "",
    }


def warehouse_page(metastore: Metastore, warehouse: str) -> str:
    """The page, a whole HTML document without scripts, pictures or links to anything."""
    now = datetime.datetime.fromtimestamp(wall_ms() / 1000, datetime.UTC)
    title = f"Warehouse {warehouse}"
    records = sorted(metastore.tables(), key=lambda record: record.name)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>As of {now:%Y-%m-%d %H:%M:%S} UTC: {len(records)} tables,"
        f" {len(metastore.views())} views.</p>",
        "<h2>Tables</h2>",
        *(_table(metastore, record) for record in records),
        "<h2>Views</h2>",
        _listing(
            [
                {"view": view.name, "query": view.query}
                for view in metastore.views()
                if view.external is None
            ]
        ),
        "<h2>Compactions</h2>",
        _listing(metastore.compactions(), SHOWN["compactions"]),
        "<h2>Open transactions</h2>",
        _listing(metastore.transactions(), SHOWN["transactions"]),
        "<h2>Locks</h2>",
        _listing(metastore.locks(), SHOWN["locks"]),
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _table(metastore: Metastore, record: TableRecord) -> str:
    facts = facts_of(metastore, record)
    brief = ", ".join(
        f"{facts[name]:,} {name}" if isinstance(facts[name], int) else str(facts[name])
        for name in ("rows", "size", "partitions", "format", "last commit")
        if facts[name] != ""
    )
    columns = [
        {"column": name, "type": kind, "comment": record.comments.get(name, "")}
        for name, kind in (*record.columns, *record.partition_columns)
    ]
    history = metastore.history(record.name)[-_MOST_COMMITS:]
    inside = (
        _listing(columns)
        + _listing([{"fact": name, "value": text} for name, text in facts.items() if text != ""])
        + _listing(history, listings.HISTORY)
    )
    name = escape(record.name)
    return f"<details><summary><b>{name}</b>{escape(brief)}</summary><div>{inside}</div></details>"


def _listing(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """The rows without columns that are empty in all of them."""
    if not rows:
        return "<p>none</p>"
    names = [name for name in columns or rows[0] if any(shown(name, row.get(name)) for row in rows)]
    return show_table(rows, names)._repr_html_()
