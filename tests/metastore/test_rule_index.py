"""Which test proves which rule of transactions.md and of the platform, and what is not built.

A rule needs a test whose name has its number, or the reason why there is nothing to test. The rules
are written down here, as the specification is not part of the repository.
"""

from __future__ import annotations

import pytest

from tests.rule_index import NotBuilt, names, numbered, require_named

RULES: dict[str, str | NotBuilt] = {
    # life cycle
    "T1": "test_case_01_T1_T3_batches",
    "T2": "test_case_02_T2_limit_of_ten",
    "T3": "test_case_01_T1_T3_batches",
    "T4": "test_case_35_T4_who_opens_after_an_updates_commit_sees_it",
    "T5": "test_case_19_S1_T5_T41_no_id_appears_below_a_snapshot_later",
    "T6": NotBuilt("MIN_HISTORY_LEVEL is Hive's way to know the oldest snapshot (P1)"),
    "T7": "test_case_06_T7_T10_T12_ends_twice",
    "T8": "test_case_05_T8_range_heartbeat",
    "T9": "test_T9_P7_heartbeats_of_the_transactions_that_somebody_holds",
    "T10": "test_case_06_T7_T10_T12_ends_twice",
    "T11": "test_T11_T46_an_aborted_writer_keeps_its_components",
    "T12": "test_T12_abort",
    "T13": "test_T13_strictly_older_than_the_timeout",
    "T14": "test_case_04_T14_a_heartbeat_before_the_reaper_counts_whoever_else_is_reaped",
    "T15": "test_case_03_T13_T15_a_heartbeat_rescues_until_the_reaper_has_run",
    "T16": "test_T16_a_lock_without_a_transaction_lives_by_its_own_heartbeats",
    # write ids
    "T17": "test_case_08_T17_T18_T19_write_ids_of_several",
    "T18": "test_case_08_T17_T18_T19_write_ids_of_several",
    "T19": "test_T18_T19_T21_order_of_allocation",
    "T20": "test_T20_write_ids_of_exclusive_writers_commit_in_their_order",
    "T21": "test_case_07_T18_T19_T21_write_ids_in_order_of_allocation",
    "T22": "test_T22_a_converted_table_goes_on_above_its_seed_and_is_seeded_once",
    # what was touched
    "T23": "test_T23_only_writes_are_recorded_and_with_their_lock",
    "T24": "test_T24_partitions",
    "T25": "test_T25_a_static_partition_is_in_its_row_and_none_in_that_of_a_whole_table",
    "T26": "test_T26_the_strictest_operation_of_a_dynamic_table",
    "T27": "test_T26_T27_T37_dynamic_partitions_are_those_reported",
    "T28": "test_T28_a_dynamic_writer_that_aborts_keeps_its_row",
    "T29": "test_T29_a_directory_that_is_reported_twice_counts_once",
    # commit
    "T30": "test_T30_the_later_committer_conflicts_iff_it_opened_before",
    "T31": "test_T31_first_committer_wins",
    "T32": "test_T32_intervals",
    "T33": "test_T33_the_loser_is_aborted_and_excluded",
    "T34": "test_T34_P6_statement_locks",
    "T35": "test_T35_L2_two_updates_under_both_settings_of_xlock_write",
    "T36": NotBuilt("what 2.3 did otherwise; T31 holds here, deletes against deletes included"),
    "T37": "test_T37_static_partitions",
    "T38": "test_T27_T38_an_update_that_matched_nothing",
    "T39": "test_T39_read_only_commits_leave_no_trace",
    "T40": "test_T40_stale_says_that_a_conflict_committed_before_the_grant",
    # purges
    "T41": "test_case_19_S1_T5_T41_no_id_appears_below_a_snapshot_later",
    "T42": "test_case_18_S1_T42_a_reader_is_not_listed_but_holds_the_watermark",
    "T43": "test_T43_aborted_transactions_go_with_their_components",
    "T44": "test_T44_write_set_rows_go_below_the_oldest_writer",
    "T45": "test_T45_an_open_snapshot_keeps_the_mapping",
    "T46": "test_T11_T46_an_aborted_writer_keeps_its_components",
    "T47": NotBuilt(
        "a reduction that Hive may do; reports of directories take the place of"
        " COMPLETED_TXN_COMPONENTS (P8)"
    ),
    # snapshots
    "S1": "test_S1_S2_the_list_of_a_transaction",
    "S2": "test_S2_reader_sees_nothing_above_itself_and_itself",
    "S3": "test_S3_valid_and_aborted",
    "S4": "test_S4_the_list_is_taken_once",
    "S5": "test_S5_text_form",
    "S6": "test_S6_ranges",
    "S7": "test_S7_S8_write_ids_below_and_above_the_watermark",
    "S8": "test_S8_open_and_aborted",
    "S9": "test_S9_a_write_id_without_a_mapping_counts_as_committed",
    "S10": "test_S10_P5_is_not_how_the_high_watermark_is_found",
    "S11": "test_S11_valid_write_ids",
    "S12": "test_S12_valid_base",
    "S13": "test_S13_text_form",
    "S14": "test_S14_ranges",
    "S15": "test_S15_rows_are_tested_unless_the_whole_range_is_valid",
    "S16": "test_S16_values",
    "S17": "test_S17_the_cleaner_sees_what_all_see",
    "S18": "test_C46_S18_the_output_of_an_aborted_compaction_goes_its_inputs_stay",
    # locks
    "L1": "test_case_34_L1_a_request_is_only_compared_with_those_before_it",
    "L2": "test_case_25_L2_every_cell_against_a_holder_and_against_a_waiter",
    "L3": "test_L3_all_or_nothing",
    "L4": "test_L4_levels",
    "L5": "test_L5_own_locks_do_not_block",
    "L6": "test_L6_database_read_does_not_meet_table_exclusive",
    "L7": "test_L7_partitions_lock_apart",
    "L8": NotBuilt("reads take a lease on the snapshot, no locks of partitions (P12)"),
    "L9": NotBuilt("there are no read locks to turn off: reads take a lease (P12)"),
    "L10": "test_L10_zero_wait_leaves_nothing",
    "L11": "test_L11_timeout_names_the_blocking_lock_and_aborts_what_it_began",
    "L12": "test_L12_aborted_while_waiting",
    "L13": "test_L13_a_stronger_lock_queues",
    "L14": "test_L14_who_asks_once_for_everything_never_deadlocks",
    "L15": "test_L15_what_a_transaction_holds_ends_with_it",
    "L16": "test_L16_a_request_that_is_sent_again_is_the_same_one",
    # the platform's own
    "P1": "test_P1_types_that_are_not_built_are_refused_by_name",
    "P2": "test_P2_the_loser_of_reap_and_commit_learns_who_won",
    "P3": "test_P3_every_invariant_holds_after_every_step",
    "P4": "test_P4_an_aborted_write_id_outlives_its_transaction",
    "P5": "test_P5_a_purged_mapping_stays_visible",
    "P6": "test_P6_an_insert_below_a_committed_overwrite_conflicts",
    "P7": "test_P7_a_restart_gives_one_fresh_timeout",
    "P8": "test_P8_entities_come_from_reports",
    "P9": "test_P9_settings_are_checked_and_kept",
    "P10": "test_P10_network_file_systems_are_refused",
    "P12": "test_P12_a_lease_ends_after_the_last_read",
    "P24": "test_P24_adoption",
    "P26": "test_P26_a_snapshot_is_given_the_files_of_each_commit",
    "P27": "test_P27_every_acknowledged_commit_survives_a_power_cut",
    "P28": "test_P28_a_rename_changes_nothing_for_older_snapshots",
    "P29": "test_P29_files_are_answered_while_the_snapshot_lives_and_not_after",
    "P30": "test_P30_an_overwrite_that_misses_an_insert_is_told_at_its_lock",
    "P31": "test_P31_a_restored_copy_leaves_the_original_byte_for_byte_as_it_was",
    "P32": "test_P32_the_file_has_the_six_columns_and_hives_keys",
}


EVERY = [
    *numbered("T", 47),
    *numbered("S", 18),
    *numbered("L", 16),
    *numbered("P", 10),
    "P12",
    "P24",
    "P26",
    "P27",
    "P28",
    "P29",
    "P30",
    "P31",
    "P32",
]


def test_every_rule_is_in_the_index() -> None:
    assert sorted(RULES) == sorted(EVERY)


@pytest.mark.parametrize("rule", EVERY)
def test_a_rule_has_a_test_of_its_name_or_a_reason(rule: str) -> None:
    require_named(rule, RULES[rule])


@pytest.mark.parametrize("case", range(1, 36))
def test_a_case_has_a_test_of_its_number(case: int) -> None:
    assert any(name.startswith(f"test_case_{case:02}_") for name in names())
