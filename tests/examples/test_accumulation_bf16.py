"""Each microbatch has its own records, in the dtype it was computed in, with the gradients of its loss."""

import pytest
import torch


def test_every_microbatch_is_there_in_the_dtype_it_was_computed_in(
    example, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = example("accumulation_bf16").main(steps=3)
    assert recording.steps == [0, 2]
    for step in (0, 2):
        for microbatch in range(4):
            records = recording.at(step, microbatch=microbatch)
            assert [record.address for record in records.select("net.*")] == [f"net.{n}" for n in range(5)]
            assert records["net.0"].dtype == torch.bfloat16
            (loss,) = [record for record in records if record.func_name == "nll_loss"]
            assert loss.dtype == torch.float32
            # The mean over the rows of a loss that the Trainer divides by 4.
            assert loss.grad.item() == pytest.approx(1 / 4)
            assert records["net.4"].grad.float().sum().item() == pytest.approx(-1 / 4, rel=0.01)
    said = capsys.readouterr().out
    assert "net.0 Linear        bfloat16" in said and "nll_loss" in said and "float32" in said
