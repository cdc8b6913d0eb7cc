"""What a worker does while a queue is paused, and a drain that meets one."""

from __future__ import annotations

import pytest

import rota
from tests.support.rules import rule
from tests.worker.hand import Hand
from tests.worker.table import Connection, leave_behind, put, rows, status, value


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
    leave_behind(connection, lost)
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
