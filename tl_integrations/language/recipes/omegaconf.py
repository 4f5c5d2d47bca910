"""Configs as arguments: spliced where they are nodes, handed on unchanged where they are plain settings."""

from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from tl_integrations.language.encoding import Encoded, Encoder, Where, add_recipe
from tl_integrations.language.nodes import Tree
from tl_integrations.language.scanning import holds_target


def _config(value: Any, encoder: Encoder, where: Where) -> Encoded:
    """A config used twice stays one node; one that was changed between two uses is two."""
    content = OmegaConf.to_container(value, resolve=False)
    if not holds_target(content):
        return Tree(content, as_config=True)
    known = encoder.trees.get((id(value), False))
    if known is not None and known[0] is value and known[1].content == content:
        return known[1]
    tree = Tree(content)
    encoder.trees[id(value), False] = (value, tree)
    return tree


add_recipe(DictConfig, _config)
add_recipe(ListConfig, _config)
