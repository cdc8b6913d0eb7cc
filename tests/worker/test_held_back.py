"""A worker says what holds work back: what the database refuses, and payloads that it cannot
read."""

from __future__ import annotations

import logging

import pytest

import rota
from rota.observe.events import (
    DatabaseLost,
    JobHandedBack,
    JobSucceeded,
    PayloadUnread,
    TypeUnknown,
)
from rota.worker import lease_keeper
from rota.worker.type_watch import TypeWatch
from tests.support.rules import rule
from tests.support.wait import aeventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, put, put_many, value

REFUSE = """
create function refuse() returns trigger language plpgsql as $$
  begin raise 'no replica identity' using errcode = '55000'; end $$;
create trigger refuse before delete on rota.batch_delta for each row execute function refuse();
insert into rota.batch_delta (batch, total) values (1, 1);
"""
REFUSED = "select refused from rota.worker"


@rule("M84", "M86")
async def test_maintenance_that_the_database_refuses_is_named_in_the_log_and_with_the_heartbeat(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "HEARTBEAT_S", 0.1)
    connection.execute(REFUSE)
    jobs = rota.Jobs()
    jobs.job("mail")(lambda: None)
    async with Hand(database, jobs) as hand:
        lost = await hand.lost("batch folder")
        assert lost.refused and "batch folder: failed, next try in" in lost.text()
        assert lost.text().endswith("the database refuses: no replica identity")
        assert "database unavailable" not in lost.text()
        said = "batch folder: the database refuses: no replica identity"
        await aeventually(lambda: value(connection, REFUSED) == said)
        connection.execute("drop trigger refuse on rota.batch_delta")
        await aeventually(lambda: value(connection, REFUSED) is None)
    assert all(event.refused for event in hand.events if isinstance(event, DatabaseLost))


@rule("M12", "M84")
async def test_payloads_that_this_release_cannot_read_are_one_warning_for_each_type(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()

    @jobs.job("mail")
    async def mail(to: str) -> None: ...

    connection.execute(
        "insert into rota.worker (name, host, pid, version, release, job_types, queues) "
        "values ('old', 'h', 1, '0', 'old', '{mail}', '{}')"
    )
    put_many(connection, "mail", 3)
    async with Hand(database, jobs) as hand:
        await hand.heard(JobHandedBack, 3)
        warned = await hand.heard(PayloadUnread)
        assert warned.level_now == logging.WARNING and "to" in warned.reason
        connection.execute("insert into rota.job (job_type, payload) values ('mail', '{\"to\":1}')")
        connection.execute(
            "insert into rota.job (job_type, payload) values ('mail', '{\"to\":\"a\"}')"
        )
        await hand.heard(JobSucceeded)
        await hand.heard(JobHandedBack, 4)
    backs = [event for event in hand.events if isinstance(event, JobHandedBack)]
    assert {event.level_now for event in backs} == {logging.DEBUG}, "there may be thousands at once"
    assert len([event for event in hand.events if isinstance(event, PayloadUnread)]) == 1


@rule("M33", "M85")
async def test_a_worker_tells_once_of_due_jobs_whose_type_no_live_worker_knows(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    jobs.job("known")(lambda: None)
    for name in ("mail", "mail", "known", "elsewhere"):
        put(connection, name)
    connection.execute("update rota.job set queue = 'other' where job_type = 'elsewhere'")
    hand = Hand(database, jobs, drain=True)
    await hand.run()
    [told] = [event for event in hand.events if isinstance(event, TypeUnknown)]
    assert (told.job_type, told.jobs) == ("mail", 2)

    async with Hand(database, jobs) as hand:
        watch = hand.part(TypeWatch)
        await hand.heard(TypeUnknown)
        await watch.tick()
        connection.execute("update rota.worker set job_types = '{mail}' where stopped_at is null")
        await watch.tick()
        connection.execute("update rota.worker set job_types = '{known}'")
        assert sum(isinstance(event, TypeUnknown) for event in hand.events) == 1
        await watch.tick()
        assert sum(isinstance(event, TypeUnknown) for event in hand.events) == 2
