"""What alert rules find, and that all workers together send each notification once."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from rota.model.alert import AlertMatch, AlertStep, Decision, decide
from rota.store import ops
from rota.store.errors import RowLocked
from tests.store.cost import count_blocks
from tests.store.planned import set_clock
from tests.store.work import HAND_BACK, PAYLOAD_MISMATCH, Connection, Hand, insert
from tests.support.rules import rule


def found(connection: Connection, name: str) -> dict[str, float]:
    return {
        match.subject: match.value for match in Hand(connection).run(ops.find_alert_matches(name))
    }


def dead(connection: Connection, count: int, ago: str = "1 minute", **columns: Any) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, failed_at) select %s, 'default', "
        "0, 'dead', rota.clock() - %s::interval"
        f" from generate_series(1, {count})".encode(),
        [columns.get("job_type", "t"), ago],
    )


def attempts(
    connection: Connection,
    count: int,
    ago: str = "1 minute",
    *,
    jobs: int | None = None,
    error: str = "OSError",
    release: str | None = None,
    worker: str = "w",
) -> None:
    """Attempts that failed, of as many jobs unless `jobs` says how many; at once, in a partition
    made for them.
    """
    [(at,)] = connection.execute("select rota.clock() - %s::interval", [ago]).fetchall()
    connection.execute(
        "select rota.partition_ensure('attempt', (%s::timestamptz at time zone 'UTC')::date)", [at]
    )
    connection.execute(
        "insert into rota.attempt (job, claim, attempt, job_type, worker, release, finished_at, "
        "outcome, error_type)"
        " select n %% %s, n, 1, 't', %s, %s, %s, 'failed', %s from generate_series(1, %s) n",
        [jobs or count, worker, release, at, error, count],
    )


def due(connection: Connection, ago: str = "1 hour", **columns: Any) -> None:
    """Insert a job that has been due for this long, untouched."""
    [job] = insert(connection, **columns)
    connection.execute(
        "update rota.job set run_at = rota.clock() - %s::interval where id = %s", [ago, job]
    )
    connection.execute("update rota.job set updated_at = run_at where id = %s", [job])


def serve(
    connection: Connection, *, types: tuple[str, ...] = ("t",), queue: str = "default"
) -> None:
    Hand(connection, types=types).send_heartbeat(queues=f'{{"{queue}": 1}}')


@rule("M86")
@pytest.mark.parametrize(
    ("name", "columns", "values"),
    [
        ("x", "kind", "'unheard of'"),
        ("x", "kind", "'failure_rate'"),
        ("x", "kind, factor", "'unclaimed', 5"),
        ("x", "kind, job_type", "'schedule_overdue', 't'"),
        ("x", "kind, at_least", "'refused', 2"),
        # Python has no such time: it would keep every rule from being evaluated.
        ("x", "kind, repeat_after", "'dead', '178000000 years'"),
        ("x", "kind, critical_from", "'unclaimed', 5"),
        ("a\nb", "kind", "'dead'"),
    ],
)
def test_a_rule_that_would_not_do_what_it_says_is_refused(
    shared: Connection, name: str, columns: str, values: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="alert_rule_"):
        shared.execute(
            f"insert into rota.alert_rule (name, period, {columns}) "
            f"values (%s, '1 hour', {values})".encode(),
            [name],
        )


@rule("M86")
def test_the_dead_of_an_hour_are_found_from_as_many_as_the_rule_says(shared: Connection) -> None:
    dead(shared, 5, ago="61 minutes")
    assert found(shared, "dead jobs") == {}
    dead(shared, 1)
    assert found(shared, "dead jobs") == {"": 1}

    shared.execute(
        "update rota.alert_rule set at_least = 7, period = '2 hours' where name = 'dead jobs'"
    )
    assert found(shared, "dead jobs") == {}
    dead(shared, 1)
    assert found(shared, "dead jobs") == {"": 7}


@rule("M86")
def test_the_first_dead_job_is_a_warning_and_ten_are_critical_in_one_alert(
    shared: Connection,
) -> None:
    said = []
    for more in (1, 8, 1, 5):
        dead(shared, more)
        said += [(told.state, told.severity, told.message) for told in messages(shared)]
    assert said == [
        ("fires", "warning", "1 job died within 01:00:00 and waits for a person: t (1)"),
        ("repeats", "critical", "10 jobs died within 01:00:00 and wait for a person: t (10)"),
    ]
    shared.execute("delete from rota.job")
    assert [(told.state, told.severity) for _ in range(3) for told in messages(shared)] == [
        ("over", "critical")
    ]
    dead(shared, 12)
    assert [(told.state, told.severity) for told in messages(shared)] == [("fires", "critical")]


@rule("M86")
def test_a_rule_of_one_type_looks_at_no_other(shared: Connection) -> None:
    shared.execute(
        "insert into rota.alert_rule (name, kind, at_least, period, job_type) values ('mail', "
        "'dead', 2, '1 hour', 'mail')"
    )
    dead(shared, 5)
    dead(shared, 1, job_type="mail")
    assert found(shared, "mail") == {}
    dead(shared, 1, job_type="mail")
    assert found(shared, "mail") == {"": 2}


@rule("M86")
def test_the_same_error_counts_jobs_and_not_attempts(shared: Connection) -> None:
    attempts(shared, 60, jobs=19)
    attempts(shared, 10, error="ValueError")
    attempts(shared, 30, ago="2 hours", error="KeyError")
    assert found(shared, "same error") == {}
    attempts(shared, 60, jobs=20)
    assert found(shared, "same error") == {"OSError": 20}


@rule("M86")
def test_failures_are_compared_with_what_is_usual_here(shared: Connection) -> None:
    attempts(shared, 29)
    assert found(shared, "failure rate") == {}
    attempts(shared, 1)
    assert found(shared, "failure rate") == {"": 6}

    # One a minute on average, over the day before the last five minutes.
    attempts(shared, 24 * 60, ago="1 day 4 minutes")
    assert found(shared, "failure rate") == {"": 6}
    attempts(shared, 24 * 60, ago="1 day 4 minutes")  # two: six is no longer five times as many
    assert found(shared, "failure rate") == {}


@rule("M86")
@pytest.mark.parametrize("hours", [24, 2])
def test_jobs_that_die_are_compared_with_what_is_usual_here(shared: Connection, hours: int) -> None:
    """Four in 15 minutes are usual, over a day or since the first hour of the statistics."""
    shared.execute(
        "insert into rota.stat_hour (hour, job_type, queue, dead)"
        " select rota.clock() - interval '76 minutes' - n * interval '1 hour', 't', 'default', 16"
        " from generate_series(0, %s) n",
        [hours - 1],
    )
    dead(shared, 19)
    assert found(shared, "dead jobs grow") == {}
    dead(shared, 1)
    assert find(shared, "dead jobs grow") == {
        "": (20, "20 jobs died within 00:15:00, usually 4.0, and wait for a person: t (20)")
    }
    shared.execute("update rota.alert_rule set factor = 5.1 where name = 'dead jobs grow'")
    assert found(shared, "dead jobs grow") == {}


@rule("M86")
def test_the_failure_rate_says_which_releases_failed_and_how_long_ago_each_started(
    shared: Connection,
) -> None:
    set_clock(shared, "2026-01-14 09:00")
    shared.execute(
        "insert into rota.release (name, started_at) "
        "values ('2.4.1', rota.clock() - interval '6 minutes 7.5 seconds')"
    )
    attempts(shared, 30)
    attempts(shared, 41, release="2.4.1")
    attempts(shared, 2, release="2.4.0")
    Hand(shared, "crashes", release="2.4.2").send_heartbeat()
    attempts(shared, 1, worker="crashes", error="LeaseExpired")
    [match] = Hand(shared).run(ops.find_alert_matches("failure rate"))
    assert match.message == (
        "14.8 failures a minute over 00:05:00, usually 0.00: t (74); by release 2.4.1, "
        "started 00:06:07 ago (41), 2.4.0 (2), 2.4.2 (1)"
    )


@rule("M86")
def test_a_due_job_that_workers_could_run_and_do_not_claim_is_found(shared: Connection) -> None:
    serve(shared)
    shared.execute("update rota.worker set started_at = rota.clock() - interval '61 seconds'")
    due(shared, ago="9 minutes")
    assert found(shared, "unclaimed jobs") == {}
    due(shared)
    assert found(shared, "unclaimed jobs")["default"] == pytest.approx(3600, abs=60)
    assert found(shared, "unknown type") == found(shared, "no worker") == {}


@rule("M86", "M80")
def test_what_the_first_worker_after_a_while_finds_is_no_alert_until_it_had_a_minute_to_take_it(
    shared: Connection,
) -> None:
    set_clock(shared, "2026-01-14 09:00")
    due(shared)
    due(shared, job_type="nobody_s")
    serve(shared)  # as a drain does before its round
    shared.execute("update rota.worker set started_at = rota.clock() - interval '59 seconds'")
    assert found(shared, "unclaimed jobs") == found(shared, "no worker") == {}
    assert list(found(shared, "unknown type")) == ["nobody_s"]

    shared.execute(
        "update rota.worker set started_at = rota.clock() - interval '61 seconds', stopped_at = "
        "rota.clock()"
    )
    serve(shared)  # the next drain: the last one left it
    assert list(found(shared, "unclaimed jobs")) == ["default"]


def drained(connection: Connection, ago: str) -> None:
    """Insert a drain that ran for a second."""
    serve(connection)
    connection.execute(
        "update rota.worker set started_at = rota.clock() - %s::interval, stopped_at = "
        "rota.clock() - %s::interval + '1 s'",
        [ago, ago],
    )


@rule("M86", "M80")
def test_what_a_worker_gave_back_after_a_long_run_is_no_alert_until_another_had_time_to_take_it(
    shared: Connection,
) -> None:
    due(shared)
    hand = Hand(shared)
    [job] = hand.claim().jobs
    serve(shared)
    shared.execute("update rota.worker set started_at = rota.clock() - interval '1 hour'")
    hand.settle((job, HAND_BACK))
    assert found(shared, "unclaimed jobs") == {}  # a drain asks before its jobs
    shared.execute("update rota.worker set stopped_at = rota.clock()")
    shared.execute("update rota.job set updated_at = rota.clock() - interval '50 seconds'")
    assert found(shared, "unclaimed jobs") == {}
    shared.execute("update rota.job set updated_at = rota.clock() - interval '5 minutes'")
    drained(shared, ago="4 minutes")
    assert list(found(shared, "unclaimed jobs")) == ["default"]


@rule("M86", "M80", "M87")
@pytest.mark.parametrize(
    ("pause", "resume"),
    [
        ("select rota.queue_pause('default')", "select rota.queue_resume('default')"),
        (
            "select rota.pause_all(rota.clock() + interval '1 hour')",
            "update rota.installation set paused_until = rota.clock()",
        ),
    ],
)
def test_what_a_pause_held_up_is_no_alert_until_a_worker_had_time_to_take_it(
    shared: Connection, pause: str, resume: str
) -> None:
    due(shared)
    shared.execute(pause.encode())
    shared.execute(resume.encode())
    drained(shared, ago="4 minutes")
    assert found(shared, "unclaimed jobs") == {}
    shared.execute("update rota.action set at = at - interval '5 minutes'")
    shared.execute("update rota.queue set paused_until = paused_until - interval '5 minutes'")
    shared.execute(
        "update rota.installation set paused_until = paused_until - interval '5 minutes'"
    )
    assert list(found(shared, "unclaimed jobs")) == ["default"]


@rule("M86")
def test_a_queue_that_goes_on_does_not_hide_another(shared: Connection) -> None:
    due(shared)
    drained(shared, ago="4 minutes")
    shared.execute("select rota.queue_pause('other', p_force => true), rota.queue_resume('other')")
    assert list(found(shared, "unclaimed jobs")) == ["default"]


@rule("M86")
def test_a_due_job_of_a_type_that_no_worker_knows_is_found_under_its_type(
    shared: Connection,
) -> None:
    serve(shared)
    due(shared, ago="55 seconds", job_type="nobody_s")  # a rolling deploy
    assert found(shared, "unknown type") == {}
    due(shared, ago="61 seconds", job_type="nobody_s")
    assert found(shared, "unknown type") == {"nobody_s": 1}
    assert found(shared, "unclaimed jobs") == found(shared, "no worker") == {}


@rule("M86")
def test_a_queue_with_due_jobs_and_no_worker_seen_of_late_is_found(shared: Connection) -> None:
    serve(shared, queue="other")
    due(shared)
    assert list(found(shared, "no worker")) == ["default"]
    assert found(shared, "unclaimed jobs") == found(shared, "unknown type") == {}

    serve(shared)
    shared.execute(
        "update rota.worker set queues = '{\"default\": 1}', stopped_at = rota.clock() - interval "
        "'9 minutes'"
    )
    assert found(shared, "no worker") == {}  # a drain that ended a moment ago is a worker
    shared.execute("update rota.worker set stopped_at = rota.clock() - interval '11 minutes'")
    assert list(found(shared, "no worker")) == ["default"]


@rule("M33", "M86")
def test_a_queue_whose_jobs_no_worker_takes_from_a_dead_one_is_found(shared: Connection) -> None:
    serve(shared)
    due(shared)
    Hand(shared).claim()
    assert found(shared, "no worker") == {}
    expire = "update rota.job set locked_until = rota.clock() - %s::interval"
    shared.execute(expire, ["9 minutes"])
    assert found(shared, "no worker") == {}
    shared.execute(expire, ["11 minutes"])
    assert list(found(shared, "no worker")) == ["default"]
    [match] = Hand(shared).run(ops.find_alert_matches("no worker"))
    assert match.message.startswith("for 00:10:00 no worker has taken jobs of queue default whose")
    assert found(shared, "unclaimed jobs") == found(shared, "unknown type") == {}


@rule("M86", "M87")
def test_a_paused_queue_raises_no_alert(shared: Connection) -> None:
    due(shared)
    assert list(found(shared, "no worker")) == ["default"]
    shared.execute("insert into rota.queue (name, paused_at) values ('default', rota.clock())")
    assert found(shared, "no worker") == {}
    # The pause ended by itself.
    shared.execute("update rota.queue set paused_until = rota.clock()")
    assert list(found(shared, "no worker")) == ["default"]
    shared.execute("select rota.pause_all()")
    assert found(shared, "no worker") == {}


@rule("M86", "M87")
def test_a_pause_that_holds_due_jobs_for_four_hours_is_found_with_who_and_why(
    shared: Connection,
) -> None:
    due(shared)
    shared.execute("select rota.queue_pause('default', null, 'the provider moves', 'eva')")
    shared.execute("select rota.queue_pause('idle', null, null, 'eva', true)")
    shared.execute("update rota.queue set paused_at = rota.clock() - interval '3 h 59 min'")
    assert found(shared, "paused jobs") == {}
    shared.execute("update rota.queue set paused_at = rota.clock() - interval '5 h'")
    [match] = Hand(shared).run(ops.find_alert_matches("paused jobs"))
    assert (match.subject, int(match.value), match.severity) == ("default", 5 * 3600, "warning")
    assert " by eva: the provider moves, and jobs are due: 1" in match.message
    shared.execute("update rota.queue set paused_at = null")
    shared.execute("select rota.pause_all(null, null, 'eva')")
    shared.execute("update rota.installation set paused_at = rota.clock() - interval '5 h'")
    assert list(found(shared, "paused jobs")) == [""]
    shared.execute("update rota.alert_rule set queue = 'idle' where name = 'paused jobs'")
    assert found(shared, "paused jobs") == {}, "the due job is in another queue"


@rule("M86", "M12")
def test_jobs_whose_payload_no_release_at_work_reads_are_found_with_their_deadline(
    shared: Connection,
) -> None:
    for _ in range(3):
        insert(shared)
    hand = Hand(shared, release="2")
    hand.send_heartbeat()
    Hand(shared, "old", release="1").send_heartbeat()
    jobs = hand.claim(3).jobs
    hand.settle(*[(job, PAYLOAD_MISMATCH) for job in jobs], ran_s=None)
    assert found(shared, "unread payloads") == {}
    shared.execute(
        "update rota.job set run_at = rota.clock() - interval '30 min', "
        "waits_since = rota.clock() - interval '30 min'"
    )
    shared.execute("update rota.job set updated_at = run_at")
    shared.execute("update rota.worker set started_at = rota.clock() - interval '1 hour'")
    [match] = Hand(shared).run(ops.find_alert_matches("unread payloads"))
    assert (match.subject, match.value, match.severity) == ("t", 3, "critical")
    assert "release 2 cannot (does not fit); at " in match.message
    assert " they try again, and the next job is dead if no other is alive" in match.message
    assert found(shared, "unclaimed jobs") == {}, "workers are not the cause"
    assert len(Hand(shared, "old", release="1").claim(1).jobs) == 1
    assert found(shared, "unread payloads") == {"t": 2}


@rule("M86")
def test_what_the_database_refuses_a_live_worker_for_minutes_is_found(shared: Connection) -> None:
    hand = Hand(shared)
    hand.send_heartbeat(refused="batch folder: the database refuses: no key")
    assert found(shared, "refused maintenance") == {}
    shared.execute(
        "update rota.worker set refused_since = rota.clock() - interval '6 min', "
        "heartbeat_at = rota.clock() - interval '2 min'"
    )
    assert found(shared, "refused maintenance") == {}, "it is gone"
    hand.send_heartbeat(refused="batch folder: the database refuses: no key")
    [match] = hand.run(ops.find_alert_matches("refused maintenance"))
    assert match.message.endswith("worker hand must do: batch folder: the database refuses: no key")
    hand.send_heartbeat()
    assert found(shared, "refused maintenance") == {}


SCHEDULE = """
insert into rota.schedule (name, job_type, cron, next_run_at, paused_at, paused_by, paused_why,
  refused, disabled_at)
select name, 't', cron, rota.clock() - late, paused_at, paused_by, why,
  coalesce(why = 'cannot be read', false), disabled_at
from (values
  ('late', '0 2 * * *', interval '11 minutes', null::timestamptz, null, null, null::timestamptz),
  ('nearly', '0 2 * * *', '9 minutes', null, null, null, null),
  ('to come', '0 2 * * *', '-1 day', null, null, null, null),
  ('manual', null, null, null, null, null, null),
  ('paused', '0 2 * * *', '1 hour', rota.clock() - interval '1 hour', 'eva', 'holiday', null),
  ('paused by a role', '0 2 * * *', '1 hour', rota.clock() - interval '1 hour', 'rota', null, null),
  ('stopped', 'no cron', '1 hour', rota.clock() - interval '1 hour', 'rota', 'cannot be read',
    null),
  ('former', '0 2 * * *', '1 hour', null, null, null, rota.clock())) s(name, cron, late, paused_at,
    paused_by, why, disabled_at);
"""


@rule("M86", "M82")
def test_a_schedule_that_should_have_run_is_found_but_none_that_a_person_paused(
    shared: Connection,
) -> None:
    shared.execute(SCHEDULE)
    assert found(shared, "schedule overdue") == {
        "late": pytest.approx(660, abs=30),
        "stopped": pytest.approx(3600, abs=30),
    }


@rule("M86", "M82")
def test_a_schedule_that_the_first_worker_after_a_while_is_about_to_fire_is_no_alert(
    shared: Connection,
) -> None:
    shared.execute(SCHEDULE)
    serve(shared)  # its scheduler and its alerts begin at the same time
    assert list(found(shared, "schedule overdue")) == ["stopped"]
    shared.execute("update rota.worker set started_at = rota.clock() - interval '61 seconds'")
    assert set(found(shared, "schedule overdue")) == {"late", "stopped"}


@rule("M86", "M82")
@pytest.mark.parametrize("ends_by_itself", [False, True])
def test_a_schedule_that_a_pause_of_everything_held_up_is_no_alert_before_its_time_has_passed_again(
    shared: Connection, ends_by_itself: bool
) -> None:
    shared.execute(SCHEDULE)
    shared.execute("select rota.pause_all(rota.clock() + interval '1 hour')")
    shared.execute(
        "update rota.installation set paused_until = rota.clock()"
        if ends_by_itself
        else "select rota.resume_all()"  # which a scheduler sees 5 s later
    )
    assert list(found(shared, "schedule overdue")) == ["stopped"]
    shared.execute("update rota.action set at = at - interval '11 minutes'")
    shared.execute(
        "update rota.installation set paused_until = paused_until - interval '11 minutes'"
    )
    assert set(found(shared, "schedule overdue")) == {"late", "stopped"}


def messages(
    connection: Connection, name: str = "dead jobs", *, repeat_after_s: float | None = 3600
) -> list[ops.AlertMessage]:
    """Evaluate a rule once, as upkeep does; return its notifications."""
    hand = Hand(connection)
    [look] = hand.run(ops.look_for_alerts([name]))
    decided = decide(look.found, look.standing, repeat_after_s)
    return [told for told, _ in hand.run(ops.write_alerts(name, decided, 0))]


def step(connection: Connection, name: str = "dead jobs") -> list[str]:
    return [told.state for told in messages(connection, name)]


@rule("M86")
def test_two_workers_that_decide_at_the_same_time_report_it_once(
    connection: Connection, second: Connection
) -> None:
    decided = [Decision(AlertStep.FIRES, "", 0, AlertMatch("", 10, "ten", "critical"))]
    connection.execute("begin")
    assert len(Hand(connection).run(ops.write_alerts("dead jobs", decided, 0))) == 1
    second.execute("set lock_timeout = '100ms'")
    with pytest.raises(RowLocked):
        Hand(second).run(ops.write_alerts("dead jobs", decided, 0))
    connection.execute("commit")
    assert Hand(second).run(ops.write_alerts("dead jobs", decided, 0)) == []


@rule("M86")
def test_a_rule_is_evaluated_by_one_worker_a_minute(
    connection: Connection, second: Connection
) -> None:
    connection.execute("begin")
    taken = Hand(connection).run(ops.take_alert_rules())
    assert taken != []
    second.execute("set lock_timeout = '100ms'")
    assert Hand(second).run(ops.take_alert_rules()) == []  # without waiting
    connection.execute("commit")
    assert Hand(second).run(ops.take_alert_rules()) == []
    for due in ("-1 second", "25 hours"):  # the latter if the server's clock was set back
        connection.execute("update rota.alert_rule set due_at = rota.clock() + %s::interval", [due])
        assert len(Hand(second).run(ops.take_alert_rules())) == len(taken)


@rule("M86")
def test_a_rule_that_takes_long_rests_long(shared: Connection) -> None:
    hand = Hand(shared)
    hand.run(ops.take_alert_rules())
    hand.run(ops.write_alerts("dead jobs", [], 500))
    shared.execute("update rota.alert_rule set due_at = due_at - interval '60 seconds'")
    assert "dead jobs" not in hand.run(ops.take_alert_rules())


@rule("M86")
def test_what_a_disabled_rule_had_found_is_over_and_is_not_posted(shared: Connection) -> None:
    dead(shared, 10)
    step(shared)
    shared.execute("update rota.alert_rule set enabled = false where name = 'dead jobs'")
    hand = Hand(shared)
    assert "dead jobs" not in hand.run(ops.take_alert_rules())
    assert hand.run(ops.take_unposted(10)) == []
    assert shared.execute("select state from rota.alert").fetchall() == [("over",)]


@rule("M86")
def test_a_notification_is_posted_by_one_worker_and_again_only_if_that_failed(
    connection: Connection, second: Connection
) -> None:
    dead(connection, 10)
    step(connection)
    [told] = Hand(connection).run(ops.take_unposted(10))
    assert (told.rule, told.state, told.value) == ("dead jobs", "fires", 10)
    assert Hand(second).run(ops.take_unposted(10)) == []
    # No worker recorded a post: it is tried again.
    connection.execute("update rota.alert set post_at = rota.clock()")
    assert Hand(second).run(ops.take_unposted(10)) == [told]
    Hand(second).run(ops.mark_posted(told))
    connection.execute("update rota.alert set post_at = rota.clock()")
    assert Hand(connection).run(ops.take_unposted(10)) == []


@rule("M86")
def test_alerts_that_cannot_be_posted_do_not_block_those_not_tried_yet(shared: Connection) -> None:
    dead(shared, 10)
    step(shared)
    attempts(shared, 20)
    step(shared, "same error")
    [first] = Hand(shared).run(ops.take_unposted(1))
    # It was refused, and its time has come again.
    shared.execute("update rota.alert set post_at = rota.clock() where post_at is not null")
    [second] = Hand(shared).run(ops.take_unposted(1))
    assert (first.rule, second.rule) == ("dead jobs", "same error")


@rule("M86")
def test_a_rule_may_enqueue_a_job_once_for_each_message_of_the_alert(shared: Connection) -> None:
    shared.execute("update rota.alert_rule set notify_job = 'page' where name = 'dead jobs'")
    dead(shared, 10)
    step(shared)
    step(shared)
    shared.execute("delete from rota.job where job_type = 't'")
    step(shared)
    step(shared)
    payloads = [
        payload
        for (payload,) in shared.execute(
            "select payload from rota.job where job_type = 'page' order by id"
        )
    ]
    assert [(alert["rule"], alert["state"], alert["severity"]) for alert in payloads] == [
        ("dead jobs", "fires", "critical"),
        ("dead jobs", "over", "critical"),
    ]
    assert payloads[0]["message"] == "10 jobs died within 01:00:00 and wait for a person: t (10)"


@rule("M86")
def test_an_alert_notifies_also_when_its_job_is_refused(shared: Connection) -> None:
    shared.execute("update rota.alert_rule set notify_job = 'page' where name = 'dead jobs'")
    shared.execute("alter table rota.job add constraint no_pages check (job_type <> 'page')")
    dead(shared, 10)
    hand = Hand(shared)
    decided = decide(hand.run(ops.find_alert_matches("dead jobs")), [], None)
    [(told, problem)] = hand.run(ops.write_alerts("dead jobs", decided, 0))
    assert told.state == "fires"
    assert problem is not None and "no_pages" in problem


@rule("M13")
def test_alerts_that_have_long_been_over_are_forgotten(shared: Connection) -> None:
    shared.execute(
        "insert into rota.alert (rule, subject, state, severity, since, last_notified_at, "
        "notifications, value, message, over_at)"
        " select 'same error', n::text, 'over', 'warning', rota.clock(), rota.clock(), 2, 1, '', "
        "rota.clock() - n * interval '1 day'"
        " from generate_series(29, 31, 2) n"
    )
    assert Hand(shared).run(ops.forget_rows("alerts", 1000)) == 1
    assert Hand(shared).run(ops.forget_rows("alerts", 1000)) == 0


BLOCKS_MOST = 300
"""Most blocks that a rule may read beside 20,000 dead, due and failed jobs each.

It reads 30 to 180, because rows lie in the order in which they came; without a bound some thousand.
"""


@rule("M86")
def test_a_rule_reads_a_bounded_part_of_large_tables_by_their_indexes(
    connection: Connection,
) -> None:
    connection.execute("set session_replication_role = replica")
    dead(connection, 20_000)
    connection.execute(
        "insert into rota.job (job_type, queue, priority, run_at)"
        " select 't', 'default', 0, rota.clock() - interval '1 hour' from generate_series(1, "
        "20000)"
    )
    attempts(connection, 20_000)
    connection.execute("analyze rota.job, rota.attempt")

    for name in [
        name for (name,) in connection.execute("select name from rota.alert_rule").fetchall()
    ]:
        found(connection, name)
        with connection.transaction():
            before = _touched(connection)
            found(connection, name)
            after = _touched(connection)
        assert after[1] == before[1], f"{name}: a table was read as a whole"
        assert after[0] - before[0] < BLOCKS_MOST, f"{name}: {after[0] - before[0]} blocks"


def _touched(connection: Connection) -> tuple[int, int]:
    """Blocks of the large tables and of their indexes that this transaction has touched, and how
    often it read one of them as a whole.
    """
    row = connection.execute(
        "select sum(pg_stat_get_xact_blocks_fetched(c.oid))::bigint, "
        "sum(pg_stat_get_xact_numscans(c.oid)) filter (where c.relkind = 'r')::bigint"
        " from pg_class c left join pg_index i on i.indexrelid = c.oid join pg_class t on t.oid = "
        "coalesce(i.indrelid, c.oid)"
        " where t.relnamespace = 'rota'::regnamespace and t.relkind = 'r' and (t.relname = 'job' "
        "or t.relname like 'attempt%')"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def find(connection: Connection, name: str) -> dict[str, tuple[float, str]]:
    matches = Hand(connection).run(ops.find_alert_matches(name))
    return {match.subject: (match.value, match.message) for match in matches}


def hand_back(
    connection: Connection, count: int, until: str, waits_for: str = "limit smtp", priority: int = 0
) -> None:
    connection.execute(
        "insert into rota.job (job_type, queue, priority, run_at, waits_for, waits_since) "
        "select 't', 'default', %s, rota.clock() + %s::interval, %s, rota.clock()"
        " from generate_series(1, %s)",
        [priority, until, waits_for, count],
    )


@rule("M63", "M86")
def test_a_breaker_that_stays_open_is_an_alert(connection: Connection) -> None:
    for key, state, ago in (
        ("opened", "open", "16 minutes"),
        ("tried", "trial", "16 minutes"),
        ("opened just now", "open", "14 minutes"),
        ("closed", "closed", "16 minutes"),
    ):
        connection.execute(
            "insert into rota.breaker (name, key, state, opened_at, reason) "
            "values ('charge', %s, %s, rota.clock() - %s::interval, 'timeout')",
            [key, state, ago],
        )
    found = find(connection, "breaker open")
    assert set(found) == {"charge opened", "charge tried"}
    value, message = found["charge opened"]
    assert 16 * 60 <= value < 17 * 60
    assert message.startswith("breaker charge opened has been open since ")
    assert message.endswith(": timeout")


@rule("M60", "M86")
def test_a_lane_that_a_dead_job_halts_is_an_alert_until_a_person_resolves_it(
    connection: Connection,
) -> None:
    [[job]] = connection.execute(
        "insert into rota.job (job_type, queue, priority, status, group_key, in_lane, waits_for, "
        "failed_at, error_type) values ('t', 'default', 0, 'dead', 'invoice:42', true, 'person', "
        "rota.clock() - interval '2 minutes', 'OSError') returning id"
    )
    connection.execute(
        "insert into rota.job (job_type, queue, priority, status, group_key, failed_at) "
        "values ('t', 'default', 0, 'dead', 'invoice:43', rota.clock() - interval '1 hour')"
    )
    found = find(connection, "group halted")
    assert list(found) == ["invoice:42"]
    assert f"by job {job}, which is dead (OSError)" in found["invoice:42"][1]
    connection.execute("delete from rota.job where id = %s", [job])
    assert not find(connection, "group halted")


@rule("M62", "M86")
def test_a_limit_whose_backlog_reaches_far_ahead_is_an_alert(connection: Connection) -> None:
    hand_back(connection, 3, "30 minutes")
    hand_back(connection, 5, "2 hours", waits_for="limit sms anna")
    hand_back(connection, 1, "10 seconds", waits_for="limit sms anna", priority=50)
    hand_back(connection, 9, "2 hours", waits_for="breaker charge")
    hand_back(connection, 1, "1 day", waits_for="limit sms bert")
    found = find(connection, "limit backlog")
    assert list(found) == ["sms bert", "sms anna"]
    assert found["sms bert"][1].startswith("1 job waits for rate limit sms bert, until ")
    assert 7100 < found["sms anna"][0] <= 7200
    assert found["sms anna"][1].startswith("6 jobs wait for rate limit sms anna, the last of them")
    connection.execute("update rota.alert_rule set at_least = 7 where kind = 'limit_backlog'")
    assert not find(connection, "limit backlog")


@rule("M62", "M86")
def test_a_rule_about_limits_reads_each_key_once(connection: Connection) -> None:
    hand_back(connection, 11_000, "2 hours")
    hand_back(connection, 10, "2 hours", waits_for="limit sms")
    connection.execute("analyze rota.job")
    waited_for = "select * from rota.waited_for('limit', 1000)"
    connection.execute(waited_for)  # the first call also reads the catalogue
    assert count_blocks(connection, waited_for) < 40
    found = find(connection, "limit backlog")
    assert found["smtp"][1].startswith("more than 1000 jobs wait for rate limit smtp")
