"""What a worker does while a queue is paused, and a drain that meets one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rota
from rota.worker.claimer import Claimer
from tests.support.cli import SHOP, CommandLine
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, rows, status, value

pytestmark = pytest.mark.waits


def jobs() -> rota.Jobs:
    types = rota.Jobs()

    @types.job("mail", queue="email")
    async def mail() -> None: ...

    @types.job("work")
    async def work() -> None: ...

    return types


@pytest.fixture(autouse=True)
def declared(database: str) -> None:
    """Job types are known from the start, and so is where their jobs wait."""
    app = rota.App(database, jobs=[jobs()])
    app.sync()
    app.close()


@rule("M87")
async def test_a_worker_leaves_a_paused_queue_alone_and_finds_all_of_it_when_it_is_resumed(
    database: str, connection: Connection
) -> None:
    """Jobs that came before and during the pause lie where its frontier waits. Its polls are short,
    and it gets no notifications."""
    connection.execute("select * from rota.queue_pause('email')")
    async with Hand(database, jobs(), notify=False, poll_s=0.05) as hand:
        before = put(connection, "mail")
        for _ in range(3):  # each answered by a claim that began after the job before
            other = put(connection, "work")
            await hand.heard(rota.events.JobSucceeded, job=other)
        during = put(connection, "mail")
        assert {status(connection, job) for job in (before, during)} == {"queued"}
        # As if it ended by itself: no request to look back.
        connection.execute("update rota.queue set paused_until = rota.clock()")
        for job in (before, during):
            await hand.heard(rota.events.JobSucceeded, job=job)


@rule("M87")
async def test_a_paused_queue_moves_no_frontier(database: str, connection: Connection) -> None:
    """A frontier that had moved would find these at a look back only: at the next look at
    everything, which is made to be far away."""
    ids = [put(connection, "mail") for _ in range(3)]
    connection.execute("update rota.job set run_at = run_at - interval '1 hour'")
    connection.execute("select * from rota.queue_pause('email')")
    async with Hand(database, jobs(), notify=False, poll_s=0.05) as hand:
        await hand.heard(rota.events.JobSucceeded, job=put(connection, "work"))
        await hand.heard(rota.events.JobSucceeded, job=put(connection, "work"))
        claimer = hand.part(Claimer)
        [frontier] = claimer._frontiers._by_queue["email"].values()
        assert frontier.key[0].year == 1970
        connection.execute("select rota.queue_resume('email')")
        for job in ids:
            await hand.heard(rota.events.JobSucceeded, job=job)
        assert frontier.key[0].year > 1970


@rule("M80", "M87")
def test_a_drain_ends_beside_a_paused_queue_and_says_so(
    database: str, connection: Connection
) -> None:
    app = rota.App(database, jobs=[jobs()])
    app.queues.pause("email", why="mending")
    mail, work = put(connection, "mail"), put(connection, "work")
    report = app.drain()
    assert (report.claimed, report.paused, status(connection, mail), status(connection, work)) == (
        1,
        ["email"],
        "queued",
        "succeeded",
    )
    assert report.oldest_due == value(connection, "select run_at from rota.job")
    assert report.line().endswith(", paused: email")
    app.queues.pause_all()
    assert (app.drain().claimed, app.drain().paused) == (0, ["default", "email"])
    app.queues.resume_all()
    app.queues.resume("email")
    report = app.drain()
    assert (report.claimed, report.paused, report.oldest_due) == (1, [], None)
    app.close()


@rule("M33", "M87")
def test_upkeep_goes_on_while_everything_is_paused(database: str, connection: Connection) -> None:
    """A lost job goes back to its queue, and one whose time is over dies of that; neither is
    started."""
    app = rota.App(database, jobs=[jobs()])
    lost, late = put(connection, "work"), put(connection, "work")
    connection.execute(
        "update rota.job set status = 'running', locked_by = 'gone', "
        "locked_until = rota.clock() - interval '1 h', claims = 1, attempts = 1 where id = %s",
        [lost],
    )
    app.queues.pause_all(by="anna")
    connection.execute("update rota.installation set paused_at = paused_at - interval '1 h'")
    connection.execute(
        "update rota.job set run_at = run_at - interval '1 h', "
        "expires_at = rota.clock() - interval '1 s' where id = %s",
        [late],
    )
    assert app.drain().claimed == 0
    assert rows(connection, "select id, status from rota.job order by id") == [
        (lost, "queued"),
        (late, "dead"),
    ]
    assert "everything was paused by anna" in str(
        value(connection, "select last_error from rota.job where id = %s", late)
    )
    app.close()


@rule("M87")
def test_the_command_line_pauses_shows_and_resumes(tmp_path: Path, database: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    command = CommandLine(tmp_path, ROTA_DATABASE_URL=database, ROTA_APP="shop:app")
    said = command.ok(
        "queues", "pause", "email", "--for", "2h", "--why", "mending", "--by", "anna"
    ).out
    told = r"^queue email: paused .+ by anna, ends in .+: mending$"
    assert re.fullmatch(told, said.strip())
    assert re.search(told, command.ok("queues").out, re.MULTILINE)
    everything = command.ok("queues", "pause", "--all", "--json").json["paused"]
    assert everything["queue"] is None
    listed = command.ok("queues", "--json").json
    assert ([pause["queue"] for pause in listed["paused"]], listed["paused_all"]) == (
        ["email"],
        everything,
    )
    resumed = command.ok("queues", "resume", "--all").out.splitlines()
    assert resumed[0] == "everything resumed" and resumed[1].startswith(
        "still paused: queue email: "
    )
    assert command.ok("queues", "resume", "email").out == "queue email resumed\n"
    assert command.ok("queues", "resume", "email").out == "queue email was not paused\n"
    assert command.ok("queues", "resume", "--copy").out == "this is not a restored copy\n"
    assert command("queues", "pause").error == (2, "give exactly one of: a queue, --all")
    assert command("queues", "resume", "x", "--all").error == (
        2,
        "give exactly one of: a queue, --all, --copy",
    )
