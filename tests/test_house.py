"""What `make check` counts, where it is not obvious."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from scripts import house

CHAIR = '''class Seat:
    """A seat."""
    width_cm: int
    """Its width."""
    legs: int
    _wood: str
    def __init__(self):
        self.owner = None
        self.price = 0
        """In cents."""
    def sit(self):
        """Sit down."""
    def rise(self): ...
class Chair(Seat):
    back: bool
    def sit(self): ...
    @property
    def legs(self): ...
def build(): ...
'''


def test_a_twin_is_counted_where_both_are_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "rota"
    package.mkdir(parents=True)
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "PACKAGE", package)
    package.joinpath("seat.py").write_text(
        "class Seat:\n def sit(self): ...\n async def asit(self): ...\n def _up(self): ...\n"
        " async def _aup(self): ...\n def list(self): ...\n alist = awaitable(list)\n"
    )

    assert list(house.twins()) == ["src/rota/seat.py:2: sit", "src/rota/seat.py:4: _up"]


def test_a_public_member_without_a_docstring_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("chairs.py").write_text(f"import decimal\n{CHAIR}")
    monkeypatch.syspath_prepend(tmp_path)

    assert sorted(house.members_without_docstring(importlib.import_module("chairs"))) == [
        "chairs.Chair: Chair", "chairs.Chair: back", "chairs.Chair: legs", "chairs.Chair: owner",
        "chairs.Chair: rise", "chairs.Seat: legs", "chairs.Seat: owner", "chairs.Seat: rise",
        "chairs.build",
    ]  # fmt: skip
