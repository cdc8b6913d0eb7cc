"""A project, and `rota` in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.here import Here
from tests.support.cli import SHOP


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project: a directory with a module and a pyproject.toml that names its App."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "shop"\n\n[tool.rota]\napp = "shop:app"\n'
    )
    return tmp_path


@pytest.fixture
def rota(shop: Path, database: str) -> Here:
    """`rota` in that project and in this process, with a migrated database."""
    return Here(shop, ROTA_DATABASE_URL=database)
