"""Plain configs -> YAML text that OmegaConf and every safe loader read back identically."""

import os
import re
import sys
from typing import Any

import yaml

from tl_integrations.errors import TraceError
from tl_integrations.language.files import write_whole
from tl_integrations.language.keys import dotted
from tl_integrations.language.lowering import to_plain

_BARE = re.compile(r"[A-Za-z_/][\w/.-]*(?: [\w/.-]+)*", re.ASCII)
_WORDS = frozenset("y n yes no on off true false null none nan inf ~".split())
_MARKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_NO_FOLDING = 1 << 30
_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]
    """Quotes every string that any YAML loader could take for something else; writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, value: str) -> Any:
    if _BARE.fullmatch(value) and value.lower() not in _WORDS:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value)
    style = '"' if _MARKS.search(value) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(cfg: Any) -> str:
    """The YAML of a config, in the order of its keys; loads to the same config by OmegaConf and by
    `load_config`.

    Args:
        cfg: A DictConfig (written unresolved), a plain dict or list, or what `trace(as_dict=True)` gave.
    Raises: TraceError for values that are not plain, and for targets of `__main__`, which nobody else can
        import.
    """
    plain = named_for_others(to_plain(cfg))
    try:
        return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NO_FOLDING))
    except yaml.representer.RepresenterError as error:
        raise TraceError(
            f"The config holds a value that YAML cannot hold: {error.args[-1]!r}. Trace the call it belongs "
            f"to."
        ) from None
    except RecursionError:
        raise TraceError("The config is nested too deeply for YAML.") from None


def named_for_others(plain: Any) -> Any:
    """The same config with `__main__` targets under the name that other processes can import.

    Raises: TraceError when the script was not run as a module and so has no such name.
    """
    return _renamed(plain, ()) if _mentions_main(plain) else plain


def _mentions_main(value: Any) -> bool:
    if type(value) is dict:
        return any(map(_mentions_main, value.values()))
    if type(value) is list:
        return any(map(_mentions_main, value))
    return type(value) is str and value.startswith("__main__.")


def _renamed(value: Any, path: tuple[Any, ...]) -> Any:
    if type(value) is list:
        return [_renamed(item, (*path, index)) for index, item in enumerate(value)]
    if type(value) is not dict:
        return value
    renamed = {key: _renamed(item, (*path, key)) for key, item in value.items()}
    name_key = "path" if value.get("_target_") == "hydra.utils.get_object" else "_target_"
    name = renamed.get(name_key)
    if isinstance(name, str) and name.startswith("__main__."):
        renamed[name_key] = f"{_main_name(name, path)}.{name.removeprefix('__main__.')}"
    return renamed


def _main_name(name: str, path: tuple[Any, ...]) -> str:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(".__main__") if spec.name.endswith(".__main__") else str(spec.name)
    raise TraceError(
        f"{dotted(path)} targets {name!r}, defined in {getattr(main, '__file__', 'this session')}, which is "
        "run as a script and so cannot be imported under that name. Move the builder to a module of its "
        "own."
    )


def save_config(cfg: Any, path: str | os.PathLike[str]) -> None:
    """Write a config as YAML; a reader never sees half of it.

    Args:
        cfg: What `trace` gives, or any plain config.
        path: The file; what was there is replaced at once.
    Raises: TraceError as `to_yaml`; OSError when the folder cannot be written.
    """
    write_whole(path, to_yaml(cfg))
