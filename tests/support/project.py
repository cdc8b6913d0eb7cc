"""Projects of users: one inside this process, and one with a private server.

The former is for commands that end before they do anything.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from rota import embedded
from tests.support.cli import SHOP


@contextmanager
def with_private_server(name: str = "project") -> Iterator[Path]:
    """A shop without a database, that also the user of root's private server may enter: each run of
    pytest closes the place of all again.
    """
    with tempfile.TemporaryDirectory(prefix="rota-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        project = Path(place, name)
        project.mkdir()
        (project / "shop.py").write_text(SHOP)
        try:
            yield project
        finally:
            embedded.stop(project / ".rota")


def enter(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go there.

    What is imported from it, and where from, is forgotten with the test: the next one has a `shop`
    of its own.
    """
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for file in project.glob("*.py"):
        # Only what was set is removed again.
        monkeypatch.setitem(sys.modules, file.stem, ModuleType(file.stem))
        monkeypatch.delitem(sys.modules, file.stem)
