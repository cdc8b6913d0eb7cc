"""The page of shards: four servers, jobs by key, and a shard that is taken out."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

from tests.docs.reader import ROOT, Reader, list_files, read_page
from tests.support.guard import stop_servers
from tests.support.rules import rule
from tests.support.server import PostgresServer, own_server
from tests.support.wait import eventually

JOBS, ACCOUNTS = 400, 80
PAGE = read_page("shards.md")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="--database is for Linux"),
]


@pytest.fixture
def shards(run_place: Path, tmp_path: Path) -> Iterator[dict[str, PostgresServer]]:
    """Four servers, with the table of the page."""
    with ExitStack() as stack:
        found = {}
        for number in range(1, 5):
            found[f"shard{number}"] = one = own_server(run_place, tmp_path / f"shard{number}.log")
            stack.callback(stop_servers, run_place, one.socket_dir.name)
            with psycopg.connect(one.url()) as connection:
                connection.execute(list_files(PAGE)["tables.sql"].encode())
        yield found


@pytest.fixture
def services(
    shards: dict[str, PostgresServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The service file of the page, with where the servers are."""
    file = tmp_path / "pg_service.conf"
    file.write_text(
        "".join(
            f"[{name}]\nhost=127.0.0.1\nport={one.port}\nuser=postgres\ndbname=postgres\n"
            for name, one in shards.items()
        )
    )
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    monkeypatch.delenv("ROTA_DATABASE_URL", raising=False)
    return str(file)


def _load(monkeypatch: pytest.MonkeyPatch, *shards: str) -> ModuleType:
    """The recipe, in an application with these shards open."""
    monkeypatch.setenv("SHARDS_OPEN", " ".join(shards))
    spec = importlib.util.spec_from_file_location("shards", ROOT / "examples/how-to/shards.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shards", module)
    spec.loader.exec_module(module)
    return module


def _ask(server: PostgresServer, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url()) as connection:
        return connection.execute(query.encode()).fetchall()


def _ended(server: PostgresServer) -> int:
    """How many jobs have ended; each has succeeded at its first attempt, and none is left."""
    kinds = _ask(server, "select distinct status, attempts from rota.job_history")
    assert kinds in ([], [("succeeded", 1)])
    [(count,)] = _ask(server, "select count(*) from rota.job_history")
    assert isinstance(count, int)
    return count


def _until_ended(server: PostgresServer, count: int) -> None:
    eventually(lambda: _ended(server) == count, 120)


@rule("M20", "M51")
def test_jobs_by_key_run_once_in_their_shard_and_a_shard_can_be_drained_and_taken_out(
    shards: dict[str, PostgresServer],
    services: str,
    server: PostgresServer,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    migrate, work, read = re.findall(r"^(?:for|rota) .*$", PAGE, re.MULTILINE)
    place = tmp_path / "reader"
    place.mkdir()
    with Reader(place, server, database) as reader:
        reader.environment["PGSERVICEFILE"] = services
        reader.write("shards.py", list_files(PAGE)["shards.py"])
        for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE"):
            del reader.environment[name]
        reader.type(migrate)
        recipe = _load(monkeypatch, *shards)
        sent = {
            number: recipe.send(number, f"account-{number % ACCOUNTS}") for number in range(JOBS)
        }
        again = {
            number: recipe.send(number, f"account-{number % ACCOUNTS}") for number in range(20)
        }
        assert again == {number: sent[number] for number in range(20)}  # the key is taken
        of_shard = Counter(shard for shard, _ in sent.values())
        assert of_shard.keys() == shards.keys()

        reader.type(work)
        for name, one in shards.items():
            _until_ended(one, 2 * of_shard[name])
            assert {number for (number,) in _ask(one, "select number from invoice")} == {
                number for number, (shard, _) in sent.items() if shard == name
            }
        assert recipe.read_status(*sent[0]) == "succeeded"
        said = dict(line.split(" ", 1) for line in reader.type(read).splitlines())
        assert said.keys() == shards.keys() and all('"queued":0' in text for text in said.values())

        # One leaves, while it has work that waits: only its own accounts move.
        last = shards["shard4"]
        staying = next(n for n, (shard, _) in sent.items() if shard == "shard4")
        with psycopg.connect(last.url()) as connection:
            recipe.send_invoice.using(connection, delay="3s").enqueue(
                JOBS, f"account-{staying % ACCOUNTS}"
            )
        recipe = _load(monkeypatch, "shard1", "shard2", "shard3")
        for account in {number % ACCOUNTS for number in sent}:
            was, now = sent[account][0], recipe.find_shard(f"account-{account}")
            assert now == was or (was == "shard4" and now != was)
        more = {n: recipe.send(n, f"account-{n % ACCOUNTS}") for n in range(JOBS + 1, JOBS + 41)}
        _until_ended(last, 2 * of_shard["shard4"] + 2)
        # Its statistics say that nothing is left.
        text = reader.type(read).splitlines()[-1]
        assert text.startswith("shard4 ")
        left = ast.literal_eval(re.findall(r'"jobs":(\{.*?\})', text)[0])
        assert not any(left[status] for status in ("queued", "waiting", "failed", "running"))
        reader.stop()

        last.stop()
        without = work.replace(" --database service=shard4", "")
        reader.type(without)
        late = [recipe.send(n, f"account-{n % ACCOUNTS}") for n in range(JOBS + 41, JOBS + 81)]
        moved = of_shard + Counter(shard for shard, _ in (*more.values(), *late))
        for name in ("shard1", "shard2", "shard3"):
            _until_ended(shards[name], 2 * moved[name])
