"""Where figures were measured: processor, cores, Python and the libraries; nothing names a machine."""

import importlib.metadata
import os
import platform
from pathlib import Path

LIBRARIES = (
    "torch",
    "lightning",
    "hydra-core",
    "omegaconf",
    "tensorboard",
    "safetensors",
    "captum",
    "nnsight",
    "torchlens",
    "hydra-zen",
    "fiddle",
)


def machine() -> str:
    """Such as `AMD EPYC, 2 cores, virtual, Linux, Python 3.11.7`."""
    described = _processor()
    name = described.get("model name") or platform.processor() or platform.machine()
    virtual = ", virtual" if "hypervisor" in described.get("flags", "").split() else ""
    cores = os.cpu_count()
    return f"{name}, {cores} cores{virtual}, {platform.system()}, Python {platform.python_version()}"


def versions() -> dict[str, str]:
    """Of every library that a table names and that is installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}
