"""Whether an object built from its config is like the one built by code."""

from collections.abc import Callable, Iterator
from typing import Any

from tl_integrations.errors import VerifyError
from tl_integrations.language.building import instantiate
from tl_integrations.language.diffing import diff
from tl_integrations.language.keeping import is_module, record_of
from tl_integrations.language.provenance import config_of
from tl_integrations.language.tracing import trace


def verify(builder: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Build once by code and once from the config that a trace of the same call gives, and compare the two.

    Compared are the types and names of all parts, their hyper-parameters as they print them, the names,
    shapes and dtypes of the state, and what the live object says about its own config. Weights are not: they
    are drawn.

    Args:
        builder: A configurable.
        *args: Its arguments.
        **kwargs: Its arguments.
    Returns: The config.
    Raises: VerifyError that lists every difference; whatever building raises.
    """
    cfg = trace(lambda: builder(*args, **kwargs))
    by_code, by_config = builder(*args, **kwargs), instantiate(cfg)
    said = list(_differences(by_code, by_config))
    if record_of(by_code) is not None:
        said += [f"config: {change}" for change in diff(cfg, config_of(by_code))]
    if said:
        raise VerifyError(
            "Built by code and from the config, two things differ:\n"
            + "\n".join(f"  {line}" for line in said)
        )
    return cfg


def _differences(a: Any, b: Any) -> Iterator[str]:
    if type(a) is not type(b):
        yield f"type: {type(a).__name__} by code, {type(b).__name__} from the config"
    elif is_module(a):
        yield from _between("part", _parts(a), _parts(b))
        yield from _between("state", _state(a), _state(b))
    elif "__repr__" in vars(type(a)) and repr(a) != repr(b):
        yield f"value: {a!r} by code, {b!r} from the config"


def _parts(module: Any) -> dict[str, str]:
    return {
        name or "the root": f"{type(part).__name__}({part.extra_repr()})"
        for name, part in module.named_modules()
    }


def _state(module: Any) -> dict[str, str]:
    return {
        name: f"{tuple(value.shape)} {value.dtype}" if hasattr(value, "shape") else type(value).__name__
        for name, value in module.state_dict().items()
    }


def _between(what: str, a: dict[str, str], b: dict[str, str]) -> Iterator[str]:
    for name in (*a, *(name for name in b if name not in a)):
        if a.get(name) != b.get(name):
            yield f"{what} {name}: {a.get(name, 'absent')} by code, {b.get(name, 'absent')} from the config"
