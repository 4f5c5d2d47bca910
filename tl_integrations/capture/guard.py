"""What attends every training step so that a NaN can be traced to where it began."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import isfinite
from typing import Any

from torch import distributed as dist
from torch import nn

from tl_integrations.capture.bracket import Bracket
from tl_integrations.capture.events import Record
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.nonfinite import (
    FiniteWatch,
    Origin,
    is_finite,
    loss_in,
    origin_in_records,
    unknown_origin,
)
from tl_integrations.capture.replaying import Before, find_origin
from tl_integrations.capture.selector_text import as_selector
from tl_integrations.errors import UnsupportedModelError

MOST_REPLAYS = 3
"""Replays of one run: once weights are not finite, every step would be replayed."""


class NonfiniteGuard:
    """Knows where values stopped being finite, and attends every training step if it is to find out.

    Args:
        model: The model.
        save: What is captured; the modules whose outputs it takes are those that `watch` tests.
        watch: Test what modules return; see `FiniteWatch` for the cost.
        replay: Run a forward whose loss is not finite again, before backward, to name the op. Costs a copy of
            the buffers and random states and one look at the loss per step, for which a device is waited
            for. The replayed step runs its Python code twice: what it does beyond the model and `self.log`
            (printing, writing, counting outside modules) happens twice.

    Raises:
        UnsupportedModelError: with `watch`, if a part of the model runs through torch.compile; with `replay`,
            if its forward talks to other processes, which would wait for the second forward for ever.
    """

    def __init__(self, model: nn.Module, save: Any, *, watch: bool, replay: bool) -> None:
        self._model = model
        selector = as_selector("**" if save is None else save)
        self._watch = FiniteWatch(model, selector) if watch else None
        if replay:
            _refuse_collectives(model)
        self._replays = MOST_REPLAYS if replay else 0
        self._found: Origin | None = None
        self.attends: bool = watch or replay
        """Whether every step is attended, captured or not."""
        self.first: Origin | None = None
        """Where the first value that was not finite was seen, as far as that is known."""

    @property
    def waits(self) -> bool:
        """Whether an answer lies on a device, which `take` would have to wait for."""
        return self._watch is not None and self._watch.waits

    def take(self, step: int, records: Sequence[Record] = (), loss: float | None = None) -> Origin | None:
        """Where a value was seen that was not finite, since the last call.

        An op that a replay named comes before a module that was tested, and both before what a capture saw.

        Args:
            step: The step that ended.
            records: What was captured of it.
            loss: What it came to.
        """
        found, self._found = self._found, None
        watched = self._watch.take() if self._watch is not None else None
        found = found or watched or origin_in_records(step, records)
        if found is None and loss is not None and not isfinite(loss):
            found = unknown_origin(step, loss)
        if found is not None and self.first is None:
            self.first = found
            if self.attends:
                warnings.warn(f"Not finite: {found.words}.", stacklevel=2)
        return found

    def run(
        self, step: int, forward: Callable[[], Any], again: Callable[[], Any], args: tuple[Any, ...]
    ) -> Any:
        """Run a forward and return what it returned.

        Args:
            step: The training step.
            forward: What is run.
            again: The same without any other capture around it, for a replay.
            args: Its arguments.
        """
        before = Before(self._model) if self._replays else None
        with self._watch.armed(step) if self._watch is not None else nullcontext():
            out = forward()
        if self._watch is not None:
            self._watch.test_loss(out)
        if before is not None and not _loss_is_finite(out):
            self._replays -= 1
            self._replay(step, before, again, args)
        return out

    @contextmanager
    def attending(self, step: int, quiet: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
        """Attend the calls of the model in the block.

        Args:
            step: The training step.
            quiet: Gives the context of a replay, in which another capture takes no notice.
        """

        def around(call: int, method: Callable[[], Any], args: tuple[Any, ...]) -> Any:
            def again() -> Any:
                with quiet():
                    return method()

            return self.run(step, method, again, args)

        bracket = Bracket(self._model, "forward", around)
        try:
            yield
        finally:
            bracket.remove()

    def _replay(self, step: int, before: Before, again: Callable[[], Any], args: tuple[Any, ...]) -> None:
        if any(hasattr(argument, "__next__") for argument in args):
            words = f"loss not finite at step {step}; a step that takes the loader's iterator is not replayed"
            self._found = Origin(step=step, words=words)
            return
        try:
            self._found = find_origin(self._model, before, again, args, step)
        except Exception as error:
            words = f"loss not finite at step {step}, and its replay failed: {type(error).__name__}: {error}"
            self._found = Origin(step=step, words=words)
        if self._found is None:
            words = f"loss not finite at step {step}, but its replay was: the step is not deterministic"
            self._found = Origin(step=step, words=words)


def _loss_is_finite(out: Any) -> bool:
    return all(is_finite(leaf) for _, leaf in tensor_leaves(loss_in(out)))


def _refuse_collectives(model: nn.Module) -> None:
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return
    for name, module in model.named_modules():
        sharded = any(hasattr(parameter, "to_local") for parameter in module._parameters.values())
        if sharded or isinstance(module, nn.SyncBatchNorm) or type(module).__name__.startswith("Fully"):
            raise UnsupportedModelError(
                f"replay=True runs a forward again on the process whose loss is not finite, and {name!r} "
                f"({type(module).__name__}) talks to the other processes, which would wait for ever. "
                "Use watch_nonfinite=True."
            )
