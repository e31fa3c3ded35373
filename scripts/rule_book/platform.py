"""P: what the platform adds to Hive, or does in another way."""

from __future__ import annotations

from scripts.rule_book.rule import Group, Rule

GROUP = Group(
    "P",
    "The platform",
    "Where Hive says nothing, has a fault, or relies on machinery that is not here, these rules"
    " hold; they go before all others.",
    (
        Rule(
            "P1",
            "One loop in one metastore process decides one request after another; what that"
            " makes needless of Hive, and what is not built, is refused by name or accepted"
            " without effect.",
            (
                "metastore.rules.txns",
                "metastore.server.server",
            ),
            ("test_P1_types_that_are_not_built_are_refused_by_name",),
        ),
        Rule(
            "P2",
            "A commit succeeds only if the transaction is open when the metastore handles it:"
            " of the reaper and a commit the first one wins, and the other is told so.",
            (
                "metastore.rules.commits",
                "metastore.rules.housekeeping",
            ),
            (
                "test_P2_the_loser_of_reap_and_commit_learns_who_won",
                "test_P2_a_reaped_compaction_does_not_publish",
            ),
        ),
        Rule(
            "P3",
            "Nothing is answered before it is durable, and a client whose reply was lost can"
            " ask for the outcome for `acid.outcome.retention`; if it cannot learn it, it raises"
            ' OutcomeUnknown, which does not mean "not committed".',
            (
                "metastore.server.group_commit",
                "metastore.log.local",
                "metastore.client.link",
            ),
            (
                "test_P3_every_invariant_holds_after_every_step",
                "test_P3_kills_under_eight_writers_lose_split_and_repeat_no_commit",
                "test_P3_an_outcome_that_cannot_be_learnt_is_reported_as_unknown",
            ),
        ),
        Rule(
            "P4",
            "An aborted write id never counts as committed: it is remembered as long as a file"
            " of it may exist or appear, and whoever was aborted can publish nothing more.",
            (
                "metastore.rules.housekeeping",
                "write.publishing:WriteTarget",
            ),
            (
                "test_P4_an_aborted_write_id_outlives_its_transaction",
                "test_P4_a_writer_that_outlived_its_run_can_neither_publish_nor_commit",
            ),
        ),
        Rule(
            "P5",
            "The high watermark of a table is the highest write id that a transaction at or"
            " below the list's high watermark ever got, also if that transaction is forgotten: a"
            " committed row stays visible.",
            ("metastore.rules.snapshots",),
            (
                "test_P5_a_purged_mapping_stays_visible",
                "test_S10_P5_is_not_how_the_high_watermark_is_found",
            ),
        ),
        Rule(
            "P6",
            "Write ids are given with the locks, so that they are in the order of the"
            " overwrites; a commit below a committed overwrite of the same entity is a"
            " WriteConflict. A transaction writes nothing more into what it overwrote, and"
            " overwrites nothing that it has written.",
            (
                "transactions.conflicts",
                "metastore.rules.commits",
                "metastore.rules.locking:grant",
            ),
            (
                "test_P6_an_insert_below_a_committed_overwrite_conflicts",
                "test_P6_overwrite_then_write_of_one_entity",
                "test_P6_the_overwrite_is_refused_before_it_writes_and_the_rest_counts",
                "test_P6_write_ids_come_with_the_locks",
            ),
        ),
        Rule(
            "P7",
            "The metastore tells its clients how often to send heartbeats, always below the"
            " timeout, and after a restart every open transaction gets one whole timeout.",
            (
                "metastore.rules.timers:wake",
                "base.config:Settings.heartbeat_interval",
            ),
            (
                "test_P7_a_restart_gives_one_fresh_timeout",
                "test_P7_the_heartbeat_stays_below_the_timeout",
            ),
        ),
        Rule(
            "P8",
            "A commit reports what it published (directory, operation, rows, bytes, files), and"
            " the metastore keeps that with tables, transactions and history in tables that"
            " people can read: in a snapshot as of its position, by `acid metastore sql` as of now."
            " A snapshot of a newer version is refused.",
            (
                "metastore.server.stored_kinds",
                "metastore.server.state_file",
                "metastore.server.state_tables",
                "metastore.rules.candidates",
            ),
            (
                "test_P8_entities_come_from_reports",
                "test_P8_tables_change_only_by_a_migration",
                "test_P8_a_query_sees_memory_and_the_snapshot_as_one",
                "test_P8_a_newer_schema_is_refused",
            ),
        ),
        Rule(
            "P9",
            "Every setting of Hive is honoured, accepted without effect for a stated reason, or"
            " refused; an Initiator or Cleaner runs in one process at a time.",
            (
                "base.config",
                "services.lease",
            ),
            (
                "test_P9_every_setting_is_in_one_class",
                "test_P9_an_honoured_setting_is_read_somewhere",
                "test_P9_one_holds_the_lease_and_a_dead_holder_loses_it",
            ),
        ),
        Rule(
            "P10",
            "The metastore's log lies in a directory on a local disk, in PostgreSQL or in a bucket;"
            " a warehouse that is no local directory needs `ACID_METASTORE`. A log never holds two"
            " batches at one position, so of several processes only the one that leads commits. It"
            " answers only while its lease lasts, and another takes over with every acknowledged"
            " commit.",
            (
                "base.location:Location.of",
                "metastore.log.contract",
                "metastore.server.election",
                "metastore.__main__:serve_log",
            ),
            (
                "test_P10_network_file_systems_are_refused",
                "test_P10_of_two_writers_one_goes_on",
                "test_P10_a_leader_that_slept_through_a_snapshot_appends_nothing",
                "test_P10_every_epoch_has_one_leader",
                "test_P10_leaders_on_a_failing_store",
            ),
        ),
        Rule(
            "P11",
            "Every read has a snapshot that is kept alive; who asks for a table for the first"
            " time after the Cleaner removed what that snapshot needs gets SnapshotExpired, not"
            " fewer rows. A lease is used for another read only if a new snapshot would see the"
            " same declarations, rows and directories.",
            ("metastore.rules.lock_requests", "metastore.rules.reading", "handles.held_snapshot"),
            (
                "test_P11_a_change_of_what_is_seen_ends_the_use_of_a_lease",
                "test_P11_a_lease_that_is_still_used_sees_what_a_new_one_sees",
                "test_P11_each_read_sees_all_that_was_committed_before",
                "test_P11_first_asked_after_a_cleaning",
                "test_P11_a_table_first_asked_for_after_a_cleaning_has_all_its_files",
            ),
        ),
        Rule(
            "P12",
            "A DataFrame is read under a lease, a read-only transaction of the warehouse handle"
            " that keeps its files; it ends with its block, `release()`, `close()`, the process,"
            " or `acid.read.lease.max` after the last read, and a later action raises"
            " SnapshotExpired.",
            (
                "handles.held_snapshot",
                "metastore.rules.housekeeping:end_leases",
                "engine.spark.failures",
            ),
            (
                "test_P12_a_frame_keeps_its_rows_through_update_compaction_and_cleaning",
                "test_P12_a_lease_ends_after_the_last_read",
            ),
        ),
        Rule(
            "P13",
            "A read at a given list of write ids returns the rows of that state, or raises"
            " NotEnoughHistory if its files are gone.",
            (
                "handles.snapshot_view",
                "scan.selection",
            ),
            (
                "test_P13_a_write_id_list_reads_an_older_state_while_its_files_are_there",
                "test_P13_an_explicit_snapshot_whose_files_are_gone",
            ),
        ),
        Rule(
            "P14",
            "The identity of a row counts within its partition's directory: a delete in one"
            " partition touches no other.",
            ("engine.spark.live_rows", "engine.spark.deleted_rows"),
            (
                "test_P14_a_deleted_key_deletes_only_in_its_own_partition",
                "test_P14_identities_are_per_partition",
                "test_P14_survivors_are_the_rows_whose_whole_key_is_not_deleted",
            ),
        ),
        Rule(
            "P15",
            "Row ids are unique and ascend within a file; they may have gaps. A scan takes them"
            " from the positions of rows only where the recorded keys have none and the file has a"
            " key index, which writers make for ascending keys.",
            (
                "engine.spark.write:arranged",
                "write.task_files",
                "scan.event_keys",
            ),
            (
                "test_P15_row_ids_are_unique_and_ascend_in_every_file",
                "test_P15_gaps_between_row_ids_are_no_damage",
                "test_P15_row_ids_follow_from_positions_only_where_keys_are_recorded_and_known_to_ascend",
            ),
        ),
        Rule(
            "P16",
            "Spark gets partition values from the names of directories as the driver parsed"
            " them; every way of scanning gives equal rows, and a filter on a partition column"
            " opens only its files.",
            ("engine.spark.live_rows", "engine.spark.spark_readers"),
            (
                "test_P16_partition_values_are_those_of_the_directories",
                "test_P16_spark_opens_only_the_partitions_that_a_filter_or_a_join_leaves",
                "test_P16_P14_every_way_to_scan_gives_the_same_rows",
                "test_P16_a_filter_on_a_partition_opens_only_its_files",
            ),
        ),
        Rule(
            "P17",
            "A TIMESTAMP is a wall clock, whatever the time zone of a machine or of a file's"
            " writer, and a Spark session in another zone than UTC is refused.",
            (
                "engine.spark.session",
                "engine.spark.spark_types",
                "orc.writer_zones",
            ),
            (
                "test_P17_a_session_in_another_time_zone_is_refused",
                "test_P17_timestamps_are_wall_clocks",
                "test_P17_the_zone_of_the_driver_moves_no_timestamp",
                "test_P17_timestamps_of_all_zones_are_those_of_java",
            ),
        ),
        Rule(
            "P18",
            "A query reads all its tables at one snapshot, and nothing that it leaves in the"
            " session serves a later one.",
            ("engine.spark.query",),
            (
                "test_P18_a_query_keeps_one_snapshot_of_all_its_tables",
                "test_P18_nothing_is_left_in_the_session",
                "test_P18_a_query_names_frames_that_nothing_else_sees",
            ),
        ),
        Rule(
            "P19",
            "Files are written into `_tmp_` and the transaction's id, each attempt of a task under"
            " names of its own, counted, compared with the counts of their tasks, and then renamed"
            " into place; a statement that fails leaves at most that directory, which goes when its"
            " transaction has ended.",
            (
                "write.task_files",
                "engine.spark.write",
                "storage.durability",
                "compaction.cleaning_plan:_judge_temporary",
            ),
            (
                "test_P19_a_count_that_differs_publishes_nothing",
                "test_P19_attempts_of_one_task_write_different_files",
                "test_P19_a_file_that_the_driver_does_not_find_publishes_nothing",
                "test_P19_temporary_directories_go_with_their_owner",
                "test_P19_a_failed_rename_takes_back_the_others",
            ),
        ),
        Rule(
            "P20",
            "The deletes and inserts of one statement come from one evaluation of its source.",
            (
                "engine.spark.merge",
                "engine.spark.dml",
            ),
            ("test_P20_update_delete_and_insert_in_one_statement",),
        ),
        Rule(
            "P21",
            "A compaction is published only by the worker and attempt that still hold its task,"
            " and never while the entity is being cleaned.",
            (
                "metastore.rules.compactions",
                "services.worker",
            ),
            (
                "test_P21_only_the_owner_publishes",
                "test_P21_cleaning_and_compaction_do_not_overlap",
            ),
        ),
        Rule(
            "P22",
            "A dropped table or partition is gone for snapshots taken after the drop; its files"
            " go when nobody needs them, and one that is made again under its name sees none of"
            " them.",
            (
                "metastore.rules.table_declarations",
                "scan.selection",
            ),
            (
                "test_P22_files_of_a_dropped_table_outlive_its_readers",
                "test_P22_other_engines_see_nothing_of_a_dropped_table_whose_files_are_still_there",
                "test_P22_a_partition_made_again_is_told_when_the_rows_of_the_dropped_one_are_gone",
                "test_P22_a_partition_created_again",
                "test_P22_a_table_created_again_at_the_same_place",
                "test_P22_nothing_is_left_of_what_was_dropped",
                "test_P22_a_partition_that_was_added_again_keeps_its_directory",
            ),
        ),
        Rule(
            "P23",
            "`acid.layout` chooses how compactions name their directories: `hive4` with the"
            " transaction id behind `_v`, `hive3` without, published by one rename.",
            (
                "compaction.states:Layout",
                "compaction.plan",
            ),
            (
                "test_P23_hive3_names_have_no_suffix",
                "test_P23_hive_agrees_on_every_snapshot_of_a_random_history",
            ),
        ),
        Rule(
            "P24",
            "An adopted table, and a metastore made from a backup or from the directories,"
            " counts on above all ids that the names of the directories carry; write ids that a"
            " backup does not know are in doubt until they are resolved by name.",
            (
                "tables.adoption",
                "metastore.server.restore",
                "metastore.rules.restoring",
            ),
            (
                "test_P24_adoption",
                "test_P24_write_ids_newer_than_the_backup_are_in_doubt",
            ),
        ),
        Rule(
            "P25",
            "The wait before a failed cleaning is tried again counts from the failed attempt.",
            ("metastore.rules.cleaning",),
            ("test_C48_P25_retries_count_from_the_failed_attempt",),
        ),
        Rule(
            "P26",
            "A reader reads the files that commits recorded and lists nothing: one that is gone"
            " or was changed is an error that names it, and one that no commit named is not"
            " there.",
            (
                "tables.record_layout",
                "metastore.rules.reading",
                "write.file_records",
            ),
            (
                "test_P26_a_snapshot_is_given_the_files_of_each_commit",
                "test_P26_a_committed_file_that_is_not_what_it_was_is_an_error_and_no_missing_row",
                "test_P26_what_no_commit_named_is_not_read",
                "test_P26_a_file_that_goes_while_its_lease_holds_is_corrupt",
            ),
        ),
        Rule(
            "P27",
            "Files, and the directories that name them, are on the disk before the commit is in the"
            " log, and the commit before it is answered.",
            (
                "storage.durability",
                "base.disk",
            ),
            (
                "test_P27_every_acknowledged_commit_survives_a_power_cut",
                "test_P27_files_then_their_directory_then_the_names_above",
            ),
        ),
        Rule(
            "P28",
            "A snapshot sees tables, partitions, columns, properties and views as they were"
            " declared at its moment; a change of a declaration that others changed meanwhile"
            " conflicts or is merged, never lost.",
            ("metastore.rules.declared",),
            (
                "test_P28_a_rename_changes_nothing_for_older_snapshots",
                "test_P28_concurrent_add_columns_all_arrive",
                "test_P28_a_change_for_another_version_is_refused",
            ),
        ),
        Rule(
            "P29",
            "A lease is checked when the files of a read are looked up and again before an"
            " answer is given, and timeouts count by a clock that nobody can set.",
            (
                "base.clock",
                "metastore.rules.timers",
            ),
            (
                "test_P29_files_are_answered_while_the_snapshot_lives_and_not_after",
                "test_P29_a_reader_that_was_stopped_beyond_its_timeout_gives_an_error",
                "test_P29_a_jump_of_the_wall_clock_aborts_nobody_and_stops_no_reaper",
            ),
        ),
        Rule(
            "P30",
            "An overwrite conflicts with every commit into its partitions that its snapshot"
            " misses, inserts included; as a single statement it begins again.",
            (
                "transactions.conflicts",
                "metastore.rules.write_set",
            ),
            (
                "test_P30_an_overwrite_that_misses_an_insert_learns_so_with_its_lock",
                "test_P30_what_the_snapshot_sees_is_no_conflict",
            ),
        ),
        Rule(
            "P31",
            "A warehouse has an identity and records its tables relative to its root: it can be"
            " moved, a metastore refuses the root of another warehouse, and a restored copy"
            " neither writes to nor cleans what belongs to the original.",
            (
                "metastore.rules.identity",
                "metastore.places",
                "tables.joining",
            ),
            (
                "test_P31_a_stopped_warehouse_is_moved_by_mv",
                "test_P31_a_metastore_refuses_the_root_of_another_warehouse",
                "test_P31_a_restored_copy_leaves_the_original_byte_for_byte_as_it_was",
            ),
        ),
        Rule(
            "P32",
            "A table or partition that was emptied has a base with one ORC file without rows,"
            " so that engines that look for files find it.",
            ("write.publishing",),
            (
                "test_P32_the_file_has_the_six_columns_and_hives_keys",
                "test_P32_hive_reads_emptied_entities_and_finds_files_by_their_names",
            ),
        ),
        Rule(
            "P33",
            "What is answered without Spark is answered as Spark would; whatever is not known"
            " to be equal goes to Spark.",
            ("sql.unknown_names", "engine.compaction_choice"),
            (
                "test_P33_no_verb_starts_spark_for_a_column_that_is_not_there",
                "test_P33_both_engines_write_equal_bytes_and_measure_equal_values",
            ),
        ),
        Rule(
            "P34",
            "Other engines commit through the gateway as ours do: with locks, conflict check, a"
            " record of each file from its footer, and history; their readers hold leases.",
            ("gateway.external_writes", "metastore.rules.other_engine_requests"),
            (
                "test_P34_inserts_updates_and_deletes_are_committed_like_ours",
                "test_P34_the_second_of_two_updates_of_a_row_conflicts",
                "test_P34_the_cleaner_waits_for_a_foreign_reader_and_names_it",
                "test_P34_a_new_gateway_ends_what_the_old_one_began",
            ),
        ),
        Rule(
            "P36",
            "A read as of a write id, a time or a tag gives exactly the rows, columns and"
            " partitions that the table had then, or an error that says since when its history"
            " is kept. The Cleaner keeps what the retention, tags and open readers of the past"
            " need, but for partitions whose history an erasure has ended: open readers alone.",
            (
                "metastore.rules.kept_history",
                "metastore.rules.past_snapshots",
                "metastore.rules.cleaning_survey",
                "handles.row_statements",
            ),
            (
                "test_P36_a_read_as_of_a_commit_gives_the_rows_of_then_or_says_since_when",
                "test_P36_a_tag_keeps_its_files_until_it_is_dropped",
                "test_P36_a_rollback_makes_the_rows_those_of_then",
                "test_P36_a_rollback_conflicts_like_an_overwrite",
                "test_P36_the_history_of_the_erased_rows_ends_and_no_other",
                "test_P36_a_history_that_was_ended_is_that_of_its_partition_alone",
            ),
        ),
        Rule(
            "P38",
            "Updates and deletes of one partition conflict only in a row that both changed: a"
            " commit names its rows, and where it does not, or the table says so"
            " (`acid.conflict.detection`), the partition counts.",
            (
                "transactions.row_sets",
                "metastore.rules.write_set",
                "handles.transaction_work",
            ),
            (
                "test_P38_any_history_of_transactions_gives_what_a_naive_model_says",
                "test_P38_a_change_without_rows_conflicts_by_partition",
                "test_P38_beyond_the_memory_the_oldest_commits_conflict_by_partition",
                "test_P38_a_shortened_set_misses_no_row",
            ),
        ),
        Rule(
            "P39",
            "The changes between two snapshots, applied to the rows of the first, give the rows of"
            " the second, whatever was compacted and cleaned since; or an error says since when"
            " they are kept. Each transaction counts once for a row. A consumer's cursor is part of"
            " the commit of what it makes of the changes.",
            (
                "metastore.rules.change_feed",
                "tables.open_changes",
                "scan.change_events",
                "scan.change_rows",
            ),
            (
                "test_P39_the_changes_lead_from_the_rows_of_then_to_those_of_later",
                "test_P39_both_engines_write_and_read_the_same_changes",
                "test_P39_a_killed_materialization_neither_loses_nor_repeats_a_change",
                "test_P39_the_cursor_moves_with_the_commit_of_one_run",
            ),
        ),
        Rule(
            "P40",
            "Whatever the log forgets is in the archive, if there is one; a metastore that is"
            " restored to a moment or position has exactly the state of then, and where the archive"
            " can't tell it, the restore is refused with what is missing.",
            (
                "metastore.server.archiving",
                "metastore.server.point_in_time",
            ),
            (
                "test_P40_restoring_to_a_position_gives_exactly_the_state_of_then",
                "test_P40_no_batch_is_missing_after_kills",
                "test_P40_a_gap_and_damage_are_refused",
                "test_P40_what_two_metastores_have_archived_is_not_mixed",
            ),
        ),
        Rule(
            "P41",
            "An object store has no rename: files are written where they will be read, under names"
            " that no other statement or compaction has, and reads ask only for files that commits"
            " named, and list nothing. What the store refuses or fails to do is never taken for a"
            " damaged file, and a write that fails shows nothing.",
            (
                "base.object_store",
                "base.s3",
                "base.google_storage",
                "base.azure_storage",
                "write.publishing",
                "compaction.execution",
            ),
            (
                "test_P41_every_verb_leaves_only_what_commits_named",
                "test_P41_no_request_is_more_than_the_operation_needs",
                "test_P41_the_layout_hive3_is_refused_since_its_base_would_be_read_half_finished",
                "test_P41_a_write_that_fails_shows_and_leaves_nothing",
                "test_P41_a_read_blames_the_store_and_no_file",
                "test_P41_what_a_killed_writer_left_is_cleaned_but_for_its_unfinished_upload",
                "test_P41_spark_writes_reads_and_compacts_in_a_store",
            ),
        ),
        Rule(
            "P42",
            "A batch of a streaming query counts once: its number and its rows are one commit, so a"
            " repetition is recognized after any crash. Whatever else has a number that was written"
            " is refused; no row gets lost silently. A frame of the data source reads one snapshot,"
            " or fails; a write whose tasks, driver or commit fail leaves nothing visible.",
            (
                "metastore.rules.stream_sinks",
                "spark_source.batch_write",
                "spark_source.batch_read",
                "spark_source.stream_read",
                "spark_source.keeper",
            ),
            (
                "test_P42_a_killed_query_writes_each_row_exactly_once",
                "test_P42_a_batch_that_spark_repeats_is_written_once",
                "test_P42_what_a_sink_takes",
                "test_P42_random_streams_lead_to_the_rows_of_the_table",
                "test_P42_a_snapshot_outlives_a_cleaning_or_the_read_fails",
                "test_P42_a_failed_write_leaves_nothing",
                "test_P42_the_keeper_keeps_and_ends_transactions",
            ),
        ),
        Rule(
            "P43",
            "At the commit of another engine, its files of deletes get the names that every engine"
            " reads: `bucket_N` for `bucket_N_M`.",
            ("gateway.external_writes",),
            (
                "test_P43_deletes_get_the_names_that_every_engine_reads",
                "test_P43_two_attempts_of_one_bucket_are_refused",
            ),
        ),
        Rule(
            "P44",
            "In a table with the property `acid.group.commit.interval`, small inserts of a handle's"
            " threads that arrive within this time are one transaction, one write id and one"
            " directory. Each returns its own count after the shared commit, and has its own row in"
            " the history. What is wrong with the rows of one insert fails that insert alone;"
            " nothing that may be committed is written again. Without the property, each insert is"
            " a transaction.",
            (
                "handles.grouped_inserts",
                "handles.transaction_work",
                "metastore.rules.commits",
            ),
            (
                "test_P44_inserts_of_several_threads_share_a_transaction_and_a_directory",
                "test_P44_without_the_property_each_insert_has_a_transaction",
                "test_P44_a_mistake_fails_alone_with_the_error_that_it_has_without_a_group",
                "test_P44_what_fails_while_the_group_is_written_fails_alone",
                "test_P44_nobody_repeats_what_may_be_committed",
                "test_P44_any_inserts_arrive_once_each_with_its_own_count",
                "test_P44_each_insert_that_shares_a_directory_has_its_row_in_the_history",
                "test_P44_what_was_acknowledged_is_there_after_a_kill_and_no_insert_is_half_there",
            ),
        ),
        Rule(
            "P45",
            "At the commit of another engine, each delete event stands in the file of its row's"
            " bucket: Trino puts all of them into `bucket_00000`, and applies to a file's rows only"
            " those in the file of the same number.",
            ("gateway.delete_buckets",),
            (
                "test_P45_every_engine_finds_the_deletes_of_trino",
                "test_P45_a_file_without_events_of_its_own_bucket_goes",
                "test_P45_two_mixed_files_are_refused",
                "test_P45_an_interrupted_move_loses_nothing_and_is_repeated",
                "test_P45_an_event_of_another_transaction_refuses_the_commit",
            ),
        ),
        Rule(
            "P46",
            "Another engine never reads a table or partition while the output of a compaction comes"
            " into place there, except the base of a major compaction that one rename brings there."
            " The publication waits for the locks that other engines hold, at most"
            " `acid.compaction.publication.wait`, and they wait for it; our own readers do not. If"
            " the compaction is aborted, they wait until its output is gone.",
            (
                "metastore.rules.compactions",
                "transactions.locks:blocked_by",
                "services.removals:unpublish",
                "compaction.plan:CompactionPlan.comes_into_sight",
            ),
            (
                "test_P46_other_engines_wait_until_the_compaction_commits",
                "test_P46_the_publication_waits_for_other_engines_that_hold_locks",
                "test_P46_after_an_abort_other_engines_wait_until_the_output_is_gone",
                "test_P46_who_holds_a_lock_does_not_wait_for_a_publication_that_waits",
                "test_P46_nobody_reads_between_two_renames",
                "test_P46_what_a_killed_worker_left_is_removed_before_others_read",
                "test_P46_a_reader_that_goes_on_ends_the_compaction_and_not_itself",
                "test_P46_which_outputs_come_into_sight",
            ),
        ),
        Rule(
            "P47",
            "A statement of another engine commits all its files or none, also if the engine"
            " commits after a failure. Trino does; before the commit of a statement that succeeded,"
            " it says that all files are written. Without that, files of a statement of Trino abort"
            " its transaction.",
            (
                "gateway.external_writes",
                "metastore.rules.other_engine_requests:finish_write",
            ),
            (
                "test_P47_the_commit_of_a_statement_that_failed_half_way_is_refused",
                "test_P47_an_insert_into_partitions_is_finished_when_it_names_them",
                "test_P47_a_statement_without_files_needs_no_finish",
                "test_P47_an_engine_that_aborts_what_failed_need_not_say_that_it_is_done",
                "test_P47_a_table_may_be_renamed_under_a_write_id",
                "test_P47_a_write_is_unfinished_until_its_engine_says_so",
            ),
        ),
        Rule(
            "P48",
            "A lock request does not wait for another request that waits for a lock of its own"
            " transaction. So an engine may ask again for a lock whose answer was lost, while an"
            " overwrite stands in line.",
            ("metastore.rules.locking:first_block",),
            ("test_P48_a_lock_that_is_asked_for_again_does_not_wait_for_who_waits_for_it",),
        ),
        Rule(
            "P49",
            "Only files are removed that a commit recorded, that have the names of writers in ACID"
            " directories, or that are in a hidden directory of a transaction, and directories that"
            " are empty then. What else is there stays, and is named in the log, in SHOW"
            " COMPACTIONS and by `acid doctor`. A new table needs an empty directory, which is"
            " none of the warehouse's own, of another database or of another table; through the"
            " gateway also one in the warehouse or in `acid.gateway.locations`.",
            (
                "storage.removal",
                "services.removals",
                "tables.locations",
                "gateway.definition_calls",
            ),
            (
                "test_P49_only_what_the_platform_wrote_is_removed",
                "test_P49_files_of_an_adopted_table_go_if_they_were_recorded",
                "test_P49_a_table_below_a_dropped_one_keeps_its_files",
                "test_P49_what_is_ours_is_known_by_records_and_names",
                "test_P49_a_location_that_is_not_free_is_refused",
                "test_P49_a_location_is_compared_by_directory_not_by_name",
                "test_P49_the_gateway_makes_tables_only_where_it_may",
            ),
        ),
        Rule(
            "P50",
            "An import counts once: its rows, its source and the source's snapshot are one commit."
            " A later snapshot adds rows if the source has only added rows; no row of the table is"
            " replaced unless that was asked for. Before the commit, the counts, exact sums and"
            " bounds of the columns are compared between the source and the files that were"
            " written, and a difference ends the import.",
            ("handles.imports", "handles.column_totals"),
            (
                "test_P50_a_snapshot_is_imported_once",
                "test_P50_two_imports_at_once_bring_the_rows_once",
                "test_P50_rows_of_somebody_else_are_not_replaced_unasked",
                "test_P50_a_stored_value_that_differs_is_found_before_the_commit",
            ),
        ),
        Rule(
            "P51",
            "Two transactions of which neither sees the other conflict if each has inserted rows"
            " that the other looked for in order to write. Rows that were looked for or inserted"
            " are told by partitions, ranges of columns and hashes of keys, which may be too wide"
            " but never too narrow.",
            (
                "transactions.conflicts:skew",
                "transactions.regions",
                "metastore.rules.write_set:skew",
                "handles.looked_for",
                "scan.row_regions",
                "scan.condition_regions",
                "engine.source_keys",
            ),
            (
                "test_P51_two_at_once_leave_what_one_after_the_other_leaves",
                "test_P51_who_looked_before_an_overwrite_does_not_insert_after_it",
                "test_P51_there_is_a_conflict_exactly_if_no_order_explains_what_both_found",
                "test_P51_a_condition_meets_the_files_of_each_row_that_it_accepts",
                "test_P51_keys_meet_exactly_the_rows_that_have_them",
                "test_P51_a_restart_and_a_snapshot_keep_it",
            ),
        ),
        Rule(
            "P52",
            "A serializable transaction that writes commits only if nobody has changed since its"
            " snapshot what it has read: rows by partitions and ranges, and the declaration."
            " Transactions and assets ask for it, and tables and the setting `acid.isolation`.",
            (
                "metastore.rules.unseen_changes",
                "transactions.conflicts",
                "handles.looked_for",
                "handles.transaction_work",
            ),
            (
                "test_P52_what_was_read_may_not_be_changed_before_the_commit",
                "test_P52_a_declaration_that_was_read_counts_too",
                "test_P52_a_change_is_known_after_it_was_compacted",
                "test_P52_write_skew_needs_a_level_that_excludes_it",
                "test_P52_table_is_complete",
            ),
        ),
        Rule(
            "P55",
            "A consumer of changes gets each of them, or stays behind: what it has not read is kept"
            " for `acid.consumer.retention`, and one that has lost some, also by a drop, an erasure"
            " or a restore, is named with the next step until somebody lets it begin again.",
            (
                "metastore.rules.kept_history",
                "metastore.rules.change_feed",
            ),
            (
                "test_P55_a_consumer_gets_all_or_is_behind_and_told_why",
                "test_P55_a_consumer_that_vanished_keeps_files_for_a_limited_time",
                "test_P55_a_lost_change_stays_visible_until_the_consumer_begins_again",
            ),
        ),
        Rule(
            "P56",
            "An evaluation of a check names the partition that was checked, and has the number of"
            " failed rows as metadata: a later good partition does not cover a refused one.",
            ("orchestration.materialize", "orchestration.checks:Expectation.spec"),
            (
                "test_P56_an_evaluation_is_of_the_partition_that_was_checked",
                "test_P56_a_run_for_several_partitions_has_an_evaluation_of_each",
                "test_P56_the_numbers_of_a_finding_are_metadata",
            ),
        ),
        Rule(
            "P57",
            "No two assets of a code location fill the same table: they are refused when they are"
            " loaded, whatever the letter case of their keys, their `schema` and their kind.",
            ("orchestration.table_owners",),
            (
                "test_P57_two_assets_of_one_table_are_refused_when_they_are_loaded",
                "test_P57_assets_of_other_tables_are_loaded",
            ),
        ),
        Rule(
            "P59",
            "Rows of the caller's process are written by that process, however many they are: as a"
            " stream, while few of them are in memory. A stream gives its rows once, and what would"
            " have to read it again says so.",
            (
                "engine.row_streams",
                "engine.local.write",
                "engine.local.placed_rows",
                "storage.spilled_batches",
            ),
            (
                "test_P59_rows_of_every_kind_are_stored_as_a_stream",
                "test_P59_rows_of_a_bucket_are_in_one_file_in_their_order",
                "test_P59_a_stream_that_would_have_to_be_repeated_says_so",
                "test_P59_memory_does_not_grow_with_the_rows",
                "test_P59_rows_of_this_process_don_t_count_towards_the_limit",
            ),
        ),
        Rule(
            "P60",
            "A JVM or a Spark Connect server that ends ends every call that waits for it, by"
            " SparkLost, which says why it has ended and what to do; the next statement has another"
            " JVM. A JVM whose heap is full ends.",
            ("engine.spark.jvm_death", "engine.spark.jvm"),
            (
                "test_P60_whoever_loses_the_connection_to_a_jvm_that_ended_learns_why",
                "test_P60_a_killed_jvm_ends_each_wait_and_the_next_statement_has_another",
            ),
        ),
        Rule(
            "P62",
            "IN with a subquery is true, false or unknown, wherever it stands: below IS NULL,"
            " coalesce, <=>, NOT or CASE, and in a list of columns. Spark, whose join finds no"
            " unknown rows, gets it as a CASE that does.",
            ("engine.spark.in_subqueries",),
            (
                "test_P62_in_with_a_subquery_is_true_false_or_unknown_wherever_it_stands",
                "test_P62_delete_and_update_change_the_rows_that_a_query_would_give",
                "test_P62_the_text_for_spark_gives_the_same_rows",
            ),
        ),
        Rule(
            "P63",
            "As a key of groups, distinct rows, set operations and partitions, 0.0 and -0.0 are one"
            " value, shown as 0.0, and all NaN are one; other values keep their sign. Buckets"
            " follow Hive's hash, which tells them apart.",
            (
                "engine.local.translation.casts:as_key",
                "engine.local.partition_texts",
                "engine.spark.write",
            ),
            (
                "test_P63_as_a_key_both_zeros_are_one_value_and_nan_is_one",
                "test_P63_a_batch_of_zeros_keeps_their_signs",
                "test_P63_a_partition_of_zero_has_one_name",
            ),
        ),
        Rule(
            "P64",
            "A file of another program is read by the types that its format says, in both engines"
            " alike: Parquet without the note that Arrow's writers add, ORC also as Hive 0.11 wrote"
            " it. A value that its column does not hold exactly is an error, and a page of Parquet"
            " that is not its checksum. A sound file that is not read is called what it is.",
            ("storage.parquet_files", "orc.lone_stripes", "scan.declared_types"),
            (
                "test_P64_parquet_is_read_by_its_own_types",
                "test_P64_a_value_that_a_type_lacks_is_refused",
                "test_P64_decimals_of_hive_11",
                "test_P64_a_sound_file_of_orc_is_refused_by_what_it_is",
                "test_P64_a_page_that_is_not_its_checksum",
            ),
        ),
        Rule(
            "P65",
            "A file of another program takes no more memory than its bounds say, whatever it says"
            " of itself: a row of text 16 MB, a footer 256 MB, values in values as deep as Python"
            " reads them. A file beyond one is an error with the place, and so is a number or a"
            " text that no type holds.",
            ("base.file_bounds", "storage.json_texts", "scan.text_lines"),
            (
                "test_P65_a_line_of_text_that_does_not_end",
                "test_P65_a_literal_that_is_too_long_is_named",
                "test_P65_a_long_text_that_every_row_repeats",
                "test_P65_a_stripe_that_says_more_than_it_is",
                "test_P65_texts_of_orc_that_repeat_too_often",
            ),
        ),
        Rule(
            "P66",
            "An import of CSV or JSON brings each value as it is written, or names the file and the"
            " line that it can't. Types for a new table hold all values of the files, and a"
            " directory says of its rows what they say themselves.",
            ("handles.folder_source", "handles.csv_files", "handles.inferred_types"),
            (
                "test_P66_what_is_read",
                "test_P66_what_is_refused_with_file_and_line",
                "test_P66_a_directory_and_its_rows_say_the_same",
            ),
        ),
        Rule(
            "P67",
            "A file of a stranger is data, and does nothing: no property of an imported table or of"
            " its catalog's server chooses code, and a source names no file outside of its own"
            " place. Of a file of DuckDB only tables are read, without what they compute, and a"
            " backup has the tables that we make; the database reaches no other file, no extension"
            " and no address. A text of others in Dagster's pages and notebooks is shown as that"
            " text, without links, pictures and markup. No SQL calls methods of Java by name.",
            (
                "orchestration.markdown",
                "orchestration.docs_site",
                "predicates.grammar",
                "handles.iceberg_tables",
                "handles.own_files",
                "base.databases",
                "metastore.server.state_file:require_state",
            ),
            (
                "test_P67_no_property_of_an_iceberg_table_chooses_code",
                "test_P67_no_property_in_a_catalog_chooses_code",
                "test_P67_an_iceberg_table_names_no_file_outside_of_its_directory",
                "test_P67_a_hint_names_a_metadata_file_beside_it",
                "test_P67_a_link_out_of_a_source_is_refused",
                "test_P67_only_tables_of_a_file_of_duckdb_are_read",
                "test_P67_what_a_table_of_duckdb_computes_is_not_run",
                "test_P67_a_database_reaches_nothing_but_the_files_that_it_was_given",
                "test_P67_a_snapshot_has_the_tables_that_we_make",
                "test_P67_an_older_snapshot_has_nothing_that_a_migration_would_run",
                "test_P67_a_text_of_others_is_no_markup",
                "test_P67_texts_reach_dagster_s_markdown_by_one_module",
                "test_P67_a_text_of_others_is_no_html",
                "test_P67_a_refused_row_is_no_html_in_the_pages_of_great_expectations",
                "test_P67_a_partition_key_leads_out_of_no_directory",
                "test_P67_no_text_of_sql_calls_a_method_of_java",
                "test_P67_every_door_is_in_the_list",
                "test_P67_the_list_of_doors_names_what_there_is",
                "test_P67_no_example_has_a_password_that_everybody_knows",
            ),
        ),
        Rule(
            "P68",
            "Settings and code that are found, and not named, are those of the user, of root, or"
            " under `sudo` of the caller: a project, a metastore's directory or a configuration of"
            " pyiceberg of another user is refused, unless `ACID_SAFE_DIRECTORY` in the environment"
            " names the directory.",
            ("base.owners:require_own", "cli.project:enter_project"),
            (
                "test_P68_settings_in_a_project_of_another_user_are_refused",
                "test_P68_a_user_obeys_own_files_and_under_sudo_those_of_the_caller",
                "test_P68_a_link_of_another_user_is_not_followed",
                "test_P68_a_metastore_of_another_user_is_neither_asked_nor_started",
                "test_P68_no_setting_of_the_metastore_names_code",
                "test_P68_pyiceberg_reads_no_configuration_of_another_user",
            ),
        ),
        Rule(
            "P69",
            "What lies in a temporary place can be read by its user only: a directory has mode 0700"
            " and a random name from its beginning, whatever the umask says, and so have drafts of"
            " backups. A place with a known name is refused if another user made it or may use it.",
            ("base.private_places", "metastore.server.state_tables:publish_state"),
            (
                "test_P69_places_are_for_their_owner_and_have_names_that_nobody_guesses",
                "test_P69_the_directory_of_a_process_ends_with_it_and_not_with_its_forks",
                "test_P69_a_known_name_that_others_may_use_is_refused",
                "test_P69_a_backup_is_written_where_nobody_else_can_read",
                "test_P69_spark_spills_into_a_private_directory",
            ),
        ),
        Rule(
            "P70",
            "A path that somebody writes becomes absolute by one function at every door: from the"
            " current directory or the project, with `~`, `.` and `..` (which goes up from where a"
            " symbolic link leads), as `file:///path`, with or without a slash at the end. The"
            " warehouse's and the metastore's are real paths, and other links stay. A file of"
            " another machine is refused.",
            ("base.paths:user_path", "base.location:Location.of"),
            (
                "test_P70_every_command_is_in_these_tables",
                "test_P70_a_command_says_the_same_of_each_spelling_of_its_warehouse",
                "test_P70_python_dagster_and_settings_name_one_place",
                "test_P70_paths_of_a_warehouse_s_files",
                "test_P70_commands_with_paths_of_their_own",
                "test_P70_a_file_of_another_machine_is_refused",
            ),
        ),
        Rule(
            "P71",
            "An erasure that leaves a file with such rows, or one of before its columns were"
            " changed, raises NotErased, unless its report was asked for; it names what is left,"
            " who keeps it, and the way out. The command's exit code is 1, and the job fails.",
            ("services.erasure", "handles.table:Table.erase"),
            ("test_P71_an_erasure_after_a_change_of_columns_names_who_keeps_the_files",),
        ),
        Rule(
            "P72",
            "A property of a table, view, partition or database by which Hive or others protect it,"
            " and which nothing here keeps, is refused at every door: immutable, readonly,"
            " PROTECT_MODE, a trash, a retention of partitions, encryption.",
            ("base.promises",),
            (
                "test_P72_a_promise_that_nobody_keeps_is_refused",
                "test_P72_python_and_what_an_engine_sends_are_refused_too",
                "test_P72_what_promises_nothing_is_kept",
            ),
        ),
        Rule(
            "P73",
            "A pattern of names, in SHOW … LIKE and in the gateway's calls, is no regular"
            " expression: it is matched in proportion to its length and the name's, or refused as"
            " too long.",
            ("base.name_patterns",),
            (
                "test_P73_patterns_of_names",
                "test_P73_patterns_match_what_the_regular_expression_of_hive_matches",
                "test_P73_no_pattern_takes_long",
            ),
        ),
        Rule(
            "P74",
            "What everybody's writer computes takes time and memory in proportion to the row, and"
            " acts on nothing: a CHECK calls listed functions only and no regular expression, and"
            " a DEFAULT is a literal.",
            ("tables.cheap_conditions",),
            (
                "test_P74_a_condition_that_may_take_long_or_acts_is_refused",
                "test_P74_every_function_is_listed_or_refused",
                "test_P74_usual_conditions_are_kept",
            ),
        ),
        Rule(
            "P75",
            "Who has not said who it is holds nothing that clients need: at every port a number of"
            " such connections for each address and for all, the oldest of the address with most"
            " of them makes room, and none has a thread. Descriptors are kept back for clients who"
            " have logged in, and one user gets half of a gateway's connections.",
            (
                "base.strangers",
                "base.metrics_page",
                "gateway.gateway_server",
                "metastore.server.connections",
            ),
            (
                "test_P75_a_newcomer_takes_the_place_of_the_oldest_of_whoever_has_most",
                "test_P75_silent_connections_keep_no_user_out",
                "test_P75_handshakes_that_are_not_finished_keep_no_user_out",
                "test_P75_one_user_gets_half_of_the_connections",
                "test_P75_half_sent_requests_keep_nobody_from_the_numbers",
                "test_P75_a_crowd_of_strangers_keeps_no_client_out",
                "test_P75_without_a_descriptor_left_clients_keep_theirs",
            ),
        ),
        Rule(
            "P76",
            "Nobody's waiting holds up others: a client of the gateway that waits for a lock holds"
            " no thread, drops that wait have threads of their own, users take turns, and one user"
            " gets half of the threads.",
            ("gateway.workers", "gateway.gateway_server", "gateway.transaction_calls"),
            (
                "test_P76_users_take_turns_and_have_a_share",
                "test_P76_a_client_that_waits_for_a_lock_holds_no_thread",
                "test_P76_drops_that_wait_keep_nobody_elses_call_waiting",
            ),
        ),
        Rule(
            "P77",
            "Nobody is told of what they may not read: lists of the gateway have no names of"
            " others' databases, tables, transactions and locks, and the time of a refused login"
            " tells no user's. Who is taken out of the file of users is out, whatever else fails"
            " and whatever login was under way.",
            (
                "gateway.gateway_server",
                "gateway.users",
                "gateway.authorization",
                "gateway.catalog_calls",
            ),
            (
                "test_P77_no_call_lists_what_its_user_may_not_see",
                "test_P77_what_may_not_be_seen_is_answered_as_what_is_not_there",
                "test_P77_a_login_under_way_ends_with_the_user",
                "test_P77_a_missing_certificate_keeps_no_former_user_connected",
                "test_P77_every_login_costs_the_same_hashes",
            ),
        ),
        Rule(
            "P78",
            "A call takes time and memory in proportion to its message, up to a bound that its"
            " error names; what can't be bounded, as a query of the metastore's tables, runs in a"
            " process of its own that is ended.",
            (
                "metastore.rules.lock_requests",
                "metastore.server.querying",
                "gateway.statistics_calls",
                "sql.query_tables",
            ),
            (
                "test_P78_a_call_of_the_gateway_takes_time_in_proportion",
                "test_P78_an_operation_of_the_metastore_takes_time_in_proportion",
                "test_P78_a_query_that_takes_long_is_ended_and_nobody_waits_for_it",
                "test_P78_a_list_of_too_many_parts_is_refused_by_name",
                "test_P78_a_text_that_is_too_long_ends_its_connection",
                "test_P78_a_large_frame_is_walked_over_in_steps",
                "test_P78_views_that_name_a_view_twice_are_counted",
                "test_P78_statistics_are_kept_of_the_tables_columns_only",
            ),
        ),
    ),
)
