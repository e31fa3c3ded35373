"""The statements that Trino has to run."""

from __future__ import annotations

CHANGES = (
    ("plain", "INSERT INTO plain (id, s, d) VALUES (9000, 'trino', 0.5), (9001, NULL, 2)"),
    ("plain", "UPDATE plain SET s = 'trino', bi = bi + 1 WHERE id BETWEEN 20 AND 40"),
    ("plain", "DELETE FROM plain WHERE id IN (41, 42, 9001)"),
    (
        "minor",
        "MERGE INTO minor t USING (VALUES (11, 'm'), (9200, 'm')) s(id, s) ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT (id, s)"
        " VALUES (s.id, s.s)",
    ),
    ("major", "UPDATE major SET d = d * 2 WHERE id % 5 = 1"),
    (
        "parts",
        "INSERT INTO parts VALUES (900, 'n', 7, 'Rom'), (901, 'o', 0, 'a b'), (902, 'p', 1, NULL)",
    ),
    ("parts", "UPDATE parts SET s = 'u' WHERE city = 'a b'"),
    ("parts", "DELETE FROM parts WHERE month = 7 OR id = 1"),
    ("dated", "INSERT INTO dated VALUES (77, 'x', DATE '2025-01-01', 12)"),
    ("dated", "DELETE FROM dated WHERE dy = DATE '2024-02-01'"),
    ("bucketed", "INSERT INTO bucketed (id, s) VALUES (9300, 'b'), (9301, 'c')"),
    ("bucketed", "UPDATE bucketed SET s = 'u' WHERE id % 7 = 0"),
    ("truncated", "INSERT INTO truncated (id) VALUES (8)"),
    ("emptied", "INSERT INTO emptied (id, ch) VALUES (8, 'abc')"),
    ("fresh", "INSERT INTO fresh (id, ts) VALUES (8, TIMESTAMP '2024-01-01 00:00:00.123456')"),
    ("evolved", "UPDATE evolved SET note = 'trino' WHERE id < 10"),
    ("spread", "UPDATE spread SET s = 'trino' WHERE id % 3 = 0"),
    ("spread", "DELETE FROM spread WHERE id % 7 = 1"),
    ("nested", "INSERT INTO nested (id, a) VALUES (800, ARRAY[1, NULL])"),
    ("nested", "DELETE FROM nested WHERE id = 2"),
    ("plain_hive3", "UPDATE plain_hive3 SET s = 'trino' WHERE id < 10"),
    ("orc_parts", "DELETE FROM orc_parts WHERE p = 1"),
    ("orc_minor", "INSERT INTO orc_minor VALUES (700, 'o', 1.5)"),
    ("parquet_minor", "INSERT INTO parquet_minor VALUES (700, 'o', 1.5)"),
    ("parquet_parts", "INSERT INTO parquet_parts VALUES (700, 'o', 1.5, 9)"),
)
"""Statements that change a table, after which both sides have to read the same."""

UNREADABLE = ("json_minor",)
"""Tables that Trino refuses: it does not know the SerDe of Hive 4 for JSON."""

REFUSED = (
    "TRUNCATE TABLE plain",
    "TRUNCATE TABLE parquet_minor",
    "DELETE FROM parquet_minor",
    "CREATE TABLE copied WITH (transactional = true) AS SELECT * FROM plain",
    "INSERT INTO text_minor VALUES (700, 'compressed', 1.5)",
    "INSERT INTO json_minor VALUES (700, 'o', 1.5)",
)

DEFINITIONS = (
    "CREATE SCHEMA made",
    "CREATE TABLE made.one (id integer, v varchar) WITH (transactional = true)",
    "INSERT INTO made.one VALUES (1, 'a'), (2, 'b')",
    "ALTER TABLE made.one ADD COLUMN w bigint",
    "UPDATE made.one SET w = 5",
    "ANALYZE made.one",
    "SHOW STATS FOR made.one",
    "COMMENT ON TABLE made.one IS 'told'",
    "COMMENT ON COLUMN made.one.id IS 'told'",
    "ALTER TABLE made.one RENAME TO made.other",
    "SELECT * FROM made.other",
    "CREATE TABLE made.parts (id integer, v varchar, p integer) WITH (transactional = true,"
    " partitioned_by = ARRAY['p'])",
    "INSERT INTO made.parts VALUES (1, 'a', 1), (2, 'b', 2)",
    "ANALYZE made.parts",
    "SHOW STATS FOR made.parts",
    'SELECT * FROM made."parts$partitions"',
    "CREATE TABLE made.buckets (id integer, v varchar) WITH (transactional = true,"
    " bucketed_by = ARRAY['id'], bucket_count = 3)",
    "INSERT INTO made.buckets VALUES (1, 'a'), (2, 'b')",
    "SHOW CREATE TABLE made.other",
    "SHOW TABLES FROM made",
    "SHOW COLUMNS FROM made.parts",
    "DROP TABLE made.other",
    "DROP TABLE made.parts",
    "DROP TABLE made.buckets",
    "DROP SCHEMA made",
)

RECORDED = (
    "CREATE SCHEMA made",
    "CREATE TABLE made.one (id integer, v varchar) WITH (transactional = true)",
    "INSERT INTO made.one VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "ours: UPDATE made.one SET v = 'ours' WHERE id = 1",
    "SELECT * FROM made.one",
    "UPDATE made.one SET v = 'trino' WHERE id < 3",
    "DELETE FROM made.one WHERE id = 3",
    "MERGE INTO made.one t USING (VALUES (1, 'm'), (9, 'm')) s(id, v) ON t.id = s.id WHEN"
    " MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)",
    "ANALYZE made.one",
    "ALTER TABLE made.one ADD COLUMN w bigint",
    "ALTER TABLE made.one RENAME TO made.two",
    "CREATE TABLE made.parts (id integer, v varchar, p varchar) WITH (transactional = true,"
    " partitioned_by = ARRAY['p'])",
    "INSERT INTO made.parts VALUES (1, 'a', 'x'), (2, 'b', 'a b/c')",
    "ours: INSERT INTO made.parts VALUES (3, 'c', 'x')",
    "SELECT * FROM made.parts WHERE p = 'x'",
    "UPDATE made.parts SET v = 'u' WHERE id = 3",
    "DELETE FROM made.parts WHERE p = 'x'",
    "ANALYZE made.parts",
    "DROP TABLE made.two",
)
