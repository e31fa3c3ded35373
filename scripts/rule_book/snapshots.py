"""S: what a snapshot sees."""

from __future__ import annotations

from scripts.rule_book.rule import Group, NotBuilt, Rule

_LISTS = ("transactions.lists",)
_OF_METASTORE = ("metastore.rules.snapshots",)

GROUP = Group(
    "S",
    "Snapshots",
    "A snapshot is a list of transactions (ValidTxnList) and, for each table, the list of write"
    " ids that follows from it (ValidWriteIdList): a high watermark, and the open and the aborted"
    " ids at or below it.",
    (
        Rule(
            "S1",
            "The list of transactions has the highest transaction id as its high watermark, and"
            " every open and aborted writer as an exception; readers are left out.",
            _OF_METASTORE,
            ("test_S1_S2_the_list_of_a_transaction",),
        ),
        Rule(
            "S2",
            "A transaction sees itself, and nothing of a transaction with a higher id.",
            _LISTS,
            ("test_S2_reader_sees_nothing_above_itself_and_itself",),
        ),
        Rule(
            "S3",
            "A transaction counts as committed for a list if it is at or below the high watermark"
            " and is no exception.",
            _LISTS,
            ("test_S3_valid_and_aborted",),
        ),
        Rule(
            "S4",
            "A transaction takes its snapshot once; all its statements see this snapshot and the"
            " transaction's own writes.",
            _OF_METASTORE,
            (
                "test_S4_the_list_is_taken_once",
                "test_S4_a_snapshot_is_the_same_whoever_ended_since",
            ),
        ),
        Rule(
            "S5",
            "A list of transactions is written and read as Hive's text, `high watermark:lowest"
            " open:open ids:aborted ids`.",
            _LISTS,
            ("test_S5_text_form", "test_S5_S13_round_trip"),
        ),
        Rule(
            "S6",
            "A list tells of a range of ids whether all, some or none of them are valid, and the"
            " same for aborted.",
            _LISTS,
            ("test_S6_ranges", "test_S6_aborted_ranges"),
        ),
        Rule(
            "S7",
            "The high watermark of a table is the highest write id of a transaction at or below"
            " the list's high watermark, and 0 for a table that was never written.",
            _OF_METASTORE,
            (
                "test_S7_S8_write_ids_below_and_above_the_watermark",
                "test_S7_a_table_never_written",
            ),
        ),
        Rule(
            "S8",
            "A write id at or below the high watermark is an exception unless its transaction is"
            " valid for the list: aborted if that one was aborted, else open.",
            _OF_METASTORE,
            ("test_S8_open_and_aborted",),
        ),
        Rule(
            "S9",
            "A write id whose transaction is forgotten counts as committed, unless it is kept as"
            " aborted (P4).",
            _OF_METASTORE,
            ("test_S9_a_write_id_without_a_mapping_counts_as_committed",),
        ),
        Rule(
            "S11",
            "A write id is valid if it is at or below the high watermark and is no exception.",
            _LISTS,
            ("test_S11_valid_write_ids",),
        ),
        Rule(
            "S12",
            "A compacted base is usable only if no write id at or below its own is open or above"
            " the high watermark; aborted ones do not matter.",
            _LISTS,
            ("test_S12_valid_base", "test_S12_aborted_writes_below_a_base_do_not_matter"),
        ),
        Rule(
            "S13",
            "A list of write ids is written and read as Hive's text, the table's name before that"
            " of S5.",
            _LISTS,
            ("test_S13_text_form",),
        ),
        Rule(
            "S14",
            "Lists of write ids answer about ranges as Hive's classes do, value by value.",
            _LISTS,
            ("test_S14_ranges", "test_S14_aborted_ranges"),
        ),
        Rule(
            "S15",
            "Where a directory mixes valid and invalid write ids, each of its rows is judged by"
            " its own write id.",
            ("scan.acid_directory", "scan.source_files"),
            ("test_S15_rows_are_tested_unless_the_whole_range_is_valid",),
        ),
        Rule(
            "S16",
            "A compaction merges nothing at or above the lowest open write id, and of a directory"
            " all or nothing.",
            ("transactions.lists:ValidWriteIdList.for_compactor",),
            ("test_S16_never_past_an_open_write", "test_S16_compactor_never_answers_some"),
        ),
        Rule(
            "S17",
            "The Cleaner judges by lists in which only that is valid which every open snapshot"
            " sees.",
            ("metastore.rules.snapshots", "transactions.lists:ValidWriteIdList.capped"),
            (
                "test_S17_the_cleaners_lists_hold_what_every_snapshot_sees",
                "test_S17_capped_list_keeps_what_is_aborted_above",
            ),
        ),
        Rule(
            "S18",
            "A directory that a compaction made (`_v` and its transaction id) exists only for"
            " snapshots that see this transaction as committed.",
            ("scan.selection",),
            (
                "test_S18_a_reader_that_misses_the_compaction_reads_the_old_directories",
                "test_C46_S18_the_output_of_an_aborted_compaction_goes_its_inputs_stay",
            ),
        ),
    ),
    (
        NotBuilt(
            "S10",
            "Hive lowers the high watermark when the mappings of all valid writes were purged,"
            " which can hide committed rows; P5 holds instead.",
        ),
    ),
)
