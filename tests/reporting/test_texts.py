"""Texts of a board."""

from tl_integrations.reporting.texts import MOST_STEPS, capture_text, config_text, step_list


def test_a_config_is_fenced_yaml_in_its_own_order() -> None:
    assert config_text({"b": 1, "a": {"c": [1, 2]}}) == "```yaml\nb: 1\na:\n  c:\n  - 1\n  - 2\n```"


def test_no_content_can_close_the_fence() -> None:
    text = config_text("note: '```'\n")
    assert text.startswith("````yaml\n") and text.endswith("\n````")


def test_what_is_captured_is_a_table() -> None:
    text = capture_text(
        schedule="every(100) | at(3)", selector="blocks.*", preview=[0, 3, 100], bundle="run.tlspec"
    )
    assert "| schedule | `every(100) \\| at(3)` |" in text and "| planned steps | 0, 3, 100 |" in text
    assert "tl.load('run.tlspec')" in text


def test_a_long_list_of_steps_says_how_many_it_leaves_out() -> None:
    assert step_list(range(3)) == "0, 1, 2"
    assert step_list(range(MOST_STEPS + 5)).count(",") < MOST_STEPS + 3
    assert "(5 more)" in step_list(range(MOST_STEPS + 5))
