"""Build what a config says, by Hydra itself, and compare what the object remembers with the config."""

import importlib
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from tl_integrations import language as L
from tl_integrations.errors import NoConfigError
from tl_integrations.language.pinning import pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of building one config."""

    name: str
    """What was built: `group/name`, or a file."""
    status: Literal["same", "differs", "failed", "open", "unknown"]
    text: str
    """In words, with the reason or the difference."""

    @property
    def ok(self) -> bool:
        return self.status not in ("differs", "failed")

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def verify_config(
    name: str, tree: dict[str, Any], *, allow: Iterable[str] = (), meta: bool = False
) -> Verdict:
    """Build `tree` with plain Hydra and compare.

    Args:
        name: How to call it in the verdict.
        tree: A plain config; its targets must be trusted, as for `L.instantiate`.
        allow: Further names that may run.
        meta: Build under torch's meta device, so that a large model takes no memory.
    Returns: `open` where a value is still `???`, `unknown` where the object cannot say how it was built.
    Raises: UntrustedTargetError, before anything is built.
    """
    missing = open_keys(tree)
    if missing:
        return Verdict(
            name=name, status="open", text=f"not built, since it leaves open: {', '.join(missing)}"
        )
    try:
        with on_meta() if meta else nullcontext():
            built = L.instantiate(tree, engine="hydra", allow=list(allow))
        remembered = L.config_of(built, defaults="pin", as_dict=True)
    except L.UntrustedTargetError:
        raise
    except NoConfigError as error:
        return Verdict(name=name, status="unknown", text=f"built, and nothing to compare with: {error}")
    except Exception as error:
        return Verdict(name=name, status="failed", text=f"cannot be built: {type(error).__name__}: {error}")
    difference = L.diff(pinned(tree, allow=list(allow))[0], remembered)
    if difference:
        return Verdict(name=name, status="differs", text=f"built something else:\n{difference}")
    return Verdict(name=name, status="same", text="built, and its config is the one stored")


def open_keys(tree: Any, at: str = "") -> list[str]:
    """Dotted keys that hold `???`."""
    if isinstance(tree, dict):
        children = [(f"{at}.{key}" if at else str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list):
        children = [(f"{at}[{index}]", value) for index, value in enumerate(tree)]
    else:
        return [at] if tree == "???" else []
    return [key for name, value in children for key in open_keys(value, name)]


def on_meta() -> AbstractContextManager[Any]:
    """Tensors made inside hold no memory."""
    context: AbstractContextManager[Any] = importlib.import_module("torch").device("meta")
    return context
