"""The tables of the metastore file, as people can read them (P8).

They hold what the last fold of the journal left. LIVE tables are rewritten; KEPT tables grow until
their rows are older than the retention. They have no primary key, since there is only one writer.
RECORDED tables gain rows with each fold, and lose those of directories that are gone. Columns are
named after the fields that they hold; JSON columns are text. Times are milliseconds UTC.
"""

from __future__ import annotations

from collections.abc import Sequence

VERSION = 17

MADE = "backup_made"
"""Key in `meta` of a backup: the moment of its data, in milliseconds UTC."""

Columns = dict[str, str]
_I, _S, _B, _J = "BIGINT", "VARCHAR", "BOOLEAN", "JSON"

LOG = "log"
"""Key in `meta`: the identity of the log, while it may hold events that the tables lack.

`log_seq` is the number of the last event in the tables.
"""

_JOURNAL_1: Columns = {
    "seq": _I,
    "at": _I,
    "kind": _S,
    "txn_id": _I,
    "request_id": _S,
    "body": _J,
}
_JOURNAL_2: Columns = {"seq": _I, "events": _J}

_INFO: Columns = {"user": _S, "host": _S, "agent": _S, "run_id": _S, "description": _S}
_ENTITY: Columns = {"table_id": _I, "partition": _S}
_DECLARED: Columns = {
    "table_id": _I,
    "name": _S,
    "location": _S,
    "columns": _J,
    "partition_columns": _J,
    "properties": _J,
    "bucket_columns": _J,
    "bucket_count": _I,
    "created": _I,
    "floor": _I,
    "version": _I,
    "foreign": _B,
}
_TABLE: Columns = {
    **_DECLARED,
    "next_write_id": _I,
    "purged": _I,
    "forgotten": _I,
    "cleaned_upto": _I,
    "aborted": _J,
    "floors": _J,
    "doubtful": _J,
    "since": _I,
    "since_at": _I,
    "since_write": _I,
    "anchor": _I,
    "held": _J,
}
_VIEW: Columns = {
    "name": _S,
    "query": _S,
    "columns": _J,
    "created": _I,
    "version": _I,
    "reads": _J,
}
_PARTITION: Columns = {"table_id": _I, "name": _S, "floors": _J, "added": _I}
_DIRECTORY: Columns = {
    **_ENTITY,
    "name": _S,
    "low": _I,
    "high": _I,
    "deletes": _B,
    "base": _B,
    "rows": _I,
    "bytes": _I,
    "files": _I,
    "txn": _I,
    "obsolete": _B,
    "recorded": _B,
    "compacted": _B,
    "versioned": _B,
}

LIVE: dict[str, Columns] = {
    "settings": {"name": _S, "value": _S},
    "databases": {"name": _S, "created": _I},
    "tables": _TABLE,
    "dropped_tables": {**_TABLE, "dropped": _I},
    "earlier_tables": {**_DECLARED, "until": _I},
    "identity": {"id": _S, "placed": _B},
    "views": _VIEW,
    "earlier_views": {**_VIEW, "until": _I},
    "table_commits": {
        "table_id": _I,
        "moment": _I,
        "write_id": _I,
        "txn_id": _I,
        "at": _I,
    },
    "tags": {
        "table_id": _I,
        "name": _S,
        "pin": _J,
        "write_id": _I,
        "at": _I,
        "created": _I,
        "expires": _I,
        "user": _S,
    },
    "cursors": {
        "consumer": _S,
        "table_id": _I,
        "moment": _I,
        "write_id": _I,
        "at": _I,
        "txn_id": _I,
    },
    "sinks": {
        "sink": _S,
        "table_id": _I,
        "query": _S,
        "batch": _I,
        "rows": _I,
        "txn_id": _I,
        "at": _I,
    },
    "locations": {"location": _S, "floor": _I},
    "partitions": _PARTITION,
    "dropped_partitions": {**_PARTITION, "dropped": _I},
    "open_txns": {
        "txn_id": _I,
        "kind": _I,
        "state": _S,
        "started": _I,
        **_INFO,
        "all_tables": _B,
        "needs": _J,
        "wrote": _J,
        "taken": _I,
        "closed": _I,
        "snapshot": _S,
        "ended": _I,
        "reason": _S,
        "pins": _J,
        "unfinished": _B,
    },
    "departed_txns": {"txn_id": _I, "closed": _I, "gone": _I},
    "txn_components": {
        "txn_id": _I,
        **_ENTITY,
        "operation": _S,
        "write_id": _I,
        "dynamic": _B,
        "cleaned": _B,
    },
    "txn_to_write_id": {"table_id": _I, "write_id": _I, "txn_id": _I, "last_txn": _I},
    "write_set": {
        **_ENTITY,
        "operation": _S,
        "txn_id": _I,
        "commit_id": _I,
        "write_id": _I,
        "rows": _S,
    },
    "locks": {
        "ext": _I,
        "txn_id": _I,
        "acquired": _B,
        "components": _J,
        "touches": _J,
        "request_id": _S,
        "begun": _B,
        "requested": _I,
        "deadline": _I,
        "tables": _J,
        "acquired_at": _I,
    },
    "compactions": {
        "id": _I,
        "table": _S,
        **_ENTITY,
        "kind": _S,
        "state": _S,
        "properties": _J,
        "initiator": _S,
        "enqueued": _I,
        "worker": _S,
        "job": _S,
        "attempt": _I,
        "started": _I,
        "txn_id": _I,
        "next_txn_id": _I,
        "highest_write_id": _I,
        "commit_time": _I,
        "cleaner_start": _I,
        "cleaner_attempts": _I,
        "cleaner_retry_at": _I,
        "ended": _I,
        "error": _S,
    },
    "erasures": {
        "id": _I,
        "table": _S,
        "condition": _S,
        "user": _S,
        "requested": _I,
        "state": _S,
        "answer": _S,
        "answered": _I,
        "run_id": _S,
        "waits_for": _J,
        "waits": _I,
    },
    "directories": _DIRECTORY,
    "dropped_directories": _DIRECTORY,
    "cleaning": {**_ENTITY, "started": _I},
    "retries": {**_ENTITY, "attempts": _I, "at": _I, "error": _S},
}

KEPT: dict[str, Columns] = {
    "txns": {
        "txn_id": _I,
        "state": _S,
        "kind": _I,
        "started": _I,
        "ended": _I,
        "commit_id": _I,
        **_INFO,
        "reason": _S,
    },
    "outcomes": {"request_id": _S, "txn_id": _I, "op": _S, "reply": _J, "at": _I},
    "writes": {
        "table_id": _I,
        "table": _S,
        "partition": _S,
        "write_id": _I,
        "operation": _S,
        "directory": _S,
        "rows": _I,
        "bytes": _I,
        "files": _I,
        "overwrite": _B,
        "txn": _I,
        "user": _S,
        "run_id": _S,
        "time": _I,
        "engine": _S,
        "reason": _S,
    },
}

RECORDED: dict[str, Columns] = {
    "manifests": {**_ENTITY, "directory": _S, "contents": _S},
}
"""Files of each row of `directories` (P26): `contents` is the text form of
`layout.recorded_files.RecordedFiles`."""

EVERY = {**LIVE, **KEPT, **RECORDED}

_VIEWS = (
    """CREATE VIEW v_txns AS
    SELECT txn_id, state, kind, started, ended, commit_id, "user", host, agent, run_id, description,
        reason FROM txns
    UNION ALL
    SELECT txn_id, state, kind, started, ended, 0, "user", host, agent, run_id, description, reason
    FROM open_txns WHERE state = 'o'""",
    "CREATE VIEW v_open_txns AS SELECT * FROM open_txns WHERE state = 'o'",
    """CREATE VIEW v_write_ids AS
    SELECT t.name AS "table", w.write_id, w.txn_id, coalesce(o.state, 'c') AS state
    FROM txn_to_write_id w JOIN tables t USING (table_id) LEFT JOIN open_txns o USING (txn_id)""",
    """CREATE VIEW v_locks AS
    SELECT ext, txn_id, acquired, c->>'$.db' AS db, c->>'$.table' AS "table",
        c->>'$.partition' AS "partition", c->>'$.lock' AS lock, c->>'$.operation' AS operation
    FROM (SELECT ext, txn_id, acquired, unnest(from_json(components, '["JSON"]')) AS c
        FROM locks)""",
)


def sql_type(column_type: str) -> str:
    return _S if column_type == _J else column_type


_DECLARATIONS = (
    "dropped_tables",
    "earlier_tables",
    "earlier_views",
    "dropped_partitions",
    "dropped_directories",
)
_LATER_TABLES = (
    "views",
    "locations",
    "departed_txns",
    "erasures",
    "identity",
    "table_commits",
    "tags",
    "cursors",
    "sinks",
    *_DECLARATIONS,
)
_LATER = {
    "tables": (
        "doubtful",
        "version",
        "foreign",
        "since",
        "since_at",
        "since_write",
        "anchor",
        "held",
    ),
    "partitions": ("floors", "added"),
    "views": ("version", "reads"),
    "open_txns": ("taken", "closed", "pins", "unfinished"),
    "directories": ("recorded", "compacted", "versioned"),
    "writes": ("engine", "reason"),
    "write_set": ("rows",),
}
_BEFORE = {"partitions": {"floor": _I}, "write_set": {"overwrite": _B}}
"""Columns that version 1 had and later versions do not."""


def _create(name: str, columns: Columns) -> str:
    listed = ", ".join(f'"{column}" {sql_type(kind)}' for column, kind in columns.items())
    return f'CREATE TABLE "{name}" ({listed})'


def _at_first(name: str, columns: Columns) -> Columns:
    """The columns of version 1, without those that later versions added."""
    return {key: kind for key, kind in columns.items() if key not in _LATER.get(name, ())}


def _version_1() -> Sequence[str]:
    first = {
        name: {**_at_first(name, columns), **_BEFORE.get(name, {})}
        for name, columns in {**LIVE, **KEPT}.items()
        if name not in _LATER_TABLES
    }
    every = {"meta": {"key": _S, "value": _S}, "journal": _JOURNAL_1, **first}
    return [*(_create(name, columns) for name, columns in every.items()), *_VIEWS]


_VERSION_2 = (
    """ALTER TABLE "tables" ADD COLUMN doubtful VARCHAR DEFAULT '[]'""",
    "ALTER TABLE journal RENAME TO journal_1",
    _create("journal", _JOURNAL_2),
    """INSERT INTO journal SELECT seq,
        '[["' || kind || '",' || "at" || ',' || body || ']]' FROM journal_1 ORDER BY seq""",
    "DROP TABLE journal_1",
    """CREATE VIEW v_journal AS
    SELECT seq, (e->>'$[1]')::BIGINT AS "at", e->>'$[0]' AS kind, e->'$[2]' AS body
    FROM (SELECT seq, unnest(from_json(events, '["JSON"]')) AS e FROM journal)""",
)

_VERSION_3 = (
    # A partition that was dropped several times keeps the write ids of all its drops.
    """UPDATE "tables" SET floors = to_json(
        map(map_keys(m), list_transform(map_values(m), lambda one: [one])))
    FROM (SELECT table_id, floors::JSON::MAP(VARCHAR, BIGINT) AS m FROM "tables") AS old
    WHERE "tables".table_id = old.table_id""",
    "ALTER TABLE partitions ADD COLUMN floors VARCHAR",
    "UPDATE partitions SET floors = CASE floor WHEN 0 THEN '[]' ELSE '[' || floor || ']' END",
    "ALTER TABLE partitions DROP COLUMN floor",
    # Until now it was known only while the drop was in the history of compactions.
    _create("locations", LIVE["locations"]),
    """INSERT INTO locations SELECT properties->>'$.location', max(highest_write_id)
    FROM compactions WHERE properties->>'$.location' IS NOT NULL GROUP BY 1""",
    # A snapshot is a moment now; open transactions keep theirs as the list that it was.
    "DROP VIEW v_open_txns",
    "ALTER TABLE open_txns ADD COLUMN taken BIGINT DEFAULT 0",
    "ALTER TABLE open_txns ADD COLUMN closed BIGINT DEFAULT 0",
    "CREATE VIEW v_open_txns AS SELECT * FROM open_txns WHERE state = 'o'",
    _create("departed_txns", LIVE["departed_txns"]),
)

_VERSION_4 = (_create("views", _at_first("views", _VIEW)),)

# In the same transaction the store moves the rows into a log file.
_VERSION_5 = ("DROP VIEW v_journal", "DROP TABLE journal")
LOG_VERSION = 5

_VERSION_6 = (_create("erasures", LIVE["erasures"]),)

_VERSION_7 = (
    # The next client looks up the files of existing directories (P26).
    "ALTER TABLE directories ADD COLUMN recorded BOOLEAN DEFAULT false",
    "ALTER TABLE directories ADD COLUMN compacted BOOLEAN DEFAULT false",
    "ALTER TABLE directories ADD COLUMN versioned BOOLEAN DEFAULT true",
    _create("manifests", RECORDED["manifests"]),
    """CREATE VIEW v_files AS
    SELECT t.name AS "table", f."partition", f.directory, file->>'$[0]' AS file,
        (file->>'$[1]')::BIGINT AS bytes, (file->>'$[2]')::BIGINT AS "rows"
    FROM (SELECT table_id, "partition", directory,
        unnest(from_json(contents, '["JSON"]')) AS file FROM manifests) f
    JOIN tables t USING (table_id)""",
)

# Every declaration counts from moment 0 on.
_VERSION_8 = (
    'ALTER TABLE "tables" ADD COLUMN version BIGINT DEFAULT 0',
    "ALTER TABLE views ADD COLUMN version BIGINT DEFAULT 0",
    "ALTER TABLE partitions ADD COLUMN added BIGINT DEFAULT 0",
    *(_create(name, LIVE[name]) for name in _DECLARATIONS),
)

# An overwrite is an operation of its own.
_VERSION_9 = (
    "UPDATE write_set SET operation = 'o' WHERE overwrite",
    "ALTER TABLE write_set DROP COLUMN overwrite",
)

# Locations become relative when a client first says where the warehouse is (identity.py).
_VERSION_10 = (
    """ALTER TABLE "tables" ADD COLUMN "foreign" BOOLEAN DEFAULT false""",
    _create("identity", LIVE["identity"]),
)

# Of the writes before, nobody knows the engine.
_VERSION_11 = (
    "ALTER TABLE writes ADD COLUMN engine VARCHAR DEFAULT ''",
    "ALTER TABLE writes ADD COLUMN reason VARCHAR DEFAULT ''",
)

# Commits name the rows that they changed (P38).
_VERSION_12 = ('ALTER TABLE write_set ADD COLUMN "rows" VARCHAR',)

# The history of a table begins with the migration: the order of earlier commits is not known.
_VERSION_13 = (
    *(
        f'ALTER TABLE "{name}" ADD COLUMN IF NOT EXISTS {column}'
        for name in ("tables", "dropped_tables")
        for column in (
            "since BIGINT DEFAULT 0",
            "since_at BIGINT DEFAULT 0",
            "since_write BIGINT DEFAULT -1",
            "anchor BIGINT DEFAULT 0",
            "held VARCHAR DEFAULT '{}'",
        )
    ),
    """UPDATE "tables" SET since_at = epoch_ms(now()), since = (
        SELECT coalesce(max(value::BIGINT), 1) - 1 FROM meta WHERE key = 'next_moment')""",
    'UPDATE "tables" SET anchor = since',
    "ALTER TABLE open_txns ADD COLUMN pins VARCHAR DEFAULT '[]'",
    _create("table_commits", LIVE["table_commits"]),
    _create("tags", LIVE["tags"]),
)

# How far consumers have read the changes of tables (P39).
_VERSION_14 = (_create("cursors", LIVE["cursors"]),)

# How far streaming queries have written tables (P42).
_VERSION_15 = (_create("sinks", LIVE["sinks"]),)

# Of open transactions of other engines, nobody knows whether their files are complete (P47).
_VERSION_16 = ("ALTER TABLE open_txns ADD COLUMN unfinished BOOLEAN DEFAULT false",)

# Views made before follow their tables.
_VERSION_17 = tuple(
    f"ALTER TABLE {name} ADD COLUMN IF NOT EXISTS reads VARCHAR DEFAULT '[]'"
    for name in ("views", "earlier_views")
)

MIGRATIONS: tuple[Sequence[str], ...] = (
    _version_1(),
    _VERSION_2,
    _VERSION_3,
    _VERSION_4,
    _VERSION_5,
    _VERSION_6,
    _VERSION_7,
    _VERSION_8,
    _VERSION_9,
    _VERSION_10,
    _VERSION_11,
    _VERSION_12,
    _VERSION_13,
    _VERSION_14,
    _VERSION_15,
    _VERSION_16,
    _VERSION_17,
)
"""The statements that lead from version n to n + 1, each in one DuckDB transaction."""
