"""Why a capture kept nothing, in words: an empty result is never silent."""

from tl_integrations.capture.binding import Binding
from tl_integrations.capture.run import Run
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.selectors import Func, InModule, ModuleIo


def nothing_kept(binding: Binding, run: Run) -> str | None:
    """What was asked for and did not happen in this run; None when everything named did."""
    selector, named = binding.bound, binding.named
    if run.catches and not named:
        return None
    nodes = run.calls.tree.nodes
    called = {nodes[node].address for node, _ in run.calls.calls}
    missing = [
        part.address
        for part in selector.parts()
        if isinstance(part, ModuleIo | InModule) and part.address and part.address not in called
    ]
    if not run.catches:
        return f"{selector!r} kept nothing in this forward. {_reason(selector, run, missing)}"
    silent = [address for address in missing if address in named]
    return f"{_listed(silent)} not called in this forward, so nothing was kept of it." if silent else None


def _reason(selector: Selector, run: Run, missing: list[str]) -> str:
    if missing:
        return f"{_listed(missing)} not called (a fused function may read its weights instead)."
    names = [part.name for part in selector.parts() if isinstance(part, Func)]
    if names:
        return (
            f"Functions of the name {', '.join(map(repr, dict.fromkeys(names)))} did not run where it looks."
        )
    return f"{run.event_count} events were looked at."


def _listed(addresses: list[str]) -> str:
    shown = ", ".join(map(repr, addresses[:4])) + (", ..." if len(addresses) > 4 else "")
    return f"{shown} {'was' if len(addresses) == 1 else 'were'}"
