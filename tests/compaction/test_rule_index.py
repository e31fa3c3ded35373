"""Which test proves which rule of compaction.md, and each of its cases; and what is not built.

A rule needs a test whose name has its number, or the reason why there is nothing to test. The rules
are written down here, as the specification is not part of the repository.
"""

from __future__ import annotations

import pytest

from tests.rule_index import NotBuilt, numbered, require_named, require_test

RULES: dict[str, str | NotBuilt] = {
    # candidates and filter
    "C1": "test_C1_the_first_cycle_looks_at_all_later_ones_at_what_changed",
    "C2": "test_C2_aborted_transactions_are_counted_per_entity",
    "C3": "test_C3_candidates_come_in_pages_of_the_fetch_size",
    "C4": "test_C4_C10_what_was_dropped_is_no_candidate",
    "C5": "test_C5_no_auto_compaction",
    "C6": "test_C6_only_waiting_and_working_rows_block",
    "C7": "test_C7_insert_only",
    "C8": "test_C8_partitioned_table_without_partition",
    "C9": "test_C9_too_many_failures",
    "C10": "test_C4_C10_what_was_dropped_is_no_candidate",
    # decision
    "C11": "test_C2_C11_many_aborts",
    "C12": "test_C2_C12_old_abort",
    "C13": "test_C13_the_counters_are_those_of_the_selection",
    "C14": "test_C13_to_C21_sizes",
    "C15": "test_C13_to_C21_sizes",
    "C16": "test_C13_to_C21_sizes",
    "C17": "test_C13_to_C21_sizes",
    "C18": "test_C13_to_C21_sizes",
    "C19": "test_C19_minor_not_possible",
    "C20": "test_C13_to_C21_sizes",
    "C21": "test_C13_to_C21_sizes",
    "C22": "test_C22_table_properties_win_on_their_table_only",
    "C23": "test_C23_one_broken_entity_leaves_a_row_and_the_cycle_goes_on",
    "C24": "test_C24_one_request_per_entity",
    "C25": "test_C25_each_cycle_revokes_workers_that_timed_out",
    # worker
    "C26": "test_C26_tasks_are_taken_in_order_and_once",
    "C27": "test_C27_C58_what_is_refused",
    "C28": "test_C28_the_transaction_of_a_compaction",
    "C29": "test_C29_major",
    "C30": "test_C30_commit_is_one_step",
    "C31": "test_C31_major_is_named_after_the_high_watermark",
    "C32": "test_C32_failure_keeps_the_table_and_excludes_the_output",
    "C33": "test_C33_aborted_dynamic_partitions_go_straight_to_the_cleaner",
    "C34": "test_C34_more_inputs_than_allowed_are_merged_in_stages",
    "C35": NotBuilt("statistics come from the reports of writers (P8); no column statistics"),
    "C36": "test_C36_writes_go_on_during_a_compaction",
    # cleaner
    "C37": "test_C37_only_rows_that_are_ready_for_cleaning_are_cleaned",
    "C38": "test_C38_delayed_cleanup",
    "C39": "test_C39_the_lower_watermark_first",
    "C40": "test_C40_C41_the_boundary",
    "C41": "test_C40_C41_the_boundary",
    "C42": "test_C42_another_table_holds_only_the_global_watermark",
    "C43": NotBuilt("what 2.3 and 3.1 did instead: since 4.0 open transactions hold the Cleaner"),
    "C44": "test_C44_no_cleanup_refuses",
    "C45": "test_C45_what_is_not_visible_to_all_covers_nothing",
    "C46": "test_C46_obsolete_and_aborted_and_nothing_else",
    "C47": "test_C47_something_left_stays_for_the_next_cycle",
    "C48": "test_C48_P25_retries_count_from_the_failed_attempt",
    "C49": "test_C49_mark_cleaned",
    "C50": "test_C50_thresholds",
    "C51": "test_C51_the_lists_stop_below_open_transactions",
    "C52": "test_C52_the_others_remove_obsolete_ones_too",
    "C53": "test_C53_a_batch_with_aborted_and_committed_write_ids_stays",
    "C54": "test_C54_aborts_are_retried_without_limit",
    "C55": "test_C55_dynamic_abort_removes_aborted_directories_only",
    "C56": NotBuilt("soft delete is left out (P1); drops are cleaned by P22"),
    # history, commands
    "C57": "test_C57_retention_counts",
    "C58": "test_C27_C58_what_is_refused",
    "C59": "test_case_32_C59_waiting_ends_with_the_work_or_after_the_timeout_and_cancels_nothing",
    "C60": "test_C60_abort_compactions",
    "C61": "test_C61_C62_show_compactions",
    "C62": "test_C61_C62_show_compactions",
    # the platform's own
    "P1": "test_P1_types_that_are_not_built_are_refused_by_name",
    "P8": "test_P8_entities_come_from_reports",
    "P9": "test_P9_one_holds_the_lease_and_a_dead_holder_loses_it",
    "P20": "test_P20_update_delete_and_insert_in_one_statement",
    "P21": "test_P21_only_the_owner_publishes",
    "P25": "test_C48_P25_retries_count_from_the_failed_attempt",
}

CASES: dict[int, str | NotBuilt] = {
    1: "test_C13_to_C21_sizes",
    2: "test_C13_to_C21_sizes",
    3: "test_C13_to_C21_sizes",
    4: "test_C29_not_enough_but_something_to_clean",
    5: "test_C22_table_properties_win_on_their_table_only",
    6: "test_case_06_S16_C31_an_open_write_id_bounds_decision_and_result",
    7: "test_case_07_C5_without_auto_compaction_a_request_by_hand_works",
    8: "test_C2_C11_many_aborts",
    9: "test_C8_partitioned_table_without_partition",
    10: "test_C24_one_request_per_entity",
    11: "test_case_11_C9_after_two_failures_only_a_request_by_hand",
    12: "test_C26_tasks_are_taken_in_order_and_once",
    13: "test_C25_each_cycle_revokes_workers_that_timed_out",
    14: "test_C29_major",
    15: "test_C28_exclusive_lock_fails_the_task",
    16: "test_C36_writes_go_on_during_a_compaction",
    17: "test_C46_S18_the_output_of_an_aborted_compaction_goes_its_inputs_stay",
    18: "test_C40_C41_the_boundary",
    19: "test_C40_C41_the_boundary",
    20: "test_C42_another_table_holds_only_the_global_watermark",
    21: "test_C39_the_lower_watermark_first",
    22: "test_C38_delayed_cleanup",
    23: "test_C49_C53_which_aborted_write_ids_may_be_forgotten",
    24: "test_C53_a_batch_with_aborted_and_committed_write_ids_stays",
    25: "test_C55_dynamic_abort_removes_aborted_directories_only",
    26: "test_case_26_C44_a_table_that_was_dropped_before_its_cleaning",
    27: "test_C48_P25_retries_count_from_the_failed_attempt",
    28: "test_C47_done_when_a_second_listing_shows_nothing_obsolete",
    29: "test_C49_mark_cleaned",
    30: "test_C57_retention_counts",
    31: "test_C1_the_first_cycle_looks_at_all_later_ones_at_what_changed",
    32: "test_case_32_C59_waiting_ends_with_the_work_or_after_the_timeout_and_cancels_nothing",
    33: "test_C61_C62_show_compactions",
    34: "test_case_34_every_held_snapshot_keeps_its_rows_through_minor_major_and_cleaning",
    35: "test_case_35_C7_C20_insert_only",
    36: NotBuilt("rebalance is left out (P1): test_C27_C58_what_is_refused refuses it by name"),
}

EVERY = [*numbered("C", 62), "P1", "P8", "P9", "P20", "P21", "P25"]


def test_every_rule_and_case_is_in_the_index() -> None:
    assert sorted(RULES) == sorted(EVERY)
    assert sorted(CASES) == list(range(1, 37))


@pytest.mark.parametrize("rule", EVERY)
def test_a_rule_has_a_test_of_its_name_or_a_reason(rule: str) -> None:
    require_named(rule, RULES[rule])


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_case_has_a_test_or_a_reason(case: int) -> None:
    require_test(f"case {case}", CASES[case])
