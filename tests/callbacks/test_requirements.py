"""What a capture inside a Trainer must hold to, number by number, and the tests that show it."""

import ast
from pathlib import Path

import pytest

REQUIRED: dict[str, tuple[str, ...]] = {
    "1 nothing attached off step, after a fit, an exception, Ctrl-C or a skipped batch": (
        "test_nothing_is_attached_off_schedule_or_afterwards",
        "test_an_exception_leaves_nothing_behind_and_a_readable_bundle",
        "test_ctrl_c_on_a_captured_step_leaves_nothing_and_keeps_the_steps_before",
        "test_a_step_that_the_module_skips_disarms",
    ),
    "2 captured steps are the preview under accumulation and with several or raw optimizers": (
        "test_captured_steps_are_the_schedules_preview",
        "test_a_schedule_under_accumulation_counts_optimizer_steps_and_repeats_none",
        "test_several_or_raw_optimizers_do_not_shift_the_steps",
    ),
    "3 the x-axis is the one of self.log": ("test_a_captured_steps_x_axis_is_the_one_of_self_log",),
    "4 closures that run the step again": ("test_closures_that_run_the_step_again_are_numbered_calls",),
    "5 checkpointing of either kind": ("test_checkpointing_of_either_kind_gives_the_events_of_none",),
    "6 compiled inner and whole modules": (
        "test_an_inner_compiled_module_gives_every_event_and_makes_no_further_graph",
        "test_a_compiled_lightning_module_is_captured_eagerly_and_makes_no_further_graph",
    ),
    "7 two processes": (
        "test_one_bundle_is_written_by_rank_0_of_spawned_processes",
        "test_all_ranks_keep_their_own_shard_of_the_batch",
        "test_the_module_itself_is_captured_once_per_forward",
    ),
    "8 resume within an epoch": (
        "test_a_resumed_run_has_neither_duplicate_nor_gap",
        "test_a_resumed_run_captures_what_an_unbroken_one_does",
    ),
    "9 training is bitwise what it was": (
        "test_training_ends_in_bitwise_equal_weights_with_and_without_the_callback",
        "test_captured_steps_values_and_weights_are_right",
    ),
    "10 self.log inside training_step": (
        "test_self_log_in_a_captured_step_is_neither_disturbed_nor_captured",
        "test_self_log_with_a_reduction_of_its_own_lives_beside_a_capture",
    ),
    "11 activations that are not finite": (
        "test_activations_that_are_not_finite_or_empty_do_not_stop_training",
    ),
    "12 pickle and deepcopy before and after": (
        "test_the_callback_pickles_before_and_after_a_fit",
        "test_models_and_callbacks_are_copied_and_pickled_before_during_and_after",
    ),
    "13 both package names": ("test_callbacks_of_either_package_name_are_taken",),
    "14 the finders": (
        "test_the_learning_rate_finder_is_not_captured_and_the_fit_after_it_is",
        "test_finders_as_callbacks_leave_the_schedule_on_the_loggers_steps",
    ),
    "15 sanity checking": ("test_sanity_checking_is_never_captured",),
    "16 fast_dev_run": ("test_fast_dev_run_captures_but_writes_nothing",),
    "17 no logger, CSV only, two loggers": (
        "test_without_a_logger_or_with_csv_only_training_goes_on",
        "test_nowhere_to_log_is_no_failure",
        "test_each_logger_gets_one_call_per_captured_step",
    ),
    "18 what TensorBoard reads back": ("test_logged_scalars_are_those_of_an_independent_forward",),
    "19 nothing outlives its step": ("test_no_tensor_and_no_module_outlives_its_step",),
    "20 every schedule from the command line and from Hydra": (
        "test_a_lightning_command_line_builds_every_schedule",
        "test_hydra_builds_every_schedule",
    ),
    "21 a second fit": ("test_a_second_fit_continues_the_callbacks_own_bundle",),
    "22 a step that takes the iterator": ("test_a_step_that_takes_the_iterator_is_counted_by_the_trainer",),
    "23 inference tensors of an evaluation": (
        "test_tensors_of_an_inference_mode_evaluation_are_kept_as_ordinary_ones",
    ),
}


def names_of_tests(folder: Path) -> set[str]:
    """The names of all tests in a folder."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in folder.rglob("test_*.py")]
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("requirement", REQUIRED)
def test_each_requirement_has_its_tests(requirement: str) -> None:
    there = names_of_tests(Path(__file__).parents[1])
    assert set(REQUIRED[requirement]) <= there


def test_all_of_them_are_listed() -> None:
    assert [int(requirement.split()[0]) for requirement in REQUIRED] == list(range(1, 24))
