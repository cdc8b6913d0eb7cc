"""Workers in a restored copy: a dump of production in staging sends no mail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

import rota
from rota.worker.copy_guard import CopyGuard
from tests.support.cli import SHOP, CommandLine
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.hand import Hand
from tests.worker.table import leave_behind, put, rows, status, until_asked

BECOMES_A_COPY = (
    "update rota.installation set database_name = 'production', worked_at = rota.clock()"
)
"""What a dump that is restored under another name looks like: `tests/store/test_copy.py`."""


@pytest.fixture
def restored(database: str) -> str:
    """The URL of a copy with a job that is due, one of a worker that was lost, and one that has
    expired."""
    with psycopg.connect(database, autocommit=True) as own:
        for _ in range(3):
            put(own, "quick")
        leave_behind(own, 2)
        own.execute("update rota.job set expires_at = rota.clock() - interval '1 s' where id = 3")
        own.execute(BECOMES_A_COPY)
    return database


def all_jobs(url: str) -> list[object]:
    with psycopg.connect(url, autocommit=True) as own:
        return [
            rows(own, "select j from rota.job j order by id"),
            rows(own, "select id from rota.job_history"),
        ]


@rule("M80", "M87")
def test_a_drain_exits_with_6_claims_nothing_and_changes_no_job(
    restored: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP.replace('"send_mail"', '"quick"'))
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=restored, ROTA_APP="shop:app")
    before = all_jobs(restored)
    ran = command("work", "--drain")
    assert (ran.status, ran.out) == (6, "")
    assert (
        f"this is database {restored.rpartition('/')[2]} of server" in ran.err
        and "rota queues resume --copy" in ran.err.splitlines()[-1]
    )
    assert all_jobs(restored) == before
    assert command.ok("queues", "resume", "--copy", "--why", "staging").out == "this copy resumed\n"
    assert command.ok("work", "--drain").out.startswith("claimed ")
    assert all_jobs(restored) != before


@rule("M84", "M87")
async def test_a_worker_under_which_a_copy_is_restored_begins_no_job_of_it_and_goes_on_when_it_may(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.worker.copy_guard.PAUSED_CHECK_S", 0.05)
    types = rota.Jobs()

    @types.job("t")
    async def t() -> None: ...

    with psycopg.connect(database, autocommit=True) as own:
        async with Hand(database, types, poll_s=0.05) as hand:
            await hand.heard(rota.events.JobSucceeded, job=put(own, "t"))
            own.execute(BECOMES_A_COPY)
            job = put(own, "t")
            await hand.heard(rota.events.DatabaseCopied)
            assert (
                hand.worker.health.readiness() is not None and hand.worker.health.liveness() is None
            )
            await asyncio.to_thread(until_asked, own, "claim", 5)
            assert status(own, job) == "queued"
            own.execute("select rota.resume_copy()")
            await hand.heard(rota.events.JobSucceeded, job=job)


@rule("M2", "M87")
async def test_what_a_claim_brings_beside_a_paused_queue_runs_though_the_database_goes_away(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise rota.DatabaseUnavailable("gone")

    types = rota.Jobs()
    for name in ("default", "other"):
        types.job(name, queue=name)(lambda: None)
    with psycopg.connect(database, autocommit=True) as own:
        async with Hand(database, types, queues={"default": 2, "other": 2}) as hand:
            monkeypatch.setattr(hand.part(CopyGuard), "tick", fail)
            own.execute("select rota.queue_pause('other')")
            await hand.heard(rota.events.JobSucceeded, job=put(own, "default"))


@rule("M80", "M87")
async def test_a_drain_during_which_the_database_becomes_a_copy_records_what_runs_and_says_so(
    database: str,
) -> None:
    types = rota.Jobs()
    with psycopg.connect(database, autocommit=True) as own:

        @types.job("t")
        async def t() -> None:
            own.execute(BECOMES_A_COPY)
            await aeventually(lambda: hand.worker.is_stopping)

        first = put(own, "t")
        hand = Hand(database, types, drain=True, poll_s=0.05)
        with pytest.raises(rota.errors.CopiedDatabase, match="recorded as database production"):
            await hand.run()
        assert status(own, first) == "succeeded"


@rule("M84", "M87")
async def test_in_a_copy_no_upkeep_is_done_either(
    restored: str, jobs: rota.Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten looks at the stamp, over the connection that most of upkeep shares: the first turns of
    all its parts would have been over."""
    for name in ("PAUSED_CHECK_S", "LOG_S"):
        monkeypatch.setattr(f"rota.worker.copy_guard.{name}", 0.05)
    before = all_jobs(restored)
    async with Hand(restored, jobs, poll_s=0.05) as hand:
        await hand.heard(rota.events.DatabaseCopied, 10)
        assert all_jobs(restored) == before
        with psycopg.connect(restored, autocommit=True) as own:
            own.execute("select rota.resume_copy()")
        await hand.heard(rota.events.JobDead, job=3)
        await hand.heard(rota.events.JobReaped, job=2)
        await hand.heard(rota.events.JobSucceeded, job=2)
