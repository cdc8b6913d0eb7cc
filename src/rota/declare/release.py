"""Which Rota this is, and which release of the application runs."""

from __future__ import annotations

import sys
from importlib import metadata

VERSION = "0.1.0"
"""Rota's own version. Migrations are recorded with it."""

UNKNOWN = "unknown"
"""The release of an application without a distribution."""


def release_of(module: str | None) -> str:
    """Return the version of the distribution that a module comes from, else `unknown`."""
    if not module:
        return UNKNOWN
    package = module.partition(".")[0]
    if package == "__main__":
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        if spec is None:
            return UNKNOWN
        package = spec.name.partition(".")[0]
    for distribution in metadata.distributions():
        if _contains(distribution, package):
            return distribution.version
    return UNKNOWN


def _contains(distribution: metadata.Distribution, package: str) -> bool:
    """As `metadata.packages_distributions()`, without its tenth of a second at each start."""
    if declared := (distribution.read_text("top_level.txt") or "").split():
        return package in declared
    files = "\n" + (distribution.read_text("RECORD") or "")
    return f"\n{package}/" in files or f"\n{package}." in files
