"""Versions of everything an answer depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from apportion.solver import available_backends

_PACKAGES = ("apportion", "ortools", "highspy", "pulp", "numpy", "scipy", "networkx", "pandas")


def versions() -> dict[str, str]:
    """Give names and versions: packages, Python, platform, and the back ends that run here."""
    out: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            out[name] = "missing"
    out["python"] = platform.python_version()
    out["platform"] = f"{platform.system()} {platform.machine()}"
    out["backends"] = ", ".join(available_backends())
    return out
