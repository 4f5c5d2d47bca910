"""Read by type checkers only: what a user's editor knows of the callbacks and of errors."""

from typing import assert_type

from lightning.pytorch import Callback, Trainer

import tl_integrations as tl
from tl_integrations.callbacks import ConfigCallback

callback = tl.TraceCallback(
    schedule=tl.schedule.every(100),
    save=["blocks.*", "head"],
    storage=tl.to_disk("run.tlspec"),
    statistics=["mean", "std"],
    histograms=64,
    stages=["train", "validate"],
    microbatches="all",
    max_captures=10,
)
assert_type(callback, tl.TraceCallback)
assert_type(callback.captures[0].step, int | None)
assert_type(callback.recording, tl.Recording)
lightnings: list[Callback] = [callback, ConfigCallback(), tl.TraceCallback(100, "head")]
Trainer(callbacks=lightnings)

tl.TraceCallback(microbatches="some")  # type: ignore[arg-type]
tl.TraceCallback(100, "head", None)  # type: ignore[call-arg]
tl.TraceCallback(every=100)  # type: ignore[call-arg]

try:
    found = callback.recording["head"]
except tl.errors.RecordLookupError as error:
    assert isinstance(error, tl.errors.TLError)
    by_key: KeyError = error
