"""A question to torchlens, small: the process answers in the shape that the benchmarks read."""

import torchlens_runs


def test_a_process_answers_with_the_seconds_of_every_way() -> None:
    answer = torchlens_runs.asked("scaling", 2, "10")
    assert list(answer) == ["10"]
    assert list(answer["10"]) == ["plain", "torchlens record", "torchlens trace"]
    assert all(len(times) == 2 and min(times) > 0 for times in answer["10"].values())
