-- What PostgreSQL's catalog shows of the tables that a user may read, for a database of DuckDB that
-- has acid_tables (oid, nspoid, database, name, comment), acid_columns (relid, num, name, typid,
-- typmod, type, sqltype, comment), acid_schemas (oid, name) and acid_settings (name, setting, who).
CREATE MACRO pg.user_name() AS (SELECT any_value(who) FROM acid_settings);
CREATE MACRO pg."current_user"() AS (SELECT any_value(who) FROM acid_settings);
CREATE MACRO pg."session_user"() AS (SELECT any_value(who) FROM acid_settings);
CREATE MACRO pg."user"() AS (SELECT any_value(who) FROM acid_settings);
CREATE MACRO pg."current_role"() AS (SELECT any_value(who) FROM acid_settings);
CREATE MACRO pg.version() AS 'PostgreSQL 15.0 (acid, SQL by DuckDB)';
CREATE MACRO pg.current_database() AS 'acid';
CREATE MACRO pg.current_catalog() AS 'acid';
CREATE MACRO pg.current_setting(wanted, missing := false) AS
    (SELECT any_value(setting) FROM acid_settings WHERE name = lower(wanted));
CREATE MACRO pg.set_config(wanted, given, only_here) AS given;
CREATE MACRO pg.current_schemas(implicit) AS ['default'];
CREATE MACRO pg.current_schema() AS pg.current_schemas(false)[1];
CREATE MACRO pg.pg_backend_pid() AS 1;
CREATE MACRO pg.pg_is_in_recovery() AS false;
CREATE MACRO pg.pg_encoding_to_char(encoding) AS 'UTF8';
CREATE MACRO pg.getdatabaseencoding() AS 'UTF8';
CREATE MACRO pg.pg_my_temp_schema() AS 0;
CREATE MACRO pg.pg_postmaster_start_time() AS TIMESTAMPTZ '2000-01-01 00:00:00+00';
CREATE MACRO pg.pg_get_userbyid(id) AS pg.user_name();
CREATE MACRO pg.pg_get_viewdef(id, pretty := false) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_expr(tree, id, pretty := false) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_constraintdef(id, pretty := false) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_indexdef(id, num := 0, pretty := false) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_partkeydef(id) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_serial_sequence(of_table, of_column) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_function_result(id) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_function_arguments(id) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_function_identity_arguments(id) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_triggerdef(id, pretty := false) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_ruledef(id, pretty := false) AS NULL::VARCHAR;
CREATE MACRO pg.pg_get_statisticsobjdef_columns(id) AS NULL::VARCHAR;
CREATE MACRO pg.pg_relation_is_publishable(id) AS false;
CREATE MACRO pg.pg_relation_size(id) AS 0::BIGINT;
CREATE MACRO pg.pg_table_size(id) AS 0::BIGINT;
CREATE MACRO pg.pg_total_relation_size(id) AS 0::BIGINT;
CREATE MACRO pg.pg_database_size(id) AS 0::BIGINT;
CREATE MACRO pg.pg_size_pretty(size) AS size::VARCHAR || ' bytes';
CREATE MACRO pg.pg_tablespace_location(id) AS '';
CREATE MACRO pg.shobj_description(id, catalog) AS NULL::VARCHAR;
CREATE MACRO pg.has_database_privilege(a, b, c := '') AS true;
CREATE MACRO pg.array_upper(list, dimension) AS nullif(len(list), 0);
CREATE MACRO pg.array_lower(list, dimension) AS CASE WHEN len(list) > 0 THEN 1 END;
CREATE MACRO pg.quote_ident(name) AS
    CASE WHEN regexp_full_match(name, '[a-z_][a-z0-9_]*') AND name NOT IN ('default', 'user', 'order', 'group', 'table')
    THEN name ELSE '"' || replace(name, '"', '""') || '"' END;
CREATE MACRO pg.quote_literal(value) AS '''' || replace(value::VARCHAR, '''', '''''') || '''';
CREATE MACRO pg.to_timestamp(a, b) AS strptime(a, b);
CREATE MACRO pg.to_date(a, b) AS CAST(strptime(a, b) AS DATE);
CREATE MACRO pg.to_char(a, b) AS strftime(a, b);
CREATE MACRO pg.json_build_object(a, b) AS json_object(a::VARCHAR, b),
    (a, b, c, d) AS json_object(a::VARCHAR, b, c::VARCHAR, d),
    (a, b, c, d, e, f, g, h, i, j, k, l, m, n) AS json_object(a::VARCHAR, b, c::VARCHAR, d,
    e::VARCHAR, f, g::VARCHAR, h, i::VARCHAR, j, k::VARCHAR, l, m::VARCHAR, n);
CREATE MACRO pg.format(pattern, a) AS regexp_replace(pattern, '%[sI]', a::VARCHAR),
    (pattern, a, b) AS regexp_replace(regexp_replace(pattern, '%[sI]', a::VARCHAR), '%[sI]', b::VARCHAR);
CREATE MACRO information._pg_expandarray(list) AS {'x': 0::BIGINT, 'n': 0::BIGINT};
CREATE MACRO pg.pg_char_to_encoding(name) AS 6;
CREATE TYPE pg.regclass AS VARCHAR;
CREATE TYPE pg.regtype AS VARCHAR;
CREATE TYPE pg.regproc AS VARCHAR;
CREATE TYPE pg.regnamespace AS VARCHAR;
CREATE TYPE pg.name AS VARCHAR;
CREATE TYPE pg."char" AS VARCHAR;
CREATE TYPE pg.xid AS BIGINT;
CREATE VIEW pg.acid_types AS SELECT * FROM (VALUES
    (16, 'bool', 'boolean', 1, 'B', 1000), (17, 'bytea', 'bytea', -1, 'U', 1001),
    (18, 'char', '"char"', 1, 'S', 1002), (19, 'name', 'name', 64, 'S', 1003),
    (20, 'int8', 'bigint', 8, 'N', 1016), (21, 'int2', 'smallint', 2, 'N', 1005),
    (23, 'int4', 'integer', 4, 'N', 1007), (25, 'text', 'text', -1, 'S', 1009),
    (26, 'oid', 'oid', 4, 'N', 1028), (114, 'json', 'json', -1, 'U', 199),
    (700, 'float4', 'real', 4, 'N', 1021), (701, 'float8', 'double precision', 8, 'N', 1022),
    (1042, 'bpchar', 'character', -1, 'S', 1014), (1043, 'varchar', 'character varying', -1, 'S', 1015),
    (1082, 'date', 'date', 4, 'D', 1182), (1083, 'time', 'time without time zone', 8, 'D', 1183),
    (1114, 'timestamp', 'timestamp without time zone', 8, 'D', 1115),
    (1184, 'timestamptz', 'timestamp with time zone', 8, 'D', 1185),
    (1186, 'interval', 'interval', 16, 'T', 1187), (1700, 'numeric', 'numeric', -1, 'N', 1231),
    (2950, 'uuid', 'uuid', 16, 'U', 2951)
    ) AS t(oid, name, shown, len, category, arrays);
CREATE MACRO pg.format_type(id, modifier) AS (SELECT any_value(shown || CASE
    WHEN coalesce(modifier, -1) < 4 THEN ''
    WHEN oid = 1700 THEN '(' || ((modifier::BIGINT - 4) >> 16) || ',' || ((modifier::BIGINT - 4) & 65535) || ')'
    WHEN oid IN (1042, 1043) THEN '(' || (modifier - 4) || ')' ELSE '' END)
    FROM pg.acid_types WHERE oid = id);
CREATE MACRO pg.to_regtype(wanted) AS (SELECT any_value(oid) FROM pg.acid_types
    WHERE lower(wanted) IN (name, shown, 'pg_catalog.' || name));
CREATE MACRO pg.to_regnamespace(wanted) AS
    (SELECT any_value(oid) FROM acid_schemas WHERE name = trim(wanted, '"'));
CREATE MACRO pg.to_regclass(wanted) AS coalesce(try_cast(wanted::VARCHAR AS BIGINT), CASE replace(lower(wanted::VARCHAR), 'pg_catalog.', '')
    WHEN 'pg_class' THEN 1259::BIGINT WHEN 'pg_type' THEN 1247 WHEN 'pg_attribute' THEN 1249
    WHEN 'pg_proc' THEN 1255 WHEN 'pg_constraint' THEN 2606 WHEN 'pg_namespace' THEN 2615
    WHEN 'pg_database' THEN 1262 WHEN 'pg_attrdef' THEN 2604 WHEN 'pg_trigger' THEN 2620 END, (SELECT any_value(t.oid) FROM acid_tables AS t
    WHERE replace(wanted::VARCHAR, '"', '') IN (t.database || '.' || t.name, 'acid.' || t.database || '.' || t.name)
    OR (replace(wanted::VARCHAR, '"', '') = t.name AND list_contains(pg.current_schemas(true), t.database))));
CREATE VIEW pg.pg_namespace AS SELECT oid, name AS nspname, 10::BIGINT AS nspowner,
    NULL::VARCHAR AS nspacl FROM acid_schemas
    UNION ALL VALUES (11, 'pg_catalog', 10, NULL), (13, 'information_schema', 10, NULL);
CREATE VIEW pg.pg_class AS SELECT t.oid, t.name AS relname, t.nspoid AS relnamespace,
    0::BIGINT AS reltype, 0::BIGINT AS reloftype, 10::BIGINT AS relowner, 2::BIGINT AS relam,
    t.oid AS relfilenode, 0::BIGINT AS reltablespace, 0::INTEGER AS relpages,
    -1::REAL AS reltuples, 0::INTEGER AS relallvisible, 0::BIGINT AS reltoastrelid,
    false AS relhasindex, false AS relisshared, 'p' AS relpersistence, 'r' AS relkind,
    (SELECT count(*) FROM acid_columns WHERE relid = t.oid)::SMALLINT AS relnatts,
    0::SMALLINT AS relchecks, false AS relhasoids, false AS relhasrules, false AS relhastriggers,
    false AS relhassubclass, false AS relrowsecurity, false AS relforcerowsecurity,
    true AS relispopulated, 'd' AS relreplident, false AS relispartition, 0::BIGINT AS relrewrite,
    0::BIGINT AS relfrozenxid, 0::BIGINT AS relminmxid, NULL::VARCHAR AS relacl,
    NULL::VARCHAR[] AS reloptions, NULL::VARCHAR AS relpartbound FROM acid_tables AS t;
CREATE VIEW pg.pg_attribute AS SELECT relid AS attrelid, c.name AS attname, typid AS atttypid,
    -1 AS attstattarget, coalesce(t.len, -1)::SMALLINT AS attlen, num::SMALLINT AS attnum,
    0 AS attndims, -1 AS attcacheoff, typmod AS atttypmod, false AS attbyval, 'i' AS attalign,
    'p' AS attstorage, '' AS attcompression, false AS attnotnull, false AS atthasdef,
    false AS atthasmissing, '' AS attidentity, '' AS attgenerated, false AS attisdropped,
    true AS attislocal, 0 AS attinhcount, 0::BIGINT AS attcollation, NULL::VARCHAR AS attacl,
    NULL::VARCHAR[] AS attoptions, NULL::VARCHAR[] AS attfdwoptions, NULL::VARCHAR AS attmissingval
    FROM acid_columns AS c LEFT JOIN pg.acid_types AS t ON t.oid = typid;
CREATE VIEW pg.pg_type AS SELECT oid::BIGINT AS oid, name AS typname, 11::BIGINT AS typnamespace,
    10::BIGINT AS typowner, len::SMALLINT AS typlen, false AS typbyval, 'b' AS typtype,
    category AS typcategory, false AS typispreferred, true AS typisdefined, ',' AS typdelim,
    0::BIGINT AS typrelid, '-' AS typsubscript, 0::BIGINT AS typelem, arrays::BIGINT AS typarray,
    name || 'in' AS typinput, name || 'out' AS typoutput, '-' AS typreceive, '-' AS typsend,
    false AS typnotnull, 0::BIGINT AS typbasetype, -1 AS typtypmod, 0 AS typndims,
    0::BIGINT AS typcollation, NULL::VARCHAR AS typdefault, NULL::VARCHAR AS typacl
    FROM pg.acid_types UNION ALL SELECT arrays, '_' || name, 11, 10, -1, false, 'b', 'A', false,
    true, ',', 0, 'array_subscript_handler', oid, 0, 'array_in', 'array_out', '-', '-', false, 0,
    -1, 0, 0, NULL, NULL FROM pg.acid_types;
CREATE VIEW pg.pg_description AS SELECT oid AS objoid, 1259::BIGINT AS classoid, 0 AS objsubid,
    comment AS description FROM acid_tables WHERE comment <> '' UNION ALL
    SELECT relid, 1259, num, comment FROM acid_columns WHERE comment <> '';
CREATE MACRO pg.obj_description(id, catalog := '') AS
    (SELECT any_value(description) FROM pg.pg_description WHERE objoid = id AND objsubid = 0);
CREATE MACRO pg.col_description(id, place) AS
    (SELECT any_value(description) FROM pg.pg_description WHERE objoid = id AND objsubid = place);
CREATE MACRO pg.pg_table_is_visible(id) AS id IN (SELECT t.oid FROM acid_tables AS t
    WHERE list_contains(pg.current_schemas(true), t.database));
CREATE MACRO pg.pg_collation_is_visible(id) AS true;
CREATE MACRO pg.pg_type_is_visible(id) AS true;
CREATE MACRO pg.pg_function_is_visible(id) AS true;
CREATE VIEW pg.pg_database AS SELECT 1::BIGINT AS oid, 'acid' AS datname, 10::BIGINT AS datdba,
    6 AS encoding, 'c' AS datlocprovider, false AS datistemplate, true AS datallowconn,
    -1 AS datconnlimit, 'C' AS datcollate, 'C' AS datctype, NULL::VARCHAR AS daticulocale,
    NULL::VARCHAR AS datcollversion, 1663::BIGINT AS dattablespace, NULL::VARCHAR AS datacl;
CREATE VIEW pg.pg_roles AS SELECT 10::BIGINT AS oid, pg.user_name() AS rolname, false AS rolsuper,
    true AS rolinherit, false AS rolcreaterole, false AS rolcreatedb, true AS rolcanlogin,
    false AS rolreplication, -1 AS rolconnlimit, NULL::VARCHAR AS rolpassword,
    NULL::TIMESTAMPTZ AS rolvaliduntil, false AS rolbypassrls, NULL::VARCHAR[] AS rolconfig;
CREATE VIEW pg.pg_user AS SELECT rolname AS usename, oid AS usesysid, rolsuper AS usesuper,
    rolcreatedb AS usecreatedb FROM pg.pg_roles;
CREATE VIEW pg.pg_settings AS SELECT name, setting, NULL::VARCHAR AS unit, '' AS category,
    '' AS short_desc, 'user' AS context, 'string' AS vartype, 'session' AS source FROM acid_settings;
CREATE VIEW pg.pg_tables AS SELECT database AS schemaname, name AS tablename,
    pg.user_name() AS tableowner, NULL::VARCHAR AS tablespace, false AS hasindexes,
    false AS hasrules, false AS hastriggers, false AS rowsecurity FROM acid_tables;
CREATE VIEW pg.pg_am AS SELECT 2::BIGINT AS oid, 'heap' AS amname, '-' AS amhandler, 't' AS amtype;
CREATE VIEW pg.pg_tablespace AS SELECT 1663::BIGINT AS oid, 'pg_default' AS spcname,
    10::BIGINT AS spcowner, NULL::VARCHAR AS spcacl, NULL::VARCHAR[] AS spcoptions;
CREATE VIEW pg.pg_stat_user_tables AS SELECT oid AS relid, database AS schemaname, name AS relname,
    NULL::BIGINT AS n_live_tup, NULL::BIGINT AS n_dead_tup FROM acid_tables;
CREATE VIEW information.schemata AS SELECT 'acid' AS catalog_name, nspname AS schema_name,
    pg.user_name() AS schema_owner, NULL::VARCHAR AS sql_path FROM pg.pg_namespace;
CREATE VIEW information.tables AS SELECT 'acid' AS table_catalog, database AS table_schema,
    name AS table_name, 'BASE TABLE' AS table_type, NULL::VARCHAR AS self_referencing_column_name,
    'NO' AS is_insertable_into, 'NO' AS is_typed FROM acid_tables;
CREATE VIEW information.columns AS SELECT 'acid' AS table_catalog, t.database AS table_schema,
    t.name AS table_name, c.name AS column_name, c.num AS ordinal_position,
    NULL::VARCHAR AS column_default, 'YES' AS is_nullable, c.sqltype AS data_type,
    CASE WHEN typid IN (1042, 1043) AND typmod > 4 THEN typmod - 4 END AS character_maximum_length,
    CASE WHEN typid = 1700 AND typmod > 4 THEN (typmod - 4) >> 16 WHEN typid = 21 THEN 16
        WHEN typid = 23 THEN 32 WHEN typid = 20 THEN 64 WHEN typid = 700 THEN 24
        WHEN typid = 701 THEN 53 END AS numeric_precision,
    CASE WHEN typid = 1700 AND typmod > 4 THEN (typmod - 4) & 65535
        WHEN typid IN (20, 21, 23) THEN 0 END AS numeric_scale,
    CASE WHEN typid IN (1114, 1184) THEN 6 END AS datetime_precision, 'acid' AS udt_catalog,
    'pg_catalog' AS udt_schema, c.type AS udt_name, 'NO' AS is_identity, 'NEVER' AS is_generated,
    'NO' AS is_updatable FROM acid_columns AS c JOIN acid_tables AS t ON t.oid = c.relid;
CREATE VIEW information.table_privileges AS SELECT pg.user_name() AS grantor,
    pg.user_name() AS grantee, 'acid' AS table_catalog, database AS table_schema,
    name AS table_name, 'SELECT' AS privilege_type, 'NO' AS is_grantable,
    'NO' AS with_hierarchy FROM acid_tables;
-- What there is none of.
CREATE VIEW pg.pg_attrdef AS SELECT NULL::BIGINT AS oid, NULL::BIGINT AS adrelid, NULL::SMALLINT
    AS adnum, NULL::VARCHAR AS adbin WHERE false;
CREATE VIEW pg.pg_index AS SELECT NULL::BIGINT AS indexrelid, NULL::BIGINT AS indrelid,
    NULL::SMALLINT AS indnatts, NULL::SMALLINT AS indnkeyatts, NULL::BOOLEAN AS indisunique,
    NULL::BOOLEAN AS indnullsnotdistinct, NULL::BOOLEAN AS indisprimary, NULL::BOOLEAN AS
    indisexclusion, NULL::BOOLEAN AS indimmediate, NULL::BOOLEAN AS indisclustered, NULL::BOOLEAN AS
    indisvalid, NULL::BOOLEAN AS indcheckxmin, NULL::BOOLEAN AS indisready, NULL::BOOLEAN AS
    indislive, NULL::BOOLEAN AS indisreplident, NULL::BIGINT[] AS indkey, NULL::BIGINT[] AS
    indcollation, NULL::BIGINT[] AS indclass, NULL::BIGINT[] AS indoption, NULL::VARCHAR AS indexprs,
    NULL::VARCHAR AS indpred WHERE false;
CREATE VIEW pg.pg_constraint AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS conname, NULL::BIGINT
    AS connamespace, NULL::VARCHAR AS contype, NULL::BOOLEAN AS condeferrable, NULL::BOOLEAN AS
    condeferred, NULL::BOOLEAN AS convalidated, NULL::BIGINT AS conrelid, NULL::BIGINT AS contypid,
    NULL::BIGINT AS conindid, NULL::BIGINT AS conparentid, NULL::BIGINT AS confrelid, NULL::VARCHAR AS
    confupdtype, NULL::VARCHAR AS confdeltype, NULL::VARCHAR AS confmatchtype, NULL::BOOLEAN AS
    conislocal, NULL::SMALLINT AS coninhcount, NULL::BOOLEAN AS connoinherit, NULL::BIGINT[] AS
    conkey, NULL::BIGINT[] AS confkey, NULL::BIGINT[] AS conpfeqop, NULL::BIGINT[] AS conppeqop,
    NULL::BIGINT[] AS conffeqop, NULL::BIGINT[] AS confdelsetcols, NULL::BIGINT[] AS conexclop,
    NULL::VARCHAR AS conbin WHERE false;
CREATE VIEW pg.pg_inherits AS SELECT NULL::BIGINT AS inhrelid, NULL::BIGINT AS inhparent,
    NULL::SMALLINT AS inhseqno, NULL::BOOLEAN AS inhdetachpending WHERE false;
CREATE VIEW pg.pg_partitioned_table AS SELECT NULL::BIGINT AS partrelid, NULL::VARCHAR AS
    partstrat, NULL::SMALLINT AS partnatts, NULL::BIGINT AS partdefid, NULL::BIGINT[] AS partattrs
    WHERE false;
CREATE VIEW pg.pg_proc AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS proname, NULL::BIGINT AS
    pronamespace, NULL::BIGINT AS proowner, NULL::BIGINT AS prolang, NULL::BIGINT AS provariadic,
    NULL::VARCHAR AS prokind, NULL::BOOLEAN AS prosecdef, NULL::BOOLEAN AS proleakproof, NULL::BOOLEAN
    AS proisstrict, NULL::BOOLEAN AS proretset, NULL::VARCHAR AS provolatile, NULL::VARCHAR AS
    proparallel, NULL::SMALLINT AS pronargs, NULL::SMALLINT AS pronargdefaults, NULL::BIGINT AS
    prorettype, NULL::BIGINT[] AS proargtypes, NULL::BIGINT[] AS proallargtypes, NULL::VARCHAR[] AS
    proargmodes, NULL::VARCHAR[] AS proargnames, NULL::VARCHAR AS prosrc, NULL::VARCHAR AS proacl
    WHERE false;
CREATE VIEW pg.pg_language AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS lanname, NULL::BIGINT
    AS lanowner, NULL::BOOLEAN AS lanispl, NULL::BOOLEAN AS lanpltrusted WHERE false;
CREATE VIEW pg.pg_trigger AS SELECT NULL::BIGINT AS oid, NULL::BIGINT AS tgrelid, NULL::BIGINT AS
    tgparentid, NULL::VARCHAR AS tgname, NULL::BIGINT AS tgfoid, NULL::SMALLINT AS tgtype,
    NULL::VARCHAR AS tgenabled, NULL::BOOLEAN AS tgisinternal, NULL::BIGINT AS tgconstrrelid,
    NULL::BIGINT AS tgconstrindid, NULL::BIGINT AS tgconstraint, NULL::BOOLEAN AS tgdeferrable,
    NULL::BOOLEAN AS tginitdeferred, NULL::SMALLINT AS tgnargs, NULL::VARCHAR AS tgqual WHERE false;
CREATE VIEW pg.pg_rewrite AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS rulename, NULL::BIGINT
    AS ev_class, NULL::VARCHAR AS ev_type, NULL::VARCHAR AS ev_enabled, NULL::BOOLEAN AS is_instead
    WHERE false;
CREATE VIEW pg.pg_policy AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS polname, NULL::BIGINT AS
    polrelid, NULL::VARCHAR AS polcmd, NULL::BOOLEAN AS polpermissive, NULL::BIGINT[] AS polroles,
    NULL::VARCHAR AS polqual, NULL::VARCHAR AS polwithcheck WHERE false;
CREATE VIEW pg.pg_publication AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS pubname,
    NULL::BIGINT AS pubowner, NULL::BOOLEAN AS puballtables, NULL::BOOLEAN AS pubinsert, NULL::BOOLEAN
    AS pubupdate, NULL::BOOLEAN AS pubdelete, NULL::BOOLEAN AS pubtruncate, NULL::BOOLEAN AS
    pubviaroot WHERE false;
CREATE VIEW pg.pg_publication_rel AS SELECT NULL::BIGINT AS oid, NULL::BIGINT AS prpubid,
    NULL::BIGINT AS prrelid, NULL::VARCHAR AS prqual, NULL::BIGINT[] AS prattrs WHERE false;
CREATE VIEW pg.pg_publication_namespace AS SELECT NULL::BIGINT AS oid, NULL::BIGINT AS pnpubid,
    NULL::BIGINT AS pnnspid WHERE false;
CREATE VIEW pg.pg_publication_tables AS SELECT NULL::VARCHAR AS pubname, NULL::VARCHAR AS
    schemaname, NULL::VARCHAR AS tablename WHERE false;
CREATE VIEW pg.pg_subscription AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS subname WHERE
    false;
CREATE VIEW pg.pg_statistic_ext AS SELECT NULL::BIGINT AS oid, NULL::BIGINT AS stxrelid,
    NULL::VARCHAR AS stxname, NULL::BIGINT AS stxnamespace, NULL::BIGINT AS stxowner, NULL::SMALLINT
    AS stxstattarget, NULL::BIGINT[] AS stxkeys, NULL::VARCHAR[] AS stxkind, NULL::VARCHAR AS stxexprs
    WHERE false;
CREATE VIEW pg.pg_collation AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS collname, NULL::BIGINT
    AS collnamespace, NULL::BIGINT AS collowner, NULL::VARCHAR AS collprovider, NULL::BOOLEAN AS
    collisdeterministic, NULL::SMALLINT AS collencoding, NULL::VARCHAR AS collcollate, NULL::VARCHAR
    AS collctype, NULL::VARCHAR AS colliculocale WHERE false;
CREATE VIEW pg.pg_enum AS SELECT NULL::BIGINT AS oid, NULL::BIGINT AS enumtypid, NULL::SMALLINT AS
    enumsortorder, NULL::VARCHAR AS enumlabel WHERE false;
CREATE VIEW pg.pg_range AS SELECT NULL::BIGINT AS rngtypid, NULL::BIGINT AS rngsubtype,
    NULL::BIGINT AS rngmultitypid, NULL::BIGINT AS rngcollation, NULL::BIGINT AS rngsubopc WHERE
    false;
CREATE VIEW pg.pg_opclass AS SELECT NULL::BIGINT AS oid, NULL::BIGINT AS opcmethod, NULL::VARCHAR
    AS opcname, NULL::BIGINT AS opcnamespace, NULL::BOOLEAN AS opcdefault, NULL::BIGINT AS opcintype
    WHERE false;
CREATE VIEW pg.pg_sequence AS SELECT NULL::BIGINT AS seqrelid, NULL::BIGINT AS seqtypid,
    NULL::BIGINT AS seqstart, NULL::BIGINT AS seqincrement, NULL::BIGINT AS seqmax, NULL::BIGINT AS
    seqmin, NULL::BIGINT AS seqcache, NULL::BOOLEAN AS seqcycle WHERE false;
CREATE VIEW pg.pg_depend AS SELECT NULL::BIGINT AS classid, NULL::BIGINT AS objid, NULL::SMALLINT
    AS objsubid, NULL::BIGINT AS refclassid, NULL::BIGINT AS refobjid, NULL::SMALLINT AS refobjsubid,
    NULL::VARCHAR AS deptype WHERE false;
CREATE VIEW pg.pg_shdescription AS SELECT NULL::BIGINT AS objoid, NULL::BIGINT AS classoid,
    NULL::VARCHAR AS description WHERE false;
CREATE VIEW pg.pg_seclabel AS SELECT NULL::BIGINT AS objoid, NULL::BIGINT AS classoid,
    NULL::SMALLINT AS objsubid, NULL::VARCHAR AS provider, NULL::VARCHAR AS label WHERE false;
CREATE VIEW pg.pg_auth_members AS SELECT NULL::BIGINT AS roleid, NULL::BIGINT AS member,
    NULL::BIGINT AS grantor, NULL::BOOLEAN AS admin_option WHERE false;
CREATE VIEW pg.pg_db_role_setting AS SELECT NULL::BIGINT AS setdatabase, NULL::BIGINT AS setrole,
    NULL::VARCHAR[] AS setconfig WHERE false;
CREATE VIEW pg.pg_extension AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS extname, NULL::BIGINT
    AS extowner, NULL::BIGINT AS extnamespace, NULL::BOOLEAN AS extrelocatable, NULL::VARCHAR AS
    extversion WHERE false;
CREATE VIEW pg.pg_foreign_table AS SELECT NULL::BIGINT AS ftrelid, NULL::BIGINT AS ftserver,
    NULL::VARCHAR[] AS ftoptions WHERE false;
CREATE VIEW pg.pg_foreign_server AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS srvname,
    NULL::BIGINT AS srvowner, NULL::BIGINT AS srvfdw WHERE false;
CREATE VIEW pg.pg_matviews AS SELECT NULL::VARCHAR AS schemaname, NULL::VARCHAR AS matviewname,
    NULL::VARCHAR AS matviewowner, NULL::VARCHAR AS definition WHERE false;
CREATE VIEW pg.pg_views AS SELECT NULL::VARCHAR AS schemaname, NULL::VARCHAR AS viewname,
    NULL::VARCHAR AS viewowner, NULL::VARCHAR AS definition WHERE false;
CREATE VIEW pg.pg_indexes AS SELECT NULL::VARCHAR AS schemaname, NULL::VARCHAR AS tablename,
    NULL::VARCHAR AS indexname, NULL::VARCHAR AS tablespace, NULL::VARCHAR AS indexdef WHERE false;
CREATE VIEW pg.pg_sequences AS SELECT NULL::VARCHAR AS schemaname, NULL::VARCHAR AS sequencename,
    NULL::VARCHAR AS sequenceowner WHERE false;
CREATE VIEW pg.pg_locks AS SELECT NULL::VARCHAR AS locktype, NULL::BIGINT AS database,
    NULL::BIGINT AS relation, NULL::VARCHAR AS mode, NULL::BOOLEAN AS granted, NULL::BIGINT AS pid
    WHERE false;
CREATE VIEW pg.pg_stat_activity AS SELECT NULL::BIGINT AS datid, NULL::VARCHAR AS datname,
    NULL::BIGINT AS pid, NULL::VARCHAR AS usename, NULL::VARCHAR AS application_name, NULL::VARCHAR AS
    state, NULL::VARCHAR AS query WHERE false;
CREATE VIEW pg.pg_event_trigger AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS evtname WHERE
    false;
CREATE VIEW pg.pg_cast AS SELECT NULL::BIGINT AS oid, NULL::BIGINT AS castsource, NULL::BIGINT AS
    casttarget, NULL::BIGINT AS castfunc, NULL::VARCHAR AS castcontext WHERE false;
CREATE VIEW pg.pg_operator AS SELECT NULL::BIGINT AS oid, NULL::VARCHAR AS oprname, NULL::BIGINT
    AS oprnamespace, NULL::BIGINT AS oprleft, NULL::BIGINT AS oprright, NULL::BIGINT AS oprresult
    WHERE false;
CREATE VIEW pg.pg_aggregate AS SELECT NULL::BIGINT AS aggfnoid, NULL::VARCHAR AS aggkind WHERE
    false;
CREATE VIEW information.views AS SELECT NULL::VARCHAR AS table_catalog, NULL::VARCHAR AS
    table_schema, NULL::VARCHAR AS table_name, NULL::VARCHAR AS view_definition, NULL::VARCHAR AS
    check_option, NULL::VARCHAR AS is_updatable WHERE false;
CREATE VIEW information.key_column_usage AS SELECT NULL::VARCHAR AS constraint_catalog,
    NULL::VARCHAR AS constraint_schema, NULL::VARCHAR AS constraint_name, NULL::VARCHAR AS
    table_catalog, NULL::VARCHAR AS table_schema, NULL::VARCHAR AS table_name, NULL::VARCHAR AS
    column_name, NULL::BIGINT AS ordinal_position, NULL::BIGINT AS position_in_unique_constraint WHERE
    false;
CREATE VIEW information.table_constraints AS SELECT NULL::VARCHAR AS constraint_catalog,
    NULL::VARCHAR AS constraint_schema, NULL::VARCHAR AS constraint_name, NULL::VARCHAR AS
    table_catalog, NULL::VARCHAR AS table_schema, NULL::VARCHAR AS table_name, NULL::VARCHAR AS
    constraint_type, NULL::VARCHAR AS is_deferrable, NULL::VARCHAR AS initially_deferred WHERE false;
CREATE VIEW information.referential_constraints AS SELECT NULL::VARCHAR AS constraint_catalog,
    NULL::VARCHAR AS constraint_schema, NULL::VARCHAR AS constraint_name, NULL::VARCHAR AS
    unique_constraint_catalog, NULL::VARCHAR AS unique_constraint_schema, NULL::VARCHAR AS
    unique_constraint_name, NULL::VARCHAR AS match_option, NULL::VARCHAR AS update_rule, NULL::VARCHAR
    AS delete_rule WHERE false;
CREATE VIEW information.constraint_column_usage AS SELECT NULL::VARCHAR AS table_catalog,
    NULL::VARCHAR AS table_schema, NULL::VARCHAR AS table_name, NULL::VARCHAR AS column_name,
    NULL::VARCHAR AS constraint_catalog, NULL::VARCHAR AS constraint_schema, NULL::VARCHAR AS
    constraint_name WHERE false;
CREATE VIEW information.check_constraints AS SELECT NULL::VARCHAR AS constraint_catalog,
    NULL::VARCHAR AS constraint_schema, NULL::VARCHAR AS constraint_name, NULL::VARCHAR AS
    check_clause WHERE false;
CREATE VIEW information.routines AS SELECT NULL::VARCHAR AS specific_schema, NULL::VARCHAR AS
    specific_name, NULL::VARCHAR AS routine_schema, NULL::VARCHAR AS routine_name, NULL::VARCHAR AS
    routine_type, NULL::VARCHAR AS data_type WHERE false;
CREATE VIEW information.parameters AS SELECT NULL::VARCHAR AS specific_schema, NULL::VARCHAR AS
    specific_name, NULL::BIGINT AS ordinal_position, NULL::VARCHAR AS parameter_name, NULL::VARCHAR AS
    data_type WHERE false;
CREATE VIEW information.sequences AS SELECT NULL::VARCHAR AS sequence_catalog, NULL::VARCHAR AS
    sequence_schema, NULL::VARCHAR AS sequence_name, NULL::VARCHAR AS data_type WHERE false;
CREATE VIEW information.role_table_grants AS SELECT NULL::VARCHAR AS grantor, NULL::VARCHAR AS
    grantee, NULL::VARCHAR AS table_schema, NULL::VARCHAR AS table_name, NULL::VARCHAR AS
    privilege_type WHERE false;
CREATE VIEW information.triggers AS SELECT NULL::VARCHAR AS trigger_schema, NULL::VARCHAR AS
    trigger_name, NULL::VARCHAR AS event_object_schema, NULL::VARCHAR AS event_object_table WHERE
    false;
CREATE VIEW information.element_types AS SELECT NULL::VARCHAR AS object_schema, NULL::VARCHAR AS
    object_name, NULL::VARCHAR AS object_type, NULL::VARCHAR AS collection_type_identifier,
    NULL::VARCHAR AS data_type WHERE false;
CREATE VIEW information.domains AS SELECT NULL::VARCHAR AS domain_schema, NULL::VARCHAR AS
    domain_name, NULL::VARCHAR AS data_type WHERE false;
