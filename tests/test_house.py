"""What `make check` counts: the names, the rooms and the modules on the way of a job."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from scripts import house, trace

SEAT = """class Seat:
    @property
    def taken(self): ...
    def is_taken(self): ...
    async def _taken_by(self): ...
"""
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


@pytest.mark.parametrize("word", ["taken", "told", "chosen", "judged", "settled", "embedded"])
def test_a_participle_is_no_verb(word: str) -> None:
    assert house.is_participle(word)


@pytest.mark.parametrize("word", ["take", "tell", "need", "succeed", "read", "put", "is", "feed"])
def test_a_verb_is_no_participle(word: str) -> None:
    assert not house.is_participle(word)


def test_only_functions_are_held_to_be_verbs(package: Path) -> None:
    package.joinpath("seat.py").write_text(SEAT)

    assert list(house.participles()) == ["src/rota/seat.py:5: _taken_by"]


def test_a_class_that_exists_twice_is_named_with_both_places(package: Path) -> None:
    package.joinpath("one.py").write_text("class Seat: ...\nclass Row: ...\n")
    package.joinpath("two.py").write_text("def sit():\n    class Seat: ...\n")

    assert list(house.classes_that_exist_twice()) == ["Seat: src/rota/one.py:1, src/rota/two.py:2"]


def test_a_room_is_a_module_or_a_folder_of_modules(package: Path) -> None:
    for name in ("__init__.py", "py.typed", "app.py", "store/db.py", "__pycache__/app.py"):
        package.joinpath(name).parent.mkdir(exist_ok=True)
        package.joinpath(name).touch()

    assert house.rooms() == ["app.py", "store"]


def test_a_line_may_be_wide_only_for_its_url(package: Path) -> None:
    file = package / "wide.py"
    file.write_text(f"# {'x' * 98}\n# {'x' * 99}\n# https://example.org/{'x' * 99}\n")

    assert house.wide_lines(iter([file])) == ["src/rota/wide.py:2"]


def test_an_sql_file_that_exists_twice_is_named_with_both_places(package: Path) -> None:
    for name in ("functions/sit.sql", "statements/sit.sql", "statements/stand.sql"):
        package.joinpath(name).parent.mkdir(exist_ok=True)
        package.joinpath(name).touch()

    assert list(house.sql_files_that_exist_twice()) == [
        "sit.sql: src/rota/functions/sit.sql, src/rota/statements/sit.sql"
    ]


def test_a_twin_is_counted_where_both_are_written_out(package: Path) -> None:
    package.joinpath("seat.py").write_text(
        "class Seat:\n def sit(self): ...\n async def asit(self): ...\n def _up(self): ...\n"
        " async def _aup(self): ...\n def list(self): ...\n alist = awaitable(list)\n"
    )

    assert list(house.twins()) == ["src/rota/seat.py:2: sit", "src/rota/seat.py:4: _up"]


def test_a_function_with_one_caller_in_sql_is_named_with_it(package: Path) -> None:
    for name, text in {
        "functions/sit.sql": "sit", "functions/stand.sql": "stand", "functions/lie.sql": "sit lie",
        "views/rest.sql": "select sit(), lie(), lie_down()", "rest.py": "stand",
    }.items():  # fmt: skip
        file = package / "store" / "schema" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    schema = "src/rota/store/schema"
    assert list(house.functions_with_one_caller()) == [
        f"{schema}/functions/lie.sql: {schema}/views/rest.sql"
    ]


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


@pytest.mark.waits
def test_the_way_of_a_job_is_what_runs_for_every_job(database: str) -> None:
    ways = trace.trace(database)

    assert "store.ops.enqueue" in ways["enqueue"]
    assert "store.ops.claim" not in ways["enqueue"]
    way = set(ways["claim to history"])
    assert {"worker.claimer", "store.ops.claim", "worker.finisher"} <= way
    assert not any(module.startswith(("upkeep", "worker.listener", "cli")) for module in way)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package that is counted in place of Rota's."""
    package = tmp_path / "src" / "rota"
    package.mkdir(parents=True)
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "PACKAGE", package)
    monkeypatch.setattr(house, "SCHEMA", package / "store" / "schema")
    return package
