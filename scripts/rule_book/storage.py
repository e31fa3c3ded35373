"""F: files and directories of tables."""

from __future__ import annotations

from scripts.rule_book.rule import Group, Rule

_NAMES = ("layout.names",)
_SELECTION = ("scan.selection",)

GROUP = Group(
    "F",
    "Files",
    "Tables have the layout of Hive ACID version 2. A directory of a table, or of one of its"
    " partitions, holds bases (all rows up to a write id), deltas (inserted rows) and"
    " delete_deltas (keys of deleted rows). The classes AcidUtils, OrcRecordUpdater, BucketCodec"
    " and ObjectInspectorUtils of Apache Hive do the same.",
    (
        Rule(
            "F1",
            "Directories are called `base_N`, `delta_A_B` or `delete_delta_A_B` with an optional"
            " statement and an optional `_v` and transaction id; numbers are compared as numbers"
            " whatever their width, and any other name with these prefixes is an error that names"
            " the path.",
            _NAMES,
            (
                "test_F1_any_number_of_digits_is_read",
                "test_F1_malformed_directory_names_are_refused_with_their_path",
            ),
        ),
        Rule(
            "F2",
            "Data files are called `bucket_N`, with an attempt behind it in Hive 4, or `000000_0`"
            " where they have no ACID columns; whatever begins with `_` or `.` is never data.",
            _NAMES,
            ("test_F2_bucket_files", "test_F2_original_files", "test_F2_hidden_names"),
        ),
        Rule(
            "F3",
            "A base directory without a data file says that everything before it is gone;"
            " `_metadata_acid` in it tells whether Hive 3 compacted or truncated.",
            ("layout.file_entries:EntityListing",),
            ("test_F3_an_empty_base_directory_hides_what_is_older",),
        ),
        Rule(
            "F4",
            "A partition's directory is called `column=value` for each partition column, escaped"
            " as Hive escapes; NULL and the empty string are `__HIVE_DEFAULT_PARTITION__`."
            " A value that a statement gives is written as Spark writes it, so that each has one"
            " directory; the values of directories are never normalised.",
            ("layout.partition_names",),
            (
                "test_F4_values_of_directories",
                "test_F4_escaped_characters",
                "test_F4_a_value_has_one_directory",
            ),
        ),
        Rule(
            "F5",
            "A table takes UPDATE and DELETE unless its property `transactional_properties` is"
            " `insert_only`.",
            ("layout.formats:is_insert_only",),
            ("test_F5_a_property_makes_a_table_insert_only",),
        ),
        Rule(
            "F6",
            "A file has six columns: operation, originalTransaction, bucket, rowId,"
            " currentTransaction and row; an insert event has the values in `row`, a delete event"
            " has none there, and an update is one of each.",
            ("layout.schema",),
            ("test_F6_delete_events_have_no_row",),
        ),
        Rule(
            "F7",
            "Events in a file ascend by originalTransaction, bucket and rowId; a file that does"
            " not is never published.",
            ("orc.writer:AcidWriter",),
            (
                "test_F7_keys_that_do_not_ascend_are_refused",
                "test_P15_F7_a_file_whose_rows_are_out_of_order_is_never_published",
            ),
        ),
        Rule(
            "F8",
            "The footer of each file has Hive's keys: `hive.acid.key.index` (the last key of each"
            " stripe), `hive.acid.stats` and `hive.acid.version`.",
            ("layout.schema", "orc.tail"),
            ("test_F8_user_metadata_has_hives_exact_forms",),
        ),
        Rule(
            "F9",
            "Of a file that a streaming writer has not closed only those bytes count that its"
            " `_flush_length` file names.",
            ("scan.source_files:flush_length",),
            ("test_F9_a_streaming_file_counts_up_to_its_side_file",),
        ),
        Rule(
            "F10",
            "The bucket property holds the codec's version, the bucket number and the statement"
            " id; numbers above 4095 are refused when they are written.",
            ("layout.schema",),
            ("test_F10_vectors", "test_F10_out_of_range_is_refused_at_write_time"),
        ),
        Rule(
            "F11",
            "Rows of a bucketed table lie in the bucket that Hive's hash gives, by the table's"
            " `bucketing_version`.",
            ("layout.bucketing",),
            (
                "test_F11_vectors_of_version_2",
                "test_F11_version_1_is_javas_hash_code",
            ),
        ),
        Rule(
            "F12",
            "A snapshot reads the newest base that it can use and the deltas above it, of"
            " directories with overlapping ranges the widest; the order of the listing does not"
            " matter.",
            ("scan.selection", "scan.shadowing"),
            ("test_F12_what_a_snapshot_sees", "test_F12_F16_rows_of_a_snapshot"),
        ),
        Rule(
            "F13",
            "Of a delta that begins at or below the base only rows above the base are read.",
            _SELECTION,
            ("test_F13_rows_below_a_straddled_base_are_dropped",),
        ),
        Rule(
            "F14",
            "A snapshot that is older than the oldest compacted base raises NotEnoughHistory"
            " instead of missing rows.",
            _SELECTION,
            ("test_F14_not_enough_history",),
        ),
        Rule(
            "F15",
            "Rows of files without ACID columns have the write id of their directory (0 in the"
            " table's root) and the row ids of their position, counted on through the files of"
            " their bucket in the text order of the paths.",
            ("scan.source_files",),
            (
                "test_F15_row_ids_of_originals_run_on_per_bucket_in_text_order",
                "test_F15_identities_of_rows_in_files_without_acid_columns",
            ),
        ),
        Rule(
            "F16",
            "A row is deleted by an event with the same originalTransaction, bucket and rowId,"
            " and such an event counts if its own currentTransaction is valid for the snapshot.",
            ("scan.deletes",),
            ("test_F12_F16_rows_of_a_snapshot", "test_F16_an_aborted_delete_deletes_nothing"),
        ),
        Rule(
            "F17",
            "Files of an insert-only table have the table's own format and no ACID columns, and a"
            " directory of it is visible as a whole or not at all.",
            ("layout.formats", "scan.selection:select"),
            ("test_F17_insert_only_directories_count_as_a_whole_or_not_at_all",),
        ),
        Rule(
            "F18",
            "Columns are matched by name, whatever their case or order; a column that a file lacks"
            " is NULL, and types only widen.",
            ("storage.arrow_types:conform", "tables.declaration"),
            ("test_F18_added_columns_are_null_in_older_rows_and_order_is_by_name",),
        ),
        Rule(
            "F19",
            "Predicates skip rows of insert files only, never delete events, and no row that they"
            " accept, whatever its type and whoever wrote the statistics.",
            ("engine.spark.live_rows", "scan.file_pruning"),
            (
                "test_F19_a_predicate_never_filters_delete_events",
                "test_F19_a_filter_of_the_query_skips_row_groups",
                "test_F19_spark_leaves_out_no_text",
                "test_F19_spark_leaves_out_no_row_of_any_type",
                "test_F19_the_local_engine_leaves_out_no_row_of_any_type",
            ),
        ),
        Rule(
            "F20",
            "A directory is never renamed onto one that exists, and an ACID directory inside"
            " another is not read.",
            ("storage.durability",),
            (
                "test_P27_F20_a_directory_is_never_replaced",
                "test_F20_nested_acid_directories_and_hidden_files_are_ignored",
            ),
        ),
        Rule(
            "F21",
            "A compaction leaves the identity and the write ids of every row as they are; a base"
            " is made even without rows, a delta only with some.",
            ("compaction.rewrite:rewrite_bucket", "compaction.execution:_finished"),
            (
                "test_F21_a_minor_compaction_keeps_both_kinds_of_events",
                "test_F21_a_major_compaction_keeps_live_rows_with_their_identity",
            ),
        ),
        Rule(
            "F22",
            "Files of ACID version 1 (update events, or deletes among inserts) are refused.",
            ("scan.deletes:require_operation",),
            ("test_F22_events_of_acid_version_1_are_refused",),
        ),
        Rule(
            "F23",
            "Names of files are taken from what is recorded or listed, never built; one that is"
            " listed and then gone is an error.",
            ("scan.data_files", "scan.deletes:load_keys"),
            ("test_F23_names_come_from_the_listing_with_or_without_attempt",),
        ),
        Rule(
            "F24",
            "A scan of ACID files decodes the ACID columns and tests each row by them, unless the"
            " recorded statistics show that all rows are inserts with complete keys: then it"
            " decodes what a test needs. Spark's own reader decodes all six, since ORC reads"
            " fewer of them wrongly.",
            ("engine.spark.live_rows", "engine.spark.acid_columns"),
            (
                "test_F24_the_plan_reads_the_files_by_our_format_and_only_the_columns_of_the_query",
                "test_F24_a_file_of_other_events_or_incomplete_keys_is_an_error",
                "test_F24_count_and_id_only_reads_keep_the_six_columns",
                "test_F24_a_file_without_acid_columns_is_an_error_and_never_rows_of_null",
                "test_F24_a_file_that_is_not_all_complete_inserts_is_never_proven",
            ),
        ),
    ),
)
