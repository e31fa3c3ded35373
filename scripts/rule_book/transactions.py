"""T: transactions, write ids and commits."""

from __future__ import annotations

from scripts.rule_book.rule import Group, NotBuilt, Rule

_TXNS = ("metastore.rules.txns",)
_COMMITS = ("metastore.rules.commits",)
_REAPER = ("metastore.rules.housekeeping",)
_CONFLICTS = ("transactions.conflicts",)

GROUP = Group(
    "T",
    "Transactions, write ids and commits",
    "A transaction is open (`o`), committed (`c`) or aborted (`a`). Its id is unique in the"
    " warehouse. Each table that it writes gives it one write id, which is part of the names of"
    " the directories that it publishes.",
    (
        Rule(
            "T1",
            "One call opens at most `hive.txn.max.open.batch` transactions; when more are asked"
            " for it opens that many without an error, and a count below 1 is an error.",
            _TXNS,
            ("test_case_01_T1_T3_batches", "test_T1_batch"),
        ),
        Rule(
            "T2",
            "Once `hive.max.open.txns` transactions are open no other can begin until fewer than"
            " 90 % of that number are open; they are counted every"
            " `hive.count.open.txns.interval`, so the limit may be exceeded in between.",
            _TXNS,
            ("test_case_02_T2_limit_of_ten", "test_T2_limit_with_hysteresis"),
        ),
        Rule(
            "T3",
            "A transaction begins in state open with its heartbeat at the present time, and the"
            " ids of one call ascend.",
            _TXNS,
            ("test_case_01_T1_T3_batches",),
        ),
        Rule(
            "T4",
            "No transaction can begin between the conflict check of a commit and the moment at"
            " which that commit is visible.",
            _TXNS,
            ("test_case_35_T4_a_transaction_opened_after_a_commit_sees_it",),
        ),
        Rule(
            "T5",
            "No transaction id below a snapshot's high watermark appears after that snapshot was"
            " taken.",
            _TXNS,
            ("test_case_19_S1_T5_T41_no_id_appears_below_a_snapshot_later",),
        ),
        Rule(
            "T7",
            "A heartbeat or any other call for a transaction that is not open raises TxnAborted if"
            " it was aborted, and NoSuchTxn if it was committed or is unknown.",
            _TXNS,
            ("test_case_06_T7_T10_T12_ends_twice",),
        ),
        Rule(
            "T8",
            "One heartbeat for several transactions raises nothing: it refreshes those that are"
            " open and returns which are aborted and which are unknown.",
            _TXNS,
            ("test_case_05_T8_range_heartbeat", "test_T8_range_heartbeat_never_raises"),
        ),
        Rule(
            "T9",
            "A client sends heartbeats for its open transactions at half of `hive.txn.timeout`.",
            ("metastore.client.heartbeats", "base.config:Settings.heartbeat_interval"),
            ("test_T9_P7_heartbeats_of_the_transactions_that_somebody_holds",),
        ),
        Rule(
            "T10",
            "Committing an open transaction commits it; committing it again changes nothing and"
            " succeeds; committing an aborted one raises TxnAborted.",
            _COMMITS,
            ("test_case_06_T7_T10_T12_ends_twice", "test_T10_commit_twice_is_one_commit"),
        ),
        Rule(
            "T11",
            "An abort ends the locks of a transaction but keeps its write ids and what it touched,"
            " so that readers and the Cleaner know what is aborted.",
            ("metastore.rules.endings",),
            ("test_T11_T46_an_aborted_writer_keeps_its_components",),
        ),
        Rule(
            "T12",
            "Aborting an aborted transaction is no error, aborting a committed one raises"
            " NoSuchTxn, and ABORT TRANSACTIONS skips whatever is not open and returns how many it"
            " aborted.",
            _COMMITS,
            ("test_case_06_T7_T10_T12_ends_twice", "test_T12_abort"),
        ),
        Rule(
            "T13",
            "The reaper aborts transactions whose last heartbeat is older than"
            " `hive.txn.timeout`; exactly as old is not enough.",
            _REAPER,
            ("test_T13_strictly_older_than_the_timeout",),
        ),
        Rule(
            "T14",
            "A heartbeat that arrives before the reaper decides saves its transaction, whichever"
            " others are reaped.",
            _REAPER,
            ("test_case_04_T14_a_heartbeat_before_the_reaper_counts_whoever_else_is_reaped",),
        ),
        Rule(
            "T15",
            "A transaction that is past its timeout stays usable until the reaper has run.",
            _REAPER,
            ("test_case_03_T13_T15_a_heartbeat_rescues_until_the_reaper_has_run",),
        ),
        Rule(
            "T16",
            "A lock without a transaction lives by its own heartbeats and is removed after"
            " `hive.txn.timeout`; a lock of a transaction ends only with the transaction.",
            ("metastore.rules.other_engine_requests",),
            ("test_T16_a_lock_without_a_transaction_lives_by_its_own_heartbeats",),
        ),
        Rule(
            "T17",
            "Only open transactions that may write get write ids; if one of several may not, the"
            " error names it and none of them gets any.",
            _TXNS,
            (
                "test_T17_no_write_id_for_ended_or_reading_transactions",
                "test_case_08_T17_T18_T19_write_ids_of_several",
            ),
        ),
        Rule(
            "T18",
            "A transaction has at most one write id per table, the same however often it asks.",
            _TXNS,
            ("test_T18_T19_T21_order_of_allocation",),
        ),
        Rule(
            "T19",
            "The first write id of a table is 1, and several transactions of one call get theirs"
            " in the order of their ids without a gap.",
            _TXNS,
            ("test_T18_T19_T21_order_of_allocation",),
        ),
        Rule(
            "T20",
            "Writers that exclude each other by their locks commit in the order of their write"
            " ids.",
            _TXNS,
            ("test_T20_write_ids_of_exclusive_writers_commit_in_their_order",),
        ),
        Rule(
            "T21",
            "Write ids follow the order in which they were asked for, not that of the transaction"
            " ids or commits.",
            _TXNS,
            ("test_case_07_T18_T19_T21_write_ids_in_order_of_allocation",),
        ),
        Rule(
            "T22",
            "A write id is never used twice: a converted table goes on above the highest one that"
            " its files carry, a rename keeps the counter.",
            _TXNS,
            (
                "test_T22_a_converted_table_goes_on_above_its_seed_and_is_seeded_once",
                "test_T22_a_rename_takes_everything_along",
            ),
        ),
        Rule(
            "T23",
            "What a transaction will insert, update or delete is recorded in the moment in which"
            " its lock is granted; reads and DDL record nothing.",
            ("metastore.rules.lock_requests",),
            ("test_T23_only_writes_are_recorded_and_with_their_lock",),
        ),
        Rule(
            "T24",
            "Names of databases, tables and partition columns are in lower case wherever they are"
            " recorded; partition values keep their case.",
            ("metastore.rules.table_declarations",),
            ("test_T24_partitions",),
        ),
        Rule(
            "T25",
            "A write to a named partition is recorded with that partition, a write to an"
            " unpartitioned table with none.",
            ("metastore.rules.lock_requests",),
            ("test_T25_a_static_partition_is_in_its_row_and_none_in_that_of_a_whole_table",),
        ),
        Rule(
            "T26",
            "A write to partitions that only its rows tell is recorded once for the whole table,"
            " under the strictest of its operations.",
            ("metastore.rules.lock_requests",),
            ("test_T26_the_strictest_operation_of_a_dynamic_table",),
        ),
        Rule(
            "T27",
            "At the commit the record of the whole table is replaced by the partitions that were"
            " really written.",
            _COMMITS,
            ("test_T26_T27_T37_dynamic_partitions_are_those_reported",),
        ),
        Rule(
            "T28",
            "A transaction that aborts before it reported its partitions keeps the record of the"
            " whole table, so that the Cleaner looks into every partition.",
            _COMMITS,
            ("test_T28_a_dynamic_writer_that_aborts_keeps_its_row",),
        ),
        Rule(
            "T29",
            "A directory that is reported twice counts once.",
            _COMMITS,
            ("test_T29_a_directory_that_is_reported_twice_counts_once",),
        ),
        Rule(
            "T30",
            "A committed transaction is the interval from its id to the highest transaction id at"
            " its commit.",
            _CONFLICTS,
            ("test_T30_the_later_committer_conflicts_iff_it_opened_before",),
        ),
        Rule(
            "T31",
            "Two transactions that overlap, and that both updated, deleted or overwrote the same"
            " partition (or the same unpartitioned table), conflict: the one that commits first"
            " wins.",
            _CONFLICTS,
            ("test_T31_first_committer_wins", "test_T31_table_is_complete"),
        ),
        Rule(
            "T32",
            "Two transactions overlap if the later committer began before the earlier one"
            " committed; transactions that ran one after the other never conflict.",
            _CONFLICTS,
            ("test_T32_intervals", "test_T32_serial_transactions_do_not_conflict"),
        ),
        Rule(
            "T33",
            "The loser is aborted, its rows stay invisible for good, and WriteConflict names the"
            " resource, both intervals and both operations.",
            _COMMITS,
            (
                "test_T33_the_loser_is_aborted_and_excluded",
                "test_T33_the_reason_names_both_intervals_and_operations",
            ),
        ),
        Rule(
            "T34",
            "INSERT OVERWRITE conflicts as an update does; so does the insert branch of MERGE"
            " under `hive.txn.xlock.mergeinsert`.",
            ("transactions.locks:lock_of", "transactions.conflicts"),
            ("test_T34_P6_statement_locks", "test_T34_merge_insert_setting"),
        ),
        Rule(
            "T35",
            "Under `hive.txn.xlock.write` exclusive locks keep writers apart, and a commit is not"
            " checked for conflicts with what its snapshot sees.",
            ("metastore.rules.write_set",),
            ("test_T35_exclusive_writes_are_serialised_by_their_locks",),
        ),
        Rule(
            "T37",
            "Conflicts are judged by partition, and there by row where both sides name their rows"
            " (P38).",
            _CONFLICTS,
            ("test_T37_only_the_same_partition", "test_T37_static_partitions"),
        ),
        Rule(
            "T38",
            "An UPDATE over dynamic partitions that matched no row has touched nothing and"
            " conflicts with nobody.",
            _COMMITS,
            ("test_T27_T38_an_update_that_matched_nothing",),
        ),
        Rule(
            "T39",
            "The commit of a read-only transaction leaves nothing behind.",
            _COMMITS,
            ("test_T39_read_only_commits_leave_no_trace",),
        ),
        Rule(
            "T40",
            "A single statement whose snapshot misses a commit that it would conflict with begins"
            " again on a new snapshot, at most `hive.txn.max.retrysnapshot.count` times.",
            ("handles.transaction", "metastore.rules.txns"),
            (
                "test_T40_stale_says_that_a_conflict_committed_before_the_grant",
                "test_P30_T40_an_overwrite_succeeds_among_endless_inserts",
            ),
        ),
        Rule(
            "T41",
            "The watermarks never lag: the highest transaction id is known at once.",
            ("metastore.rules.snapshots",),
            ("test_case_19_S1_T5_T41_no_id_appears_below_a_snapshot_later",),
        ),
        Rule(
            "T42",
            "The lowest transaction that is still needed is the lowest open one of any type,"
            " readers included.",
            ("metastore.rules.snapshots",),
            ("test_case_18_S1_T42_a_reader_is_not_listed_but_holds_the_watermark",),
        ),
        Rule(
            "T43",
            "A transaction that ended is forgotten once nothing that it touched is left to"
            " remember; the highest id is never forgotten.",
            _REAPER,
            (
                "test_T43_aborted_transactions_go_with_their_components",
                "test_case_33_T43_T44_T46_what_is_purged",
            ),
        ),
        Rule(
            "T44",
            "What a commit changed is remembered as long as an open writer overlaps with it.",
            ("metastore.rules.write_set",),
            ("test_T44_write_set_rows_go_below_the_oldest_writer",),
        ),
        Rule(
            "T45",
            "Which transaction has which write id is remembered as long as an open snapshot may"
            " ask.",
            _REAPER,
            ("test_T45_an_open_snapshot_keeps_the_mapping",),
        ),
        Rule(
            "T46",
            "An aborted transaction is remembered until no file of it can be left.",
            ("metastore.rules.endings",),
            ("test_T11_T46_an_aborted_writer_keeps_its_components",),
        ),
    ),
    (
        NotBuilt(
            "T6",
            "Hive's MIN_HISTORY_LEVEL finds the oldest snapshot; here the metastore knows it (P1).",
        ),
        NotBuilt("T36", "What Hive 2.3 did: deletes conflict with deletes here too (T31)."),
        NotBuilt(
            "T47",
            "Hive thins out COMPLETED_TXN_COMPONENTS, in whose place reports of directories stand"
            " here (P8).",
        ),
    ),
)
