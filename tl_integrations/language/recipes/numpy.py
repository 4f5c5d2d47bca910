"""How NumPy's scalars, dtypes and small arrays are written."""

from typing import Any

import numpy as np

from tl_integrations.language.encoding import Encoded, Encoder, Opaque, Where, add_recipe

LIMIT = 64
"""Elements of an array that still counts as a setting."""


def _scalar(value: np.generic, encoder: Encoder, where: Where) -> Encoded:
    name = "bool_" if type(value) is np.bool_ else type(value).__name__
    if getattr(np, name, None) is not type(value) or isinstance(
        value, np.longdouble | np.clongdouble | np.void
    ):
        raise Opaque("NumPy has no exact text for it")
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _moment(value, name)
    return {"_target_": f"numpy.{name}", "_args_": [encoder.value(value.item(), where)]}


def _moment(value: Any, name: str) -> Encoded:
    unit, count = np.datetime_data(value.dtype)
    if np.isnat(value):
        return {"_target_": f"numpy.{name}", "_args_": ["NaT"]}
    step = unit if count == 1 else f"{count}{unit}"
    return {"_target_": f"numpy.{name}", "_args_": [int(value.astype(np.int64)), step]}


def _dtype(value: np.dtype[Any], encoder: Encoder, where: Where) -> Encoded:
    if value.hasobject or value.fields or value.subdtype:
        raise Opaque("structured and object dtypes have no plain text")
    return {
        "_target_": "numpy.dtype",
        "_args_": [value.name if value.isnative and value.kind in "biufc" else value.str],
    }


def _array(value: Any, encoder: Encoder, where: Where) -> Encoded:
    if type(value) is not np.ndarray:
        raise Opaque("it is an array class of its own")
    if value.size > LIMIT:
        raise Opaque(
            f"an array of {value.size} elements is not a setting (at most {LIMIT}); pass a file path or what "
            f"builds it"
        )
    if value.dtype.kind not in "biufcSU" or value.dtype in (np.longdouble, np.clongdouble):
        raise Opaque(f"elements of dtype {value.dtype} have no exact text")
    dtype = _dtype(value.dtype, encoder, where)
    if value.size == 0:
        return {"_target_": "numpy.empty", "_convert_": "all", "shape": list(value.shape), "dtype": dtype}
    content = value.tolist()
    body = encoder.items(content, where) if isinstance(content, list) else encoder.value(content, where)
    return {"_target_": "numpy.array", "_convert_": "all", "_args_": [body], "dtype": dtype}


add_recipe(np.generic, _scalar, subclasses=True)
add_recipe(np.dtype, _dtype, subclasses=True)
add_recipe(np.ndarray, _array, subclasses=True)
