import pytest
import torch
from torch import nn

import tl_integrations as tl
from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.protocols import Outcome
from tl_integrations.capture.record_tables import MemoryTable
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import AmbiguousRecordError, RecordLookupError


def op(label: str, address: str = "", call: int = 1, step: int | None = None, **more: object) -> Record:
    return Record(
        label=label,
        raw_label=f"{label}_raw",
        short_label=label.rsplit("_", 1)[0],
        address=address,
        modules=(f"{address}:{call}",) if address else (),
        moment=Moment(step=step),
        **more,
    )


def recording(*records: Record) -> Recording:
    return Recording(MemoryTable(records))


def test_a_final_label_names_its_record() -> None:
    taken = recording(op("linear_1_1", "fc"), op("relu_1_2"))
    assert taken["relu_1_2"] is taken[1]
    assert taken["linear_1_1"].address == "fc"


def test_a_short_label_and_a_raw_label_name_the_record_too() -> None:
    taken = recording(op("linear_1_1", "fc"), op("relu_1_2"), op("relu_10_3"))
    assert taken["relu_1"] is taken[1]
    assert taken["relu_10_3_raw"] is taken[2]


def test_an_address_with_a_pass_names_one_call() -> None:
    taken = recording(op("linear_1_1", "fc", 1), op("linear_2_2", "fc", 2))
    assert taken["fc:2"] is taken[1]
    with pytest.raises(AmbiguousRecordError, match=r"\.at\(step\).*:k.*select"):
        taken["fc"]


def test_the_last_part_of_one_address_is_enough() -> None:
    taken = recording(op("linear_1_1", "blocks.0.attn"), op("relu_1_2", "blocks.0.act"))
    assert taken["attn"] is taken[0]


def test_a_module_output_wins_over_the_ops_inside() -> None:
    output = Record(kind="module", address="fc", modules=("fc:1",))
    assert recording(op("linear_1_1", "fc"), output)["fc"] is output


def test_an_output_path_picks_a_leaf() -> None:
    first = Record(kind="module", address="lstm", path="[0]")
    cell = Record(kind="module", address="lstm", path="[1][0]")
    taken = recording(first, cell)
    assert taken["lstm[1][0]"] is cell
    assert taken["lstm:1[0]"] is first


def test_a_wrong_key_names_what_is_near() -> None:
    with pytest.raises(RecordLookupError, match=r"Closest: 'encoder\.attn'"):
        recording(op("linear_1_1", "encoder.attn"))["encoder.atn"]


def test_in_answers_for_keys_and_records() -> None:
    taken = recording(op("relu_1_2", "act"))
    assert "relu_1_2" in taken and "act" in taken and taken[0] in taken
    assert "relu_2_2" not in taken


def test_slices_and_iteration_keep_the_order() -> None:
    taken = recording(*(op(f"relu_{k}_{k}") for k in range(1, 6)))
    assert [record.label for record in taken[1:3]] == ["relu_2_2", "relu_3_3"]
    assert taken[-1].label == "relu_5_5" and len(taken[::2]) == 3
    with pytest.raises(IndexError, match="5 records"):
        taken[5]


def test_at_gives_the_records_of_one_step() -> None:
    taken = recording(op("relu_1_1", step=0), op("relu_1_1", step=7), op("relu_2_2", step=7))
    assert taken.steps == [0, 7]
    assert len(taken.at(7)) == 2 and taken.at(0)["relu_1_1"].step == 0
    with pytest.raises(RecordLookupError, match="nearby: 0, 7"):
        taken.at(3)
    with pytest.raises(RecordLookupError, match="stage 'validate'"):
        taken.at(7, stage="validate")


def test_the_repr_is_bounded_and_says_how_it_ended() -> None:
    records = (op(f"relu_{k}_{k}") for k in range(10_000))
    many = Recording(MemoryTable(records), outcome=Outcome(status="failed", reason="boom"))
    assert len(repr(many)) < 300 and "partial_error: boom" in repr(many)
    assert many.failed and many.status == "partial_error"


def test_a_record_and_a_recording_say_in_one_line_what_they_are() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    recorder = tl.Recorder(model, save="**")
    for step in (4, 7):
        with recorder.watch(Moment(step=step)):
            model(torch.ones(5, 3))
    recording = recorder.recording
    assert repr(recording.at(4)["1"]) == "<Record 1 at step 4: float32[5, 2] of ReLU>"
    assert repr(recording.at(4)[:1]) == "<Recording of 1 record of step 4: 0>"
    assert repr(recording[:0]) == "<Recording of 0 records>"
    assert repr(recording) == "<Recording of 4 records of steps 4 to 7: 0, 1>"


def test_an_output_or_a_loss_that_cannot_be_had_says_what_to_do() -> None:
    recorder = tl.Recorder(nn.ReLU(), save=tl.func("relu"))
    with recorder.watch():
        recorder.model(torch.ones(2))
    with pytest.raises(RecordLookupError, match=r"tl\.record\(model, x\)"):
        _ = recorder.recording.output
    with pytest.raises(ValueError, match=r"outside torch\.no_grad"):
        recorder.recording.backward(torch.ones(()))
