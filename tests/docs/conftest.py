"""Where the pages are followed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import embedded

pytest.register_assert_rewrite(
    *(f"tests.docs.{name}" for name in ("how_to", "operate", "reference", "understand"))
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the private server's user may enter, if root runs the tests; pytest's own
    directories are closed to that user."""
    place = Path(tempfile.mkdtemp(prefix="rota-page-", dir="/tmp"))
    place.chmod(0o755)
    yield place
    embedded.stop(place / ".rota")
    shutil.rmtree(place)
