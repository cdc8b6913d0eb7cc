"""Which Rota this is, and which release of the application runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from rota.errors import UsageError
from rota.model.bounds import NAME_MAX, check_text

VERSION = "0.1.0"
"""Rota's own version. Migrations are recorded with it."""

UNKNOWN = "unknown"
"""The release of an application that nothing names."""

RELEASE_VARIABLE = "ROTA_RELEASE"
RELEASE_VARIABLES = (
    RELEASE_VARIABLE,
    "HEROKU_SLUG_COMMIT",
    "HEROKU_RELEASE_VERSION",  # of an image, which has no slug
    "RENDER_GIT_COMMIT",
    "RAILWAY_GIT_COMMIT_SHA",
    "FLY_IMAGE_REF",  # FLY_MACHINE_VERSION differs from machine to machine
    "GITHUB_SHA",
)
"""The variables that name a release; the first that is set counts."""
GIT_S = 2.0
"""The longest wait for git, in seconds, at the start of a worker."""


def release_of(module: str | None) -> str:
    """Return the release of an application with this module: what the environment names, the commit
    of its checkout, the version of its distribution, else `unknown`."""
    return read_release(os.environ) or _read_commit(module) or _read_version(module) or UNKNOWN


def read_release(variables: Mapping[str, str]) -> str | None:
    """Return the release that environment variables name; None: they name none that can be
    stored."""
    for name in RELEASE_VARIABLES:
        given = variables.get(name, "").strip()
        try:
            return check_text(given, name, NAME_MAX)
        except UsageError:
            continue
    return None


def _read_commit(module: str | None) -> str | None:
    """Return the commit of the checkout that has the module's file; None: no checkout has it, as of
    an installed package, or git does not answer."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if file is None:
        return None
    # In a hook of git such variables name another repository.
    variables = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    # A file that git does not track, such as one of `.venv`, is not of that commit.
    for asked in (["ls-files", "--error-unmatch", "--", file], ["rev-parse", "--short=12", "HEAD"]):
        try:
            said = subprocess.run(
                ["git", "-C", Path(file).parent, *asked],
                env=variables, timeout=GIT_S, check=True, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            ).stdout.strip()  # fmt: skip
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
    return said


def _read_version(module: str | None) -> str | None:
    """Return the version of the distribution that a module comes from; None: it has none."""
    if not module:
        return None
    package = module.partition(".")[0]
    if package == "__main__":
        spec = getattr(sys.modules.get("__main__"), "__spec__", None)
        if spec is None:
            return None
        package = spec.name.partition(".")[0]
    for distribution in metadata.distributions():
        if _contains(distribution, package):
            return distribution.version
    return None


def _contains(distribution: metadata.Distribution, package: str) -> bool:
    """As `metadata.packages_distributions()`, without its tenth of a second at each start."""
    if declared := (distribution.read_text("top_level.txt") or "").split():
        return package in declared
    files = "\n" + (distribution.read_text("RECORD") or "")
    return f"\n{package}/" in files or f"\n{package}." in files
