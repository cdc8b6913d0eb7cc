"""agents.md: what it calls wrong goes wrong as it says, and what it calls right does not."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.testing import Harness
from tests.docs.reader import FILE, Reader, read_page
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.support.server import PostgresServer

PAGE = read_page("agents.md")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
[SNIPPET] = re.findall(r"^```md\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
Connection = psycopg.Connection[TupleRow]


def write_files(place: Path) -> None:
    """Write the files of the page, as a reader does."""
    for block in BLOCKS:
        found = FILE.match(block)
        assert found is not None, block
        path = place / found[1]
        before = path.read_text() + "\n\n" if found[2] else ""
        path.write_text(before + block)


@pytest.fixture
def modules(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, ModuleType]]:
    """The shop, with the wrong code and the right one: each declares its jobs in a shop of its
    own."""
    write_files(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    found = {}
    for name in ("wrong", "right"):
        sys.modules.pop("shop", None)
        found[name] = importlib.import_module(name)
    yield found
    for module in found.values():
        module.app.close()
    for name in ("shop", "wrong", "right"):
        sys.modules.pop(name, None)


def count_jobs(connection: Connection) -> int:
    """Return how many jobs there are."""
    found = connection.execute("select count(*) from rota.job").fetchone()
    assert found is not None
    return int(found[0])


@rule("M51")
def test_an_order_that_is_rolled_back_keeps_its_job_only_in_the_wrong_code(
    modules: dict[str, ModuleType], database: str, connection: Connection
) -> None:
    connection.execute("create table orders (id bigint generated always as identity)")
    counts = {}
    for name, module in modules.items():
        with psycopg.connect(database) as own, own.transaction(force_rollback=True):
            module.place_order(own)
        counts[name] = count_jobs(connection)
        connection.execute("delete from rota.job")
    assert counts == {"wrong": 1, "right": 0}


def test_an_object_is_refused_and_its_id_is_not(
    modules: dict[str, ModuleType], connection: Connection
) -> None:
    wrong, right = modules["wrong"], modules["right"]
    with pytest.raises(rota.errors.PayloadError):
        wrong.send_for(wrong.Order())
    assert count_jobs(connection) == 0
    right.send_for(right.Order())
    assert count_jobs(connection) == 1


def perform_twice(database: str, new_job: Any) -> None:
    """Run a job's first two attempts."""
    with Harness(new_job.job_type.app, url=database) as harness:
        [job] = harness.app.enqueue_many([new_job])
        for _ in range(2):
            assert harness.perform(job.id).status is rota.Status.FAILED


@rule("M73")
def test_a_second_attempt_charges_again_only_in_the_wrong_code(
    modules: dict[str, ModuleType], database: str
) -> None:
    wrong, right = modules["wrong"], modules["right"]
    perform_twice(database, wrong.charge_twice.new(17))
    perform_twice(database, right.charge_once.new(17))
    assert (wrong.charged, right.charged) == ([17, 17], [17])


def test_an_error_that_is_caught_is_a_success_and_one_that_leaves_the_handler_is_not(
    modules: dict[str, ModuleType], database: str
) -> None:
    ended = []
    for name, url in (("wrong", "https://x"), ("right", "https://x"), ("right", "x")):
        module = modules[name]
        with Harness(module.app, url=database) as harness:
            ended.append(str(harness.perform(module.import_prices.new(url)).status))
    assert ended == ["succeeded", "failed", "dead"]


def test_a_call_that_blocks_the_loop_warns_and_one_that_is_awaited_does_not(
    modules: dict[str, ModuleType], database: str
) -> None:
    with (
        Harness(modules["wrong"].app, url=database) as harness,
        pytest.warns(RuntimeWarning, match="blocks the running event loop"),
    ):
        harness.perform(modules["wrong"].close_day.new())
    with Harness(modules["right"].app, url=database) as harness:
        assert harness.perform(modules["right"].close_day.new()).status == "succeeded"


def test_the_test_of_the_page_passes(database: str, server: PostgresServer, tmp_path: Path) -> None:
    write_files(tmp_path)
    with Reader(tmp_path, server, database) as reader:
        reader.environment["ROTA_APP"] = "shop:app"
        assert "1 passed" in reader.type("pytest test_shop.py")


def test_the_snippet_names_what_there_is(tmp_path: Path) -> None:
    write_files(tmp_path)
    [command] = re.findall(r"`rota (check [^`]+)`", SNIPPET)
    CommandLine(tmp_path).ok(*command.split())
    [page] = re.findall(r"docs/\S+\.md", SNIPPET)
    assert (Path(__file__).parents[2] / page).exists()
    for name in ("using", "enqueue", "aenqueue"):
        assert hasattr(rota.JobType, name) and f".{name}(" in SNIPPET
    assert hasattr(rota.Context, "effect") and hasattr(rota, "Dead")
    for gone in re.findall(r"there is no `\.(\w+)` or `\.(\w+)`", SNIPPET)[0]:
        assert not hasattr(rota.JobType, gone)
