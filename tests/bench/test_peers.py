"""`make peers`: a round is played, its JSON and its page hold together, and pages quote it
exactly."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.peers import page
from bench.peers.install import NotInstalled, install
from bench.peers.ledger import EACH, Entry, Ledger, LedgerFile
from bench.peers.played import Failed, Played
from bench.peers.result import by_table
from bench.peers.run import play
from bench.peers.scenarios import SCENARIOS, crash
from bench.peers.stage import Scale
from bench.peers.system import System
from bench.peers.systems import load
from tests.support.guard import in_memory

TINY = Scale(rounds=1, jobs=100, drain_s=20, pick_up_s=0.2)
SYSTEMS = {system.name: system for system in load()}
PEER = "PgQueuer"
LIMIT_S = 240


@pytest.fixture
def two() -> list[System]:
    """Rota and one peer, each in one setup; Rota alone, loudly, where that cannot be installed."""
    names = ["Rota", PEER]
    try:
        install(SYSTEMS[PEER])
    except NotInstalled as why:
        print(f"{PEER} CANNOT BE INSTALLED: {why}")  # noqa: T201
        names.remove(PEER)
    return [replace(system, setups=(system.lead,)) for system in map(SYSTEMS.__getitem__, names)]


@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.skipif(in_memory() is None, reason="NO ROOM IN MEMORY: no round is played")
def test_a_round_is_played_and_its_page_stands_alone(two: list[System], tmp_path: Path) -> None:
    scenarios = [SCENARIOS[name] for name in ("drain", "pick-up")]
    document = play(two, scenarios, TINY, LIMIT_S, memory=True)
    assert document["failed"] == []
    assert document["skipped"] == {}
    figures = document["figures"]
    asked = {(row["scenario"], row["what"]) for row in figures}
    assert {scenario for scenario, _ in asked} == {"drain", "pick-up"}
    for scenario, what in asked:
        found = {
            row["system"] for row in figures if (row["scenario"], row["what"]) == (scenario, what)
        }
        assert found == {system.name for system in two}, (scenario, what)
    assert all(row["value"] > 0 for row in figures if row["unit"] == "jobs/s")
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    check_page(page.write(document), figures)


def check_page(text: str, figures: list[dict[str, Any]]) -> None:
    """Check that the page needs no other file, has no identifier twice, and has each figure."""
    assert re.findall(r'(?:src|href)="|url\(|@import|<script', text) == []
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len({*ids})
    assert "prefers-color-scheme: dark" in text
    for figure in figures:
        assert page._value(figure) in text, figure


def figure(system: str, value: float | None, better: str = "more") -> dict[str, Any]:
    """Return a figure of one table."""
    return {
        "scenario": "drain", "what": "no-op jobs", "unit": "jobs/s", "better": better,
        "system": system, "setup": "defaults", "value": value, "values": [value], "note": "",
        "history": "kept", "is_lead": True, "is_default": True,
    }  # fmt: skip


def test_the_page_begins_with_where_another_system_is_ahead() -> None:
    tables = by_table([figure("Rota", 1.0), figure("other", 3.0)])
    assert "other, defaults" in "".join(page._losses(tables))
    batched = {**figure("Rota", 9.0), "setup": "100 jobs a call", "is_lead": False}
    tables = by_table([batched, figure("Rota", 1.0), figure("other", 3.0)])
    assert "other, defaults" in "".join(page._losses(tables)), "it is beside Rota one at a time"
    ahead = by_table([figure("Rota", 3.0), figure("other", 1.0)])
    assert "In none" in "".join(page._losses(ahead))
    same = by_table([figure("Rota", 2002.9), figure("other", 2003.1)])
    assert "In none" in "".join(page._losses(same)), "both are printed as 2,003"
    own = by_table([figure("Rota", 1.0), figure("Rota on Django", 3.0), figure("other", 2.0)])
    assert "other, defaults" in "".join(page._losses(own)), "Rota on Django is Rota"


def test_the_ledger_counts_the_jobs_of_all_processes(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "ledger")
    ledger = Ledger(str(file.path))
    for _ in range(2 * EACH):
        ledger.count()
    assert file.count_begun() == EACH + 1
    with file.path.open("a") as other:
        other.write("count 301 1 1.5\nbegin 7 1 2.5\nend 7 1 ")  # the last is not complete
    assert file.count_begun() == EACH + 1 + 301
    assert [(entry.kind, entry.n, entry.at) for entry in file.entries()][-1] == ("begin", 7, 2.5)


@pytest.mark.parametrize("said", ["", "[1,"])
def test_a_result_that_cannot_be_read_is_a_failure_of_its_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    monkeypatch.setattr(Played, "_command", lambda _: ["sh", "-c", 'printf %s "$0"', said])
    monkeypatch.setattr(Played, "_environment", lambda _: None)
    none: Any = None
    played = Played(SYSTEMS[PEER], SYSTEMS[PEER].lead, none, none, tmp_path, none)
    with pytest.raises(Failed, match="steady gave no result"):
        played.run("steady")


def test_a_job_ran_twice_at_once_unless_the_first_process_was_dead() -> None:
    entries = [
        Entry("begin", 1, 10, 1.0), Entry("begin", 1, 11, 2.0), Entry("end", 1, 10, 3.0),
        Entry("begin", 2, 12, 1.0), Entry("begin", 2, 11, 2.0), Entry("end", 2, 11, 3.0),
        Entry("begin", 3, 10, 1.0), Entry("end", 3, 10, 2.0), Entry("begin", 3, 11, 2.5),
    ]  # fmt: skip
    runs = crash.read_runs(entries)
    assert {n: len(mine) for n, mine in runs.items()} == {1: 2, 2: 2, 3: 2}
    assert crash.count_overlaps(runs, {12: 1.5}) == 1
    assert crash.count_overlaps(runs, {}) == 2
