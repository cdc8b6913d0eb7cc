"""Which Rota this is, and which release of the application runs."""

from __future__ import annotations

import sys
from importlib import metadata

VERSION = "0.1.0"
"""Rota's own version. Migrations are recorded with it."""

UNKNOWN = "unknown"
"""The release of an application that comes from no distribution."""


def release_of(module: str | None) -> str:
    """Return the version of the distribution that a module comes from, else `unknown`."""
    if not module:
        return UNKNOWN
    package = module.partition(".")[0]
    if package == "__main__":
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        package = spec.name.partition(".")[0] if spec else ""
    for distribution in metadata.packages_distributions().get(package, ()):
        return metadata.version(distribution)
    return UNKNOWN
