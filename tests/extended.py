"""What a run of the tests leaves out, unless it is asked for everything (`make test ARGS=--all`) or for a file by name.

CI has minutes on two cores, and these take most of an hour. Left out is what shows a rule a second time: by another door,
in another mode, after another kind of accident, at full size. One proof of each rule stays in. A name stands for all of
its parameters, unless it says which.
"""

from __future__ import annotations

from collections.abc import Mapping

#: By the file, without `tests/` and `.py`.
EXTENDED: Mapping[str, tuple[str, ...]] = {
    "cli/test_adopt": (
        "test_a_partition_that_is_being_built_is_refused_naming_the_job_run",
        "test_columns_that_differ_from_what_is_live_are_refused",
        "test_files_of_our_own_warehouse_are_refused",
        "test_what_was_built_here_is_kept_or_replaced_and_may_be_adopted_again",
    ),
    "cli/test_bad_input": (
        "test_a_database_of_a_newer_version_is_refused_and_left_alone",
        "test_a_log_that_a_fast_clock_left_ahead_is_told_in_one_sentence",
        "test_a_warehouse_that_takes_nothing_is_one_sentence_and_nothing_is_wanted[read-only]",
        "test_what_an_asset_does_wrong_is_its_failure_in_one_sentence[wrong_column-profit]",
        "test_what_an_asset_does_wrong_is_its_failure_in_one_sentence[wrong_type-str]",
        "test_without_java_what_needs_no_spark_is_built_all_the_same",
    ),
    "cli/test_clean": (
        "test_a_file_that_a_dead_process_left_beside_live_data_goes",
        "test_an_arcs_lot_that_was_partial_is_missing_then",
        "test_what_a_failed_attempt_left_is_told_and_goes_when_it_is_said",
        "test_what_cannot_be_removed_is_told_and_the_next_one_goes_on",
        "test_what_no_instance_is_known_of_goes_only_when_it_is_said",
    ),
    "cli/test_cluster": ("test_an_executor_out_of_memory_is_said_so_and_tried_again_but_not_for_ever",),
    "cli/test_init": ("test_the_project_s_readme_is_true_and_its_tests_pass",),
    "cli/test_interruptions": (
        "test_after_kill_9_a_second_build_finishes[JobRunBuffered]",
        "test_after_kill_9_a_second_build_finishes[JobRunDepMissed]",
        "test_after_kill_9_a_second_build_finishes[JobRunStarted]",
    ),
    "cli/test_killed_lots": (
        "test_a_second_sink_that_cannot_be_written_leaves_nothing_of_the_first",
        "test_wherever_an_arrival_is_killed_the_next_look_goes_on_with_it[ArcFired]",
        "test_wherever_an_arrival_is_killed_the_next_look_goes_on_with_it[LotArrived]",
        "test_wherever_an_arrival_is_killed_the_next_look_goes_on_with_it[arrival's event]",
        "test_wherever_it_is_killed_there_is_one_manifest_and_one_want_in_the_end[ArcFired]",
        "test_wherever_it_is_killed_there_is_one_manifest_and_one_want_in_the_end[JobRunSucceeded]",
        "test_wherever_it_is_killed_there_is_one_manifest_and_one_want_in_the_end[data]",
        "test_wherever_it_is_killed_there_is_one_manifest_and_one_want_in_the_end[event]",
    ),
    "cli/test_operate": (
        "test_an_operation_whose_code_is_gone_says_so_and_can_be_canceled",
        "test_spark_is_the_server_of_the_home",
    ),
    "cli/test_operate_provided": ("test_an_index_spares_files_and_compacting_makes_them_few",),
    "cli/test_spark_sessions": (
        "test_a_build_that_ends_leaves_no_session_noted",
        "test_a_server_lost_in_the_middle_of_a_job_is_replaced_and_the_next_try_succeeds",
        "test_an_asset_is_built_through_every_resource_of_spark[DatabuildSpark classic]",
        "test_an_asset_is_built_through_every_resource_of_spark[DatabuildSpark]",
        "test_an_asset_is_built_through_every_resource_of_spark[LazyPySparkResource]",
        "test_settings_in_a_dagster_runs_tag_are_for_its_session_alone",
    ),
    "model/decide/test_trust": (
        "test_a_downstream_taint_covers_what_was_built_from_it_and_a_rebuild_agrees[postgres]",
    ),
}


def is_extended(file: str, name: str) -> bool:
    """Whether a test, by its file below `tests/` without `.py` and its name with parameters, is one of them."""
    names = EXTENDED.get(file, ())
    return name in names or name.partition("[")[0] in names
