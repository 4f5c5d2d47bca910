"""Live objects as arguments of a recorded call: written as the config that built them, where that is
known."""

import types
import warnings
from typing import Any

from tl_integrations.errors import NoConfigError, TraceError
from tl_integrations.language.encoding import Encoded, Encoder, Opaque, Where, add_recipe, opaque, path_text
from tl_integrations.language.keeping import is_module, record_of
from tl_integrations.language.provenance import call_of
from tl_integrations.language.recipes.references import by_path


def _live(value: Any, encoder: Encoder, where: Where) -> Encoded:
    """An object that is used twice is written once."""
    if record_of(value) is None:
        return opaque(value, encoder, where)
    known = encoder.trees.get((id(value), True))
    if known is not None:
        return known[1]
    try:
        call = call_of(value)
    except NoConfigError as error:
        raise Opaque(str(error).rstrip(".")) from None
    if is_module(value):
        warnings.warn(
            f"{path_text(where)} is a live {type(value).__name__}: its weights are not part of a config, "
            "only how it was built.",
            stacklevel=8,
        )
    encoder.trees[id(value), True] = (value, call)
    return call


def _function(value: Any, encoder: Encoder, where: Where) -> Encoded:
    """A function by its path; one that a builder made inside itself by that builder's config."""
    try:
        return by_path(value, encoder, where)
    except TraceError:
        if record_of(value) is None:
            raise
        return _live(value, encoder, where)


add_recipe(object, _live, subclasses=True)
add_recipe(types.FunctionType, _function)
