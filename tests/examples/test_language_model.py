"""Captures of the same held-out text, and shares that an independent forward gives as well."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")


def test_every_validation_is_captured_and_the_shares_are_true(
    example, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("language_model")
    recording = module.main(tmp_path, steps=8)
    assert recording.steps == [0, 1, 3, 5, 7]
    assert {record.stage for record in recording} == {"validate"}

    module.pl.seed_everything(0, verbose=False)
    untrained = module.Writer().eval()
    (letters,) = module.manual()[1]
    with torch.no_grad():
        states = untrained.gpt(input_ids=letters, output_hidden_states=True).hidden_states
    kept = recording.at(0, stage="validate")
    assert torch.equal(kept["gpt.transformer.h.0"].out, states[1])
    added = kept["gpt.transformer.h.0.attn.c_proj"].out + kept["gpt.transformer.h.0.mlp.c_proj"].out
    assert torch.allclose(states[0] + added, states[1], atol=1e-4)
    assert module.shares(recording, 0)[1] == pytest.approx(
        float(kept["gpt.transformer.h.0.mlp.c_proj"].out.norm() / states[1].norm())
    )
    assert "held-out loss" in capsys.readouterr().out
