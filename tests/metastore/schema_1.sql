CREATE TABLE "meta" ("key" VARCHAR, "value" VARCHAR);
CREATE TABLE "settings" ("name" VARCHAR, "value" VARCHAR);
CREATE TABLE "identity" ("id" VARCHAR, "placed" BOOLEAN);
CREATE TABLE "databases" ("name" VARCHAR, "created" BIGINT, "comment" VARCHAR, "properties" VARCHAR, "owner" VARCHAR, "owner_kind" VARCHAR);
CREATE TABLE "tables" ("table_id" BIGINT, "name" VARCHAR, "location" VARCHAR, "columns" VARCHAR, "partition_columns" VARCHAR, "properties" VARCHAR, "bucket_columns" VARCHAR, "bucket_count" BIGINT, "created" BIGINT, "floor" BIGINT, "version" BIGINT, "foreign" BOOLEAN, "comments" VARCHAR, "constraints" VARCHAR, "rewritten" BIGINT, "next_write_id" BIGINT, "purged" BIGINT, "forgotten" BIGINT, "cleaned_upto" BIGINT, "aborted" VARCHAR, "floors" VARCHAR, "doubtful" VARCHAR, "since" BIGINT, "since_at" BIGINT, "since_write" BIGINT, "anchor" BIGINT, "held" VARCHAR, "ended" VARCHAR, "dropped" BIGINT);
CREATE TABLE "dropped_tables" ("table_id" BIGINT, "name" VARCHAR, "location" VARCHAR, "columns" VARCHAR, "partition_columns" VARCHAR, "properties" VARCHAR, "bucket_columns" VARCHAR, "bucket_count" BIGINT, "created" BIGINT, "floor" BIGINT, "version" BIGINT, "foreign" BOOLEAN, "comments" VARCHAR, "constraints" VARCHAR, "rewritten" BIGINT, "next_write_id" BIGINT, "purged" BIGINT, "forgotten" BIGINT, "cleaned_upto" BIGINT, "aborted" VARCHAR, "floors" VARCHAR, "doubtful" VARCHAR, "since" BIGINT, "since_at" BIGINT, "since_write" BIGINT, "anchor" BIGINT, "held" VARCHAR, "ended" VARCHAR, "dropped" BIGINT);
CREATE TABLE "earlier_tables" ("table_id" BIGINT, "version" BIGINT, "name" VARCHAR, "location" VARCHAR, "columns" VARCHAR, "partition_columns" VARCHAR, "properties" VARCHAR, "bucket_columns" VARCHAR, "bucket_count" BIGINT, "created" BIGINT, "floor" BIGINT, "foreign" BOOLEAN, "comments" VARCHAR, "constraints" VARCHAR, "rewritten" BIGINT, "until" BIGINT);
CREATE TABLE "views" ("name" VARCHAR, "query" VARCHAR, "columns" VARCHAR, "created" BIGINT, "version" BIGINT, "reads" VARCHAR, "properties" VARCHAR, "comments" VARCHAR, "external" VARCHAR);
CREATE TABLE "earlier_views" ("name" VARCHAR, "version" BIGINT, "query" VARCHAR, "columns" VARCHAR, "created" BIGINT, "reads" VARCHAR, "properties" VARCHAR, "comments" VARCHAR, "external" VARCHAR, "until" BIGINT);
CREATE TABLE "table_commits" ("table_id" BIGINT, "moment" BIGINT, "write_id" BIGINT, "txn_id" BIGINT, "at" BIGINT, "rewrite" BOOLEAN);
CREATE TABLE "tags" ("table_id" BIGINT, "name" VARCHAR, "pin" VARCHAR, "write_id" BIGINT, "at" BIGINT, "created" BIGINT, "expires" BIGINT, "user" VARCHAR);
CREATE TABLE "cursors" ("consumer" VARCHAR, "table_id" BIGINT, "moment" BIGINT, "write_id" BIGINT, "at" BIGINT, "txn_id" BIGINT);
CREATE TABLE "sinks" ("sink" VARCHAR, "table_id" BIGINT, "query" VARCHAR, "batch" BIGINT, "rows" BIGINT, "txn_id" BIGINT, "at" BIGINT);
CREATE TABLE "locations" ("location" VARCHAR, "floor" BIGINT);
CREATE TABLE "partitions" ("table_id" BIGINT, "name" VARCHAR, "floors" VARCHAR, "added" BIGINT, "dropped" BIGINT);
CREATE TABLE "dropped_partitions" ("table_id" BIGINT, "name" VARCHAR, "dropped" BIGINT, "floors" VARCHAR, "added" BIGINT);
CREATE TABLE "open_txns" ("txn_id" BIGINT, "kind" BIGINT, "state" VARCHAR, "started" BIGINT, "user" VARCHAR, "host" VARCHAR, "agent" VARCHAR, "run_id" VARCHAR, "description" VARCHAR, "all_tables" BOOLEAN, "needs" VARCHAR, "wrote" VARCHAR, "taken" BIGINT, "closed" BIGINT, "ended" BIGINT, "reason" VARCHAR, "pins" VARCHAR, "unfinished" BOOLEAN);
CREATE TABLE "departed_txns" ("txn_id" BIGINT, "closed" BIGINT, "gone" BIGINT);
CREATE TABLE "txn_components" ("txn_id" BIGINT, "table_id" BIGINT, "partition" VARCHAR, "operation" VARCHAR, "write_id" BIGINT, "dynamic" BOOLEAN, "cleaned" BOOLEAN);
CREATE TABLE "txn_to_write_id" ("table_id" BIGINT, "write_id" BIGINT, "txn_id" BIGINT, "last_txn" BIGINT);
CREATE TABLE "write_set" ("table_id" BIGINT, "partition" VARCHAR, "operation" VARCHAR, "txn_id" BIGINT, "commit_id" BIGINT, "write_id" BIGINT, "rows" VARCHAR);
CREATE TABLE "locks" ("ext" BIGINT, "txn_id" BIGINT, "acquired" BOOLEAN, "components" VARCHAR, "touches" VARCHAR, "request_id" VARCHAR, "begun" BOOLEAN, "requested" BIGINT, "deadline" BIGINT, "tables" VARCHAR, "acquired_at" BIGINT);
CREATE TABLE "compactions" ("id" BIGINT, "table" VARCHAR, "table_id" BIGINT, "partition" VARCHAR, "kind" VARCHAR, "state" VARCHAR, "properties" VARCHAR, "initiator" VARCHAR, "enqueued" BIGINT, "worker" VARCHAR, "job" VARCHAR, "attempt" BIGINT, "started" BIGINT, "txn_id" BIGINT, "next_txn_id" BIGINT, "highest_write_id" BIGINT, "commit_time" BIGINT, "cleaner_start" BIGINT, "cleaner_attempts" BIGINT, "cleaner_retry_at" BIGINT, "ended" BIGINT, "error" VARCHAR);
CREATE TABLE "drops" ("id" BIGINT, "table" VARCHAR, "table_id" BIGINT, "partition" VARCHAR, "location" VARCHAR, "state" VARCHAR, "enqueued" BIGINT, "txn_id" BIGINT, "next_txn_id" BIGINT, "highest_write_id" BIGINT, "commit_time" BIGINT, "cleaner_start" BIGINT, "cleaner_attempts" BIGINT, "cleaner_retry_at" BIGINT, "ended" BIGINT, "error" VARCHAR);
CREATE TABLE "erasures" ("id" BIGINT, "table" VARCHAR, "condition" VARCHAR, "user" VARCHAR, "requested" BIGINT, "state" VARCHAR, "answer" VARCHAR, "answered" BIGINT, "run_id" VARCHAR, "waits_for" VARCHAR, "waits" BIGINT);
CREATE TABLE "directories" ("table_id" BIGINT, "partition" VARCHAR, "name" VARCHAR, "low" BIGINT, "high" BIGINT, "deletes" BOOLEAN, "base" BOOLEAN, "rows" BIGINT, "bytes" BIGINT, "files" BIGINT, "txn" BIGINT, "obsolete" BOOLEAN, "compacted" BOOLEAN, "versioned" BOOLEAN);
CREATE TABLE "dropped_directories" ("table_id" BIGINT, "partition" VARCHAR, "name" VARCHAR, "low" BIGINT, "high" BIGINT, "deletes" BOOLEAN, "base" BOOLEAN, "rows" BIGINT, "bytes" BIGINT, "files" BIGINT, "txn" BIGINT, "obsolete" BOOLEAN, "compacted" BOOLEAN, "versioned" BOOLEAN);
CREATE TABLE "cleaning" ("table_id" BIGINT, "partition" VARCHAR, "started" BIGINT);
CREATE TABLE "retries" ("table_id" BIGINT, "partition" VARCHAR, "attempts" BIGINT, "at" BIGINT, "error" VARCHAR);
CREATE TABLE "txns" ("txn_id" BIGINT, "state" VARCHAR, "kind" BIGINT, "started" BIGINT, "ended" BIGINT, "commit_id" BIGINT, "user" VARCHAR, "host" VARCHAR, "agent" VARCHAR, "run_id" VARCHAR, "description" VARCHAR, "reason" VARCHAR);
CREATE TABLE "outcomes" ("request_id" VARCHAR, "txn_id" BIGINT, "op" VARCHAR, "reply" VARCHAR, "at" BIGINT);
CREATE TABLE "writes" ("table_id" BIGINT, "table" VARCHAR, "partition" VARCHAR, "write_id" BIGINT, "operation" VARCHAR, "directory" VARCHAR, "rows" BIGINT, "bytes" BIGINT, "files" BIGINT, "overwrite" BOOLEAN, "txn" BIGINT, "user" VARCHAR, "run_id" VARCHAR, "time" BIGINT, "engine" VARCHAR, "reason" VARCHAR);
CREATE TABLE "manifests" ("table_id" BIGINT, "partition" VARCHAR, "directory" VARCHAR, "contents" VARCHAR);
CREATE VIEW v_txns AS
    SELECT txn_id, state, kind, started, ended, commit_id, "user", host, agent, run_id, description,
        reason FROM txns
    UNION ALL
    SELECT txn_id, state, kind, started, ended, 0, "user", host, agent, run_id, description, reason
    FROM open_txns WHERE state = 'o';
CREATE VIEW v_open_txns AS SELECT * FROM open_txns WHERE state = 'o';
CREATE VIEW v_write_ids AS
    SELECT t.name AS "table", w.write_id, w.txn_id, coalesce(o.state, 'c') AS state
    FROM txn_to_write_id w JOIN tables t USING (table_id) LEFT JOIN open_txns o USING (txn_id);
CREATE VIEW v_locks AS
    SELECT ext, txn_id, acquired, c->>'$.db' AS db, c->>'$.table' AS "table",
        c->>'$.partition' AS "partition", c->>'$.lock' AS lock, c->>'$.operation' AS operation
    FROM (SELECT ext, txn_id, acquired, unnest(from_json(components, '["JSON"]')) AS c
        FROM locks);
CREATE VIEW v_files AS
    SELECT t.name AS "table", f."partition", f.directory, file->>'$[0]' AS file,
        (file->>'$[1]')::BIGINT AS bytes, (file->>'$[2]')::BIGINT AS "rows"
    FROM (SELECT table_id, "partition", directory,
        unnest(from_json(contents, '["JSON"]')) AS file FROM manifests) f
    JOIN tables t USING (table_id);
