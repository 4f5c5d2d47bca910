"""How values of a library are written; each module adds its recipes when it is imported.

The standard library's come with the language; those of torch, NumPy and OmegaConf with the first such value.
"""

from tl_integrations.language.recipes import live, records, references, stdlib

__all__ = ["live", "records", "references", "stdlib"]
