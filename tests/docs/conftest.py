"""Where the pages are followed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import embedded


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the user of root's private server may enter; pytest's own are closed to it."""
    place = Path(tempfile.mkdtemp(prefix="rota-readme-", dir="/tmp"))
    place.chmod(0o755)
    yield place
    embedded.stop(place / ".rota")
    shutil.rmtree(place)
