"""C37 to C62: cleaning, history and what is shown of both."""

from __future__ import annotations

from scripts.rule_book.rule import Rule

RULES = (
    Rule(
        "C37",
        "The Cleaner takes tasks that are ready for cleaning, and no others.",
        ("metastore.rules.cleaning_survey",),
        ("test_C37_only_rows_that_are_ready_for_cleaning_are_cleaned",),
    ),
    Rule(
        "C38",
        "With `hive.compactor.delayed.cleanup.enabled` a task waits"
        " `hive.compactor.cleaner.retention.time.seconds` after its compaction's commit.",
        (
            "metastore.rules.cleaning_survey",
            "services.cleaner",
        ),
        ("test_C38_delayed_cleanup",),
    ),
    Rule(
        "C39",
        "Of several tasks for an entity the one with the lowest highest write id comes first.",
        ("metastore.rules.cleaning_survey",),
        ("test_C39_the_lower_watermark_first",),
    ),
    Rule(
        "C40",
        "A task may run when no transaction is open that is older than the next transaction"
        " id at its compaction's commit and may need the table (C42).",
        ("metastore.rules.cleaning_survey",),
        ("test_C40_C41_the_boundary",),
    ),
    Rule(
        "C41",
        "A directory goes only when nobody can need it: every transaction that began before"
        " the compaction's (or the drop's) commit, and that may read the table, has ended,"
        " readers included.",
        (
            "metastore.rules.cleaning_survey",
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
            "compaction.cleaning_plan:no_cleanup",
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
        ("compaction.cleaning_plan:_must_stay",),
        ("test_C45_what_is_not_visible_to_all_covers_nothing",),
    ),
    Rule(
        "C46",
        "The Cleaner removes obsolete directories and those of aborted write ids alone,"
        " never one with a valid or open write id that is not read elsewhere.",
        (
            "compaction.cleaning_plan:plan_cleaning",
            "compaction.cleaning_plan:_must_stay",
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
            "compaction.cleaning_plan:CleaningPlan.complete",
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
            "compaction.cleaning_plan:_forgettable",
        ),
        (
            "test_C49_mark_cleaned",
            "test_C49_C53_which_aborted_write_ids_may_be_forgotten",
        ),
    ),
    Rule(
        "C50",
        "With `hive.compactor.clean.aborts.using.cleaner` the Cleaner removes directories"
        " of aborted transactions without a compaction. Beyond the thresholds of C2 they ask for"
        " a cleaning; below, the next one takes them along.",
        ("metastore.rules.cleaning",),
        ("test_C50_thresholds", "test_C50_the_next_cleaning_takes_few_aborts_along"),
    ),
    Rule(
        "C51",
        "When the Cleaner removes what aborts left, it looks only below the lowest open"
        " write and spares what an open snapshot may read.",
        ("metastore.rules.cleaning",),
        (
            "test_C51_the_lists_stop_below_open_transactions",
            "test_C51_readers_of_any_table_keep_their_files",
        ),
    ),
    Rule(
        "C52",
        "When the Cleaner removes what aborts left, it removes obsolete directories too.",
        ("compaction.cleaning_plan",),
        ("test_C52_the_others_remove_obsolete_ones_too",),
    ),
    Rule(
        "C53",
        "A directory with committed and aborted write ids stays, and the aborted ones stay"
        " known as aborted.",
        (
            "compaction.cleaning_plan:_undeletable",
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
        "After an abort of a transaction that wrote to unknown partitions every partition"
        " is searched, and only aborted directories go.",
        (
            "compaction.cleaning_plan:plan_cleaning",
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
        "COMPACT only enqueues: one request for the partition that it names, or for each"
        " partition of the table; an unknown kind or partition is an error.",
        (
            "metastore.rules.compaction_queue",
            "handles.table:Table.compact",
        ),
        ("test_C27_C58_what_is_refused",),
    ),
    Rule(
        "C59",
        "Waiting for a compaction ends with it or after `hive.compactor.wait.timeout`, and"
        " the end of the wait cancels nothing.",
        ("handles.warehouse:Warehouse.compact",),
        ("test_case_32_C59_waiting_ends_with_the_work_or_after_the_timeout_and_cancels_nothing",),
    ),
    Rule(
        "C60",
        "ABORT COMPACTIONS aborts tasks that nobody took yet, and says of each id what"
        " became of it.",
        ("metastore.rules.compaction_queue",),
        ("test_C60_abort_compactions",),
    ),
    Rule(
        "C61",
        "SHOW COMPACTIONS lists the queue and the history with Hive's columns and the texts"
        " of its states.",
        (
            "metastore.rules.listings",
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
        ("metastore.rules.listings",),
        ("test_C61_C62_show_compactions",),
    ),
)
