"""C: compaction (C1 to C36 here) and cleaning."""

from __future__ import annotations

from scripts.rule_book import cleaning
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
                "services.initiator:_old_abort",
                "metastore.rules.cleaning_survey",
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
            ("services.initiator:no_auto_compaction",),
            (
                "test_C5_no_auto_compaction",
                "test_case_07_C5_without_auto_compaction_a_request_by_hand_works",
            ),
        ),
        Rule(
            "C6",
            "An entity with a compaction that waits or works is no candidate; one that is ready"
            " for cleaning does not count.",
            ("services.initiator:_filtered",),
            ("test_C6_only_waiting_and_working_rows_block",),
        ),
        Rule(
            "C7",
            "Insert-only tables are left alone if `hive.compactor.compact.insert.only` is false.",
            ("services.initiator:_filtered",),
            ("test_C7_insert_only",),
        ),
        Rule(
            "C8",
            "A partitioned table as a whole is no candidate, only its partitions are.",
            ("services.initiator:_filtered",),
            ("test_C8_partitioned_table_without_partition",),
        ),
        Rule(
            "C9",
            "After `hive.compactor.initiator.failed.compacts.threshold` failures in a row an"
            " entity is only noted as `did not initiate`, until"
            " `hive.compactor.initiator.failed.retry.time` has passed.",
            ("services.initiator:_filtered",),
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
            ("services.initiator:check",),
            (
                "test_C2_C11_many_aborts",
                "test_C11_comes_before_C12_before_the_sizes",
            ),
        ),
        Rule(
            "C12",
            "An old aborted transaction asks for a minor compaction.",
            ("services.initiator:check",),
            ("test_C2_C12_old_abort",),
        ),
        Rule(
            "C13",
            "The bytes of all live deltas are compared with those of the base, or of the"
            " original files where there is no base.",
            (
                "compaction.entity_size:entity_size",
                "compaction.entity_size:EntitySize",
            ),
            (
                "test_S16_C13_entity_size",
                "test_C13_original_files_count_without_a_base",
            ),
        ),
        Rule(
            "C14",
            "Where an entity has neither a base nor original files no bytes are compared: the"
            " number of its deltas decides.",
            ("services.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C15",
            "Deltas of more than `hive.compactor.delta.pct.threshold` of the base ask for a"
            " major compaction.",
            ("services.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C16",
            "An obsolete base beside no delta asks for a major compaction. Beside another base"
            " alone it is ready for cleaning at once: no Worker has anything to merge.",
            ("services.initiator:check", "metastore.rules.compaction_queue"),
            (
                "test_C13_to_C21_sizes",
                "test_C16_what_an_overwrite_replaced_is_cleaned_without_a_worker",
            ),
        ),
        Rule(
            "C17",
            "As many delta directories as `hive.compactor.delta.num.threshold`, or fewer, ask"
            " for nothing by their number.",
            ("services.initiator:check",),
            (
                "test_C13_to_C21_sizes",
                "test_C17_initiator_explains_and_then_asks",
            ),
        ),
        Rule(
            "C18",
            "More delta directories than `hive.compactor.delta.num.threshold` ask for a major"
            " compaction where there is no base.",
            ("services.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C19",
            "Where a minor compaction is not possible, as with layout hive3 over deltas and"
            " delete_deltas, a major one is asked for in its place.",
            ("services.initiator:check",),
            ("test_C19_minor_not_possible",),
        ),
        Rule(
            "C20",
            "More delta directories than `hive.compactor.delta.num.threshold` ask for a minor"
            " compaction where there is a base.",
            ("services.initiator:check",),
            ("test_C13_to_C21_sizes",),
        ),
        Rule(
            "C21",
            "All thresholds are strict: what equals a threshold asks for nothing.",
            ("services.initiator:check",),
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
                "services.initiator:Thresholds.for_table",
                "compaction.plan:CompactionSettings.of",
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
            ("metastore.rules.compaction_queue",),
            (
                "test_C24_one_request_per_entity",
                "test_C24_ready_for_cleaning_blocks_until_something_is_written",
            ),
        ),
        Rule(
            "C25",
            "A task whose Worker died, or took longer than `hive.compactor.worker.timeout`,"
            " waits in the queue again.",
            ("metastore.rules.compaction_queue",),
            (
                "test_C25_revocation",
                "test_C25_the_compaction_of_a_killed_run_is_initiated_again",
            ),
        ),
        Rule(
            "C26",
            "Tasks are taken in the order of their ids, each by one Worker. One whose table is"
            " locked EXCLUSIVE waits in the queue.",
            ("metastore.rules.compaction_queue",),
            (
                "test_C26_tasks_are_taken_in_order_and_once",
                "test_C26_a_task_waits_while_a_lock_keeps_it_from_its_own",
            ),
        ),
        Rule(
            "C27",
            "A compaction that is not possible is refused with its reason: an unknown kind, a"
            " table or partition that is gone, a minor one over files without ACID columns.",
            (
                "compaction.plan:_minor_refused",
                "metastore.rules.compaction_queue",
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
                "test_C28_exclusive_lock_puts_the_task_back",
                "test_C28_a_table_that_is_locked_waits_and_is_compacted_then",
            ),
        ),
        Rule(
            "C29",
            "A major compaction needs original files or more than one directory, a minor one"
            " more than one delta, where a delta and its delete_delta alone are not enough;"
            " otherwise the task ends as refused, or as ready for cleaning if there is something"
            " to remove.",
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
                "compaction.execution:execute",
            ),
            (
                "test_C32_failure_keeps_the_table_and_excludes_the_output",
                "test_C32_what_a_merge_changed_is_named_and_not_published",
            ),
        ),
        Rule(
            "C33",
            "When a transaction aborts that wrote to unknown partitions of a table, the request"
            " for it goes straight to the Cleaner.",
            ("metastore.rules.compaction_queue",),
            ("test_C33_aborted_dynamic_partitions_go_straight_to_the_cleaner",),
        ),
        Rule(
            "C34",
            "More files than `hive.compactor.max.num.delta` are first merged in groups of so many.",
            ("compaction.rewrite:Rewrite",),
            ("test_C34_more_inputs_than_allowed_are_merged_in_stages",),
        ),
        Rule(
            "C36",
            "Reads and writes go on during a compaction; what is written meanwhile stays in its"
            " own deltas.",
            ("services.worker",),
            ("test_C36_writes_go_on_during_a_compaction",),
        ),
        *cleaning.RULES,
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
