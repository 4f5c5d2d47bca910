"""What a capture has to say of itself when it is over: nothing that is missing is missing silently."""

from tl_integrations.capture.binding import Binding
from tl_integrations.capture.emptiness import nothing_kept
from tl_integrations.capture.run import Note, Run

_EMPTY = "empty"
_TEXTS: dict[Note, str] = {
    "transformed": (
        "Tensors inside torch.vmap and torch.func transforms may not leave them: their records have names, "
        "shapes and dtypes, but no tensor."
    ),
    "recomputed": (
        "Tensors inside a checkpoint with use_reentrant=True get no gradient: backward computes them anew, "
        "and those get it. Their records say so in `gradient.reason`; with use_reentrant=False they have one."
    ),
}


class Remarks:
    """Says each thing once per recorder."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def on(self, run: Run, binding: Binding, *, ended: bool) -> list[str]:
        """What is to be warned of after a run.

        Args:
            run: The run.
            binding: What it looked for.
            ended: The run came to its end, so that it should have met all that was named.
        """
        found: dict[str, str | None] = {note: _TEXTS[note] for note in sorted(run.notes)}
        if ended and _EMPTY not in self._said:
            found[_EMPTY] = nothing_kept(binding, run)
        new = {kind: text for kind, text in found.items() if text is not None and kind not in self._said}
        self._said |= new.keys()
        return list(new.values())
