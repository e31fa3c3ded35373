"""C: compaction, cleaning and their history."""

from __future__ import annotations

from scripts.rule_book.rule import Group, NotBuilt, Rule

GROUP = Group(
    "C",
    "Compaction and cleaning",
    "The Initiator decides what to compact, a Worker merges, the Cleaner removes what nobody needs"
    " any more. An entity is a partition or an unpartitioned table; a task is one row of the queue:"
    " `initiated`, `working`, `ready for cleaning`, then a row of the history.",
    (
        Rule(
            "C1",
            "The first cycle of an Initiator looks at every entity (a partition or an"
            " unpartitioned table), later ones at those that changed since and at those whose"
            " last compaction failed.",
            ("metastore.rules.candidates",),
            ("test_C1_the_first_cycle_looks_at_all_later_ones_at_what_changed",),
        ),
        Rule(
            "C2",
            "Aborted transactions are counted by entity: more than"
            " `hive.compactor.abortedtxn.threshold` of them, or one older than"
            " `hive.compactor.aborted.txn.time.threshold`, ask for work.",
            (
                "compaction.initiator:_old_abort",
                "metastore.rules.cleaning",
            ),
            (
                "test_C2_aborted_transactions_are_counted_per_entity",
                "test_C2_C12_old_abort",
            ),
        ),
        Rule(
            "C3",
            "Candidates come in pages of `hive.compactor.fetch.size`.",
            ("metastore.rules.candidates",),
            ("test_C3_candidates_come_in_pages_of_the_fetch_size",),
        ),
        Rule(
            "C4",
            "A table that was dropped is no candidate.",
            (
                "metastore.rules.candidates",
                "services.initiator",
            ),
            (
                "test_C4_C10_what_was_dropped_is_no_candidate",
                "test_C4_a_table_that_is_dropped_during_the_cycle_stops_nothing",
            ),
        ),
        Rule(
            "C5",
            "A table with NO_AUTO_COMPACTION is compacted only by request.",
            ("compaction.initiator:no_auto_compaction",),
            (
                "test_C5_no_auto_compaction",
                "test_case_07_C5_without_auto_compaction_a_request_by_hand_works",
            ),
        ),
        Rule(
            "C6",
            "An entity with a compaction that waits or works is no candidate; one that is ready"
            " for cleaning does not count.",
            ("compaction.initiator:_filtered",),
            ("test_C6_only_waiting_and_working_rows_block",),
        ),
        Rule(
            "C7",
            "Insert-only tables are left alone if `hive.compactor.compact.insert.only` is false.",
            ("compaction.initiator:_filtered",),
            ("test_C7_insert_only",),
        ),
        Rule(
            "C8",
            "A partitioned table as a whole is no candidate, only its partitions are.",
            ("compaction.initiator:_filtered",),
            ("test_C8_partitioned_table_without_partition",),
        ),
        Rule(
            "C9",
            "After `hive.compactor.initiator.failed.compacts.threshold` failures in a row an"
            " entity is only noted as `did not initiate`, until"
            " `hive.compactor.initiator.failed.retry.time` has passed.",
            ("compaction.initiator:_filtered",),
            (
                "test_C9_too_many_failures",
                "test_case_11_C9_after_two_failures_only_a_request_by_hand",
            ),
        ),
        Rule(
            "C10",
            "A partition that was dropped is no candidate.",
            ("metastore.rules.candidates",),
            ("test_C4_C10_what_was_dropped_is_no_candidate",),
        ),
        Rule(
            "C11",
            "Too many aborted transactions ask for a major compaction, whatever the sizes are.",
            ("compaction.initiator:check",),
            (
                "test_C2_C11_many_aborts",
                "test_C11_comes_before_C12_before_the_sizes",
            ),
        ),
        Rule(
            "C12",
            "An old aborted transaction asks for a minor compaction.",
            ("compaction.initiator:check",),
            ("test_C2_C12_old_abort",),
        ),
        Rule(
            "C13",
            "The bytes of all live deltas are compared with those of the base, or of the"
            " original files where there is no base.",
            (
                "compaction.initiator:entity_size",
                "compaction.initiator:EntitySize",
            ),
            (
                "test_S16_C13_entity_size",
                "test_C13_original_files_count_without_a_base",
            ),
        ),
        Rule(
            "C14",
            "An entity with deltas and neither base nor original files is judged by the number"
            " of its deltas.",
            ("compaction.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C15",
            "Deltas of more than `hive.compactor.delta.pct.threshold` of the base ask for a"
            " major compaction.",
            ("compaction.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C16",
            "An obsolete base beside no delta asks for a major compaction, which ends as a"
            " cleaning.",
            ("compaction.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C17",
            "As long as there are no more than `hive.compactor.delta.num.threshold` delta"
            " directories their number asks for nothing.",
            ("compaction.initiator:check",),
            (
                "test_C13_to_C21_sizes",
                "test_C17_initiator_explains_and_then_asks",
            ),
        ),
        Rule(
            "C18",
            "More deltas than that without a base ask for a major compaction.",
            ("compaction.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C19",
            "Where a minor compaction is not possible, as over files without ACID columns, a"
            " major one is asked for in its place.",
            (
                "compaction.initiator:check",
                "compaction.plan:minor_refused",
            ),
            (
                "test_C19_minor_not_possible",
                "test_C19_the_initiator_asks_the_same_question",
            ),
        ),
        Rule(
            "C20",
            "More deltas than that beside a base ask for a minor compaction.",
            ("compaction.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C21",
            "All thresholds are strict: what equals a threshold asks for nothing.",
            ("compaction.initiator:check",),
            (
                "test_C13_to_C21_sizes",
                "test_C21_the_initiator_sensor_asks_above_the_threshold",
            ),
        ),
        Rule(
            "C22",
            "A table's property `compactorthreshold.<setting>` replaces the warehouse's setting"
            " for this table, and `compactor.<setting>` that of its jobs.",
            (
                "compaction.initiator:Thresholds.for_table",
                "services.worker:job_setting",
            ),
            (
                "test_C22_table_properties_win_on_their_table_only",
                "test_C22_the_queue_of_a_job",
            ),
        ),
        Rule(
            "C23",
            "An entity whose check fails is noted as `did not initiate` with the error, and the"
            " cycle goes on.",
            ("services.initiator",),
            ("test_C23_one_broken_entity_leaves_a_row_and_the_cycle_goes_on",),
        ),
        Rule(
            "C24",
            "A request is refused while a compaction of the entity waits or works, and while"
            " one is ready for cleaning to which nothing was written since.",
            ("metastore.rules.compactions",),
            (
                "test_C24_one_request_per_entity",
                "test_C24_ready_for_cleaning_blocks_until_something_is_written",
            ),
        ),
        Rule(
            "C25",
            "A task whose Worker died, or took longer than `hive.compactor.worker.timeout`,"
            " waits in the queue again.",
            ("metastore.rules.compactions",),
            (
                "test_C25_revocation",
                "test_C25_the_compaction_of_a_killed_run_is_initiated_again",
            ),
        ),
        Rule(
            "C26",
            "Tasks are taken in the order of their ids, each by one Worker.",
            ("metastore.rules.compactions",),
            ("test_C26_tasks_are_taken_in_order_and_once",),
        ),
        Rule(
            "C27",
            "A compaction that is not possible is refused with its reason: an unknown kind, a"
            " table or partition that is gone, a minor one over files without ACID columns.",
            (
                "compaction.plan:minor_refused",
                "errors:CompactionRefused",
            ),
            (
                "test_C27_C58_what_is_refused",
                "test_C27_no_minor_compaction_over_files_without_acid_columns",
            ),
        ),
        Rule(
            "C28",
            "A compaction is a transaction with a SHARED_READ lock that has to be granted at"
            " once, and it gets no write id.",
            ("metastore.rules.compactions",),
            (
                "test_C28_the_transaction_of_a_compaction",
                "test_C28_exclusive_lock_fails_the_task",
            ),
        ),
        Rule(
            "C29",
            "A major compaction needs more than one directory or original files, a minor one"
            " more than one delta beyond a pair of a delta and its delete_delta; else the task"
            " ends as refused, or goes on to the Cleaner where there is something to remove.",
            (
                "compaction.plan:_enough",
                "compaction.plan:plan_compaction",
            ),
            (
                "test_C29_major",
                "test_C29_minor",
                "test_C29_not_enough_but_something_to_clean",
            ),
        ),
        Rule(
            "C30",
            "Result, state of the task and commit of its transaction change in one step.",
            ("metastore.rules.compactions",),
            ("test_C30_commit_is_one_step",),
        ),
        Rule(
            "C31",
            "A major compaction makes a base named after the compactor's high watermark and"
            " drops deleted rows; a minor one makes a delta and a delete_delta named after what"
            " it merged; rows of aborted write ids are left out.",
            ("compaction.plan:plan_compaction",),
            (
                "test_C31_major_is_named_after_the_high_watermark",
                "test_C31_minor_is_named_after_the_directories_merged",
                "test_C31_a_merge_is_the_sorted_union_without_deleted_and_aborted_rows",
            ),
        ),
        Rule(
            "C32",
            "A compaction that fails, or whose result does not hold the values that it read,"
            " removes its output, aborts its transaction and leaves the table as it was.",
            (
                "services.worker",
                "engine.compact:execute",
            ),
            (
                "test_C32_failure_keeps_the_table_and_excludes_the_output",
                "test_C32_what_a_merge_changed_is_named_and_not_published",
            ),
        ),
        Rule(
            "C33",
            "An aborted write to unknown partitions goes straight to the Cleaner.",
            ("metastore.rules.compactions",),
            ("test_C33_aborted_dynamic_partitions_go_straight_to_the_cleaner",),
        ),
        Rule(
            "C34",
            "More files than `hive.compactor.max.num.delta` are first merged in groups of so many.",
            ("storage.rewrite:Rewrite",),
            ("test_C34_more_inputs_than_allowed_are_merged_in_stages",),
        ),
        Rule(
            "C36",
            "Reads and writes go on during a compaction; what is written meanwhile stays in its"
            " own deltas.",
            ("services.worker",),
            ("test_C36_writes_go_on_during_a_compaction",),
        ),
        Rule(
            "C37",
            "The Cleaner takes tasks that are ready for cleaning, and no others.",
            ("metastore.rules.cleaning",),
            ("test_C37_only_rows_that_are_ready_for_cleaning_are_cleaned",),
        ),
        Rule(
            "C38",
            "With `hive.compactor.delayed.cleanup.enabled` a task waits"
            " `hive.compactor.cleaner.retention.time.seconds` after its compaction's commit.",
            (
                "metastore.rules.cleaning",
                "services.cleaner",
            ),
            ("test_C38_delayed_cleanup",),
        ),
        Rule(
            "C39",
            "Of several tasks for an entity the one with the lowest highest write id comes first.",
            ("metastore.rules.cleaning",),
            ("test_C39_the_lower_watermark_first",),
        ),
        Rule(
            "C40",
            "A task may run when no transaction below the id that was next at its compaction's"
            " commit is open.",
            ("metastore.rules.cleaning",),
            ("test_C40_C41_the_boundary",),
        ),
        Rule(
            "C41",
            "A directory goes only when nobody can need it: every transaction that began before"
            " the compaction's (or the drop's) commit, and that may read the table, has ended,"
            " readers included.",
            (
                "metastore.rules.cleaning",
                "metastore.rules.snapshots",
            ),
            (
                "test_C40_C41_the_boundary",
                "test_C41_C46_every_held_snapshot_of_a_random_history_keeps_its_rows",
            ),
        ),
        Rule(
            "C42",
            "`acid.cleaner.watermark` chooses for whom the Cleaner waits: those who may read"
            " this table, or everyone.",
            ("metastore.rules.snapshots",),
            ("test_C42_another_table_holds_only_the_global_watermark",),
        ),
        Rule(
            "C44",
            "A table or partition that is gone counts as cleaned; under NO_CLEANUP the task"
            " ends as refused and the files stay.",
            (
                "compaction.cleaner:no_cleanup",
                "metastore.rules.cleaning",
            ),
            (
                "test_C44_no_cleanup_refuses",
                "test_case_26_C44_a_table_that_was_dropped_before_its_cleaning",
            ),
        ),
        Rule(
            "C45",
            "What the Cleaner judges is bounded by the task's highest write id; what a later"
            " compaction covers waits for that one's cleaning.",
            ("compaction.cleaner:_must_stay",),
            ("test_C45_what_is_not_visible_to_all_covers_nothing",),
        ),
        Rule(
            "C46",
            "The Cleaner removes obsolete directories and those of aborted write ids alone,"
            " never one with a valid or open write id that is not read elsewhere.",
            (
                "compaction.cleaner:plan_cleaning",
                "compaction.cleaner:_must_stay",
            ),
            (
                "test_C46_obsolete_and_aborted_and_nothing_else",
                "test_C46_C53_no_valid_or_open_write_is_ever_lost",
            ),
        ),
        Rule(
            "C47",
            "While something obsolete is left the task stays ready for cleaning.",
            (
                "compaction.cleaner:CleaningPlan.done",
                "services.cleaner",
            ),
            ("test_C47_something_left_stays_for_the_next_cycle",),
        ),
        Rule(
            "C48",
            "A cleaning that failed is tried again after"
            " `hive.compactor.cleaner.retry.retention.time`, twice as long each time, and fails"
            " for good after `hive.compactor.cleaner.retry.maxattempts`.",
            ("metastore.rules.cleaning",),
            ("test_C48_P25_retries_count_from_the_failed_attempt",),
        ),
        Rule(
            "C49",
            "A cleaning is marked done in one step: history row, end of the task, and the"
            " aborted write ids up to its highest write id of which no file is left.",
            (
                "metastore.rules.cleaning",
                "compaction.cleaner:_forgettable",
            ),
            (
                "test_C49_mark_cleaned",
                "test_C49_C53_which_aborted_write_ids_may_be_forgotten",
            ),
        ),
        Rule(
            "C50",
            "With `hive.compactor.clean.aborts.using.cleaner` the Cleaner removes directories"
            " of aborted transactions without a compaction, by the thresholds of C2.",
            ("metastore.rules.cleaning",),
            ("test_C50_thresholds",),
        ),
        Rule(
            "C51",
            "It looks there only below the lowest open write, and spares what an open snapshot"
            " may read.",
            ("metastore.rules.cleaning",),
            (
                "test_C51_the_lists_stop_below_open_transactions",
                "test_C51_a_reader_of_any_table_is_spared",
            ),
        ),
        Rule(
            "C52",
            "It removes obsolete directories on that occasion too.",
            ("compaction.cleaner",),
            ("test_C52_the_others_remove_obsolete_ones_too",),
        ),
        Rule(
            "C53",
            "A directory with committed and aborted write ids stays, and with it the knowledge"
            " of what is aborted.",
            (
                "compaction.cleaner:_undeletable",
                "metastore.rules.cleaning",
            ),
            (
                "test_C53_a_batch_with_aborted_and_committed_write_ids_stays",
                "test_C53_only_what_was_removed_is_forgotten",
            ),
        ),
        Rule(
            "C54",
            "The cleaning of aborted transactions is retried without limit.",
            ("metastore.rules.cleaning",),
            ("test_C54_aborts_are_retried_without_limit",),
        ),
        Rule(
            "C55",
            "After an aborted write to unknown partitions every partition is searched, and only"
            " aborted directories go.",
            (
                "compaction.cleaner:_must_stay",
                "services.cleaner",
            ),
            (
                "test_C55_dynamic_abort_removes_aborted_directories_only",
                "test_C55_partitions_unknown",
            ),
        ),
        Rule(
            "C57",
            "The history keeps the newest rows of each state, as many as the"
            " `hive.compactor.history.retention.*` settings say.",
            ("metastore.rules.housekeeping",),
            (
                "test_C57_retention_counts",
                "test_C57_failed_rows_that_the_failure_check_needs_stay",
            ),
        ),
        Rule(
            "C58",
            "COMPACT only enqueues; an unknown kind, and a partitioned table without its"
            " partition, are errors.",
            (
                "metastore.rules.compactions",
                "table:Table.compact",
            ),
            ("test_C27_C58_what_is_refused",),
        ),
        Rule(
            "C59",
            "Waiting for a compaction ends with it or after `hive.compactor.wait.timeout`, and"
            " the end of the wait cancels nothing.",
            ("warehouse:Warehouse.compact",),
            (
                "test_case_32_C59_waiting_ends_with_the_work_or_after_the_timeout_and_cancels_nothing",
            ),
        ),
        Rule(
            "C60",
            "ABORT COMPACTIONS aborts tasks that nobody took yet, and says of each id what"
            " became of it.",
            ("metastore.rules.compactions",),
            ("test_C60_abort_compactions",),
        ),
        Rule(
            "C61",
            "SHOW COMPACTIONS lists the queue and the history with Hive's columns and the texts"
            " of its states.",
            (
                "metastore.rules.shows",
                "compaction.states:CompactionState.text",
            ),
            (
                "test_C61_C62_show_compactions",
                "test_C61_the_columns_are_those_of_the_metastores_rows",
            ),
        ),
        Rule(
            "C62",
            "An empty field of SHOW COMPACTIONS reads `None`.",
            ("metastore.rules.shows",),
            ("test_C61_C62_show_compactions",),
        ),
    ),
    (
        NotBuilt("C35", "Statistics come from the reports of writers (P8), not of compactions."),
        NotBuilt(
            "C43",
            "What Hive 2 and 3 did: since Hive 4 open transactions hold the Cleaner, not locks.",
        ),
        NotBuilt("C56", "Soft deletes are not built (P1); dropped data is removed by P22."),
    ),
)
