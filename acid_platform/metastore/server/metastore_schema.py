"""The tables of a snapshot, as people can read them (P8).

LIVE tables hold the state that is in memory. KEPT tables hold what has ended, until it is older
than the retention. RECORDED tables hold the files of the directories that exist. Columns are named
after the fields that they hold; JSON columns are text. Times are milliseconds UTC.
"""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.metastore.codec import columns_of
from acid_platform.metastore.server.stored_kinds import ENDED, KINDS, Columns

META: Columns = {"key": "VARCHAR", "value": "VARCHAR"}

LIVE: dict[str, Columns] = {kind.name: kind.columns for kind in KINDS}

KEPT: dict[str, Columns] = {name: columns_of(record) for name, record in ENDED.items()}

RECORDED: dict[str, Columns] = {
    "manifests": {
        "table_id": "BIGINT",
        "partition": "VARCHAR",
        "directory": "VARCHAR",
        "contents": "VARCHAR",
    }
}
"""Files of each row of `directories` (P26): `contents` is the text form of
`layout.recorded_files.RecordedFiles`."""

PAST = {**KEPT, **RECORDED}
"""What leaves memory once a snapshot has it."""

EVERY = {**LIVE, **PAST}

VIEWS = (
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
    """CREATE VIEW v_files AS
    SELECT t.name AS "table", f."partition", f.directory, file->>'$[0]' AS file,
        (file->>'$[1]')::BIGINT AS bytes, (file->>'$[2]')::BIGINT AS "rows"
    FROM (SELECT table_id, "partition", directory,
        unnest(from_json(contents, '["JSON"]')) AS file FROM manifests) f
    JOIN tables t USING (table_id)""",
)


def sql_type(column_type: str) -> str:
    return "VARCHAR" if column_type == "JSON" else column_type


def create(name: str, columns: Columns) -> str:
    """The statement that makes the table of this name, which is quoted where need be."""
    listed = ", ".join(f'"{column}" {sql_type(kind)}' for column, kind in columns.items())
    return f"CREATE TABLE {name} ({listed})"


MIGRATIONS: tuple[Sequence[str], ...] = ()
"""The statements that lead a snapshot from version 1 to 2, from 2 to 3 and so on. Who changes the
tables above adds a migration, and a file that the version before made to the tests."""

VERSION = 1 + len(MIGRATIONS)
