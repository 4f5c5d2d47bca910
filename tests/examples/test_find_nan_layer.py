"""The NaN that is named is the one that was planted."""

import pytest


def test_the_planted_layer_and_sample_are_named(example, capsys: pytest.CaptureFixture[str]) -> None:
    module = example("find_nan_layer")
    step, layer, sample = module.main()
    assert (layer, sample) == ("net.3", module.BLANK)
    said = capsys.readouterr().out
    assert f"div in 'net.3' gave the first NaN of step {step}" in said
    assert "broken rows   1 of 64" in said
    assert "net.2  ReLU" in said and "[0.0, 0.0, 0.0, 0.0]" in said and "[nan, nan, nan, nan]" in said


def test_without_the_blank_image_nothing_is_named(example, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("find_nan_layer")
    monkeypatch.setattr(module, "BLANK", slice(0, 0))
    callback = module.tl.TraceCallback(schedule="never()", replay=True)
    module.train(callback)
    assert callback.first_nonfinite is None
