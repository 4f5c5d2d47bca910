"""Write Python, get a config: `from tl_integrations import language as L`."""

import tl_integrations.language.recipes  # noqa: F401 - adds the recipes of the standard library
from tl_integrations.errors import (
    BuildError,
    ConfigError,
    ConfigTextError,
    NoConfigError,
    TraceError,
    TraceLeakError,
    TraceNodeError,
    UntrustedTargetError,
    VerifyError,
)
from tl_integrations.language.building import instantiate
from tl_integrations.language.calling import call, partial, wrap
from tl_integrations.language.checkpoints import load_from_checkpoint
from tl_integrations.language.configurable import configurable
from tl_integrations.language.diffing import diff
from tl_integrations.language.encoding import register_encoder
from tl_integrations.language.explaining import explain
from tl_integrations.language.markers import MISSING, ref
from tl_integrations.language.provenance import config_of
from tl_integrations.language.python_source import to_python
from tl_integrations.language.reading import load_config
from tl_integrations.language.registry import store
from tl_integrations.language.selecting import select
from tl_integrations.language.text import save_config, to_yaml
from tl_integrations.language.tracing import OrphanNodeWarning, is_tracing, trace, untraced
from tl_integrations.language.trust import trust
from tl_integrations.language.verifying import verify

__all__ = [
    "MISSING",
    "BuildError",
    "ConfigError",
    "ConfigTextError",
    "NoConfigError",
    "OrphanNodeWarning",
    "TraceError",
    "TraceLeakError",
    "TraceNodeError",
    "UntrustedTargetError",
    "VerifyError",
    "call",
    "config_of",
    "configurable",
    "diff",
    "explain",
    "instantiate",
    "is_tracing",
    "load_config",
    "load_from_checkpoint",
    "partial",
    "ref",
    "register_encoder",
    "save_config",
    "select",
    "store",
    "to_python",
    "to_yaml",
    "trace",
    "trust",
    "untraced",
    "verify",
    "wrap",
]
