"""Being in somebody's project, in this process: for commands of which there are many, and which end before they do anything."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest


def enter(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go there. What is imported from it, and where from, is forgotten with the test: the next one has a `shop` of its own."""
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for file in project.glob("*.py"):
        monkeypatch.setitem(sys.modules, file.stem, ModuleType(file.stem))  # only what was set is taken out again
        monkeypatch.delitem(sys.modules, file.stem)
