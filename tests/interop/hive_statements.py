"""The statements that Hive has to run."""

CHANGES = (
    ("plain", "INSERT INTO plain (id, s, d) VALUES (9100, 'hive', 0.5), (9101, NULL, 2)"),
    ("plain", "UPDATE plain SET s = 'hive', bi = bi + 1 WHERE id BETWEEN 50 AND 60"),
    ("plain", "DELETE FROM plain WHERE id IN (61, 64, 9101)"),
    (
        "minor",
        "MERGE INTO minor t USING (SELECT 12 AS id, 'h' AS s UNION ALL SELECT 9300, 'h') s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = s.s"
        " WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, s.s)",
    ),
    (
        "parts",
        "INSERT INTO parts PARTITION (month, city)"
        " VALUES (910, 'h', 8, 'Rom'), (911, 'h', 0, 'a b')",
    ),
    ("parts", "UPDATE parts SET s = 'h' WHERE id % 20 = 3"),
    ("parts", "DELETE FROM parts WHERE month = 8"),
    ("dated", "INSERT INTO dated PARTITION (dy = '2025-02-01', n = 3) VALUES (78, 'h')"),
    ("dated", "ALTER TABLE dated ADD PARTITION (dy = '2030-01-01', n = 1)"),
    ("bucketed", "INSERT INTO bucketed (id, s) VALUES (9400, 'h'), (9401, 'h')"),
    ("overwritten", "INSERT OVERWRITE TABLE overwritten SELECT * FROM major WHERE id < 30"),
    ("parquet_minor", "INSERT INTO parquet_minor VALUES (710, 'h', 1.5)"),
    ("orc_minor", "INSERT INTO orc_minor VALUES (710, 'h', 1.5)"),
    ("truncated", "TRUNCATE TABLE truncated"),
    ("parts_hive3", "TRUNCATE TABLE parts_hive3 PARTITION (month = 2, city = 'Zürich')"),
    ("spread", "UPDATE spread SET s = 'hive' WHERE id % 4 = 1"),
    ("nested", "DELETE FROM nested WHERE id = 3"),
    ("evolved", "ALTER TABLE evolved ADD COLUMNS (later string)"),
)

REFUSED = (
    "CREATE TABLE copied STORED AS ORC TBLPROPERTIES ('transactional' = 'true')"
    " AS SELECT id, s FROM major",
    "ALTER TABLE dated DROP PARTITION (dy = '2025-02-01', n = 3)",
    "CREATE VIEW db.seen AS SELECT id FROM plain",
    "ALTER TABLE plain COMPACT 'major'",  # Hive 4 itself: it looks for a database of its own
)

STATEMENTS = (
    "SHOW DATABASES",
    "SHOW TABLES",
    "SHOW PARTITIONS parts",
    "DESCRIBE FORMATTED plain",
    "SHOW CREATE TABLE parts",
    "SHOW LOCKS",
    "SHOW TRANSACTIONS",
    "SHOW COMPACTIONS",
    "CREATE DATABASE made",
    "CREATE TABLE made.one (id int, v string) STORED AS ORC"
    " TBLPROPERTIES ('transactional' = 'true')",
    "INSERT INTO made.one VALUES (1, 'a'), (2, 'b')",
    "UPDATE made.one SET v = 'c' WHERE id = 2",
    "ALTER TABLE made.one ADD COLUMNS (w bigint)",
    "ALTER TABLE made.one SET TBLPROPERTIES ('owner.team' = 'x')",
    "ANALYZE TABLE made.one COMPUTE STATISTICS",
    "ANALYZE TABLE made.one COMPUTE STATISTICS FOR COLUMNS",
    "DESCRIBE FORMATTED made.one id",
    "ALTER TABLE made.one RENAME TO made.two",
    "SELECT * FROM made.two",
    "CREATE TABLE made.parts (id int, v string) PARTITIONED BY (p int) STORED AS ORC"
    " TBLPROPERTIES ('transactional' = 'true')",
    "INSERT INTO made.parts PARTITION (p = 1) VALUES (1, 'a')",
    "INSERT OVERWRITE TABLE made.parts PARTITION (p = 1) SELECT 5, 'x'",
    "SELECT * FROM made.parts",
    "TRUNCATE TABLE made.two",
    "DROP TABLE made.two",
    "DROP TABLE made.parts",
    "DROP TABLE IF EXISTS made.missing",
    "DROP DATABASE made",
)

RECORDED = (
    "CREATE DATABASE made",
    "CREATE TABLE made.one (id int, v string) STORED AS ORC"
    " TBLPROPERTIES ('transactional' = 'true')",
    "INSERT INTO made.one VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "ours: UPDATE made.one SET v = 'ours' WHERE id = 1",
    "SELECT * FROM made.one",
    "UPDATE made.one SET v = 'hive' WHERE id < 3",
    "DELETE FROM made.one WHERE id = 3",
    "MERGE INTO made.one t USING (SELECT 1 AS id, 'm' AS v UNION ALL SELECT 9, 'm') s"
    " ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
    " WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)",
    "CREATE TABLE made.parts (id int, v string) PARTITIONED BY (p string) STORED AS ORC"
    " TBLPROPERTIES ('transactional' = 'true')",
    "INSERT INTO made.parts PARTITION (p) VALUES (1, 'a', 'x'), (2, 'b', 'a b/c')",
    "ours: INSERT INTO made.parts VALUES (3, 'c', 'x')",
    "SELECT * FROM made.parts WHERE p = 'x'",
    "UPDATE made.parts SET v = 'u' WHERE id = 3",
    "INSERT OVERWRITE TABLE made.parts PARTITION (p = 'x') SELECT 7, 'o'",
    "TRUNCATE TABLE made.one",
    "SHOW COMPACTIONS",
    "DROP TABLE made.one",
)
