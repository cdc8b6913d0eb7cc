"""The alerts about what holds jobs back: a breaker, a halted lane, a rate limit."""

from __future__ import annotations

from rota.store import ops
from tests.store.cost import count_blocks
from tests.store.work import Connection, Hand
from tests.support.rules import rule


def find(connection: Connection, name: str) -> dict[str, tuple[float, str]]:
    matches = Hand(connection).run(ops.find_alert_matches(name))
    return {one.subject: (one.value, one.message) for one in matches}


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
    assert found["smtp"][1].startswith("1000 or more jobs wait for rate limit smtp")
