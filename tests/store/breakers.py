"""What workers do at breakers, step by step."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from rota.model.breaker import BreakerRules, EndpointHealth, format_waits_for
from rota.model.job import Job
from rota.store import ops
from tests.store.work import Hand, insert

Connection = psycopg.Connection[TupleRow]
RULES = BreakerRules("mail", failures=3, within_s=60, open_for_s=30, max_open_s=100)


def fail(hand: Hand, count: int = 1, key: str = "", ago_s: float = 0.0) -> ops.Recorded:
    """Record failures of attempts that began so long ago."""
    [recorded] = hand.run(
        ops.record_at_breakers([ops.EndpointResult(RULES, key, [ago_s] * count, "no answer")])
    )
    return recorded


def end_trial(hand: Hand, job: Job, health: EndpointHealth, key: str = "") -> ops.Recorded:
    """Record the end of a trial."""
    result = ops.EndpointResult(RULES, key, [], "no answer", health, job.id, job.claims)
    [recorded] = hand.run(ops.record_at_breakers([result]))
    return recorded


def try_one(hand: Hand, job: Job, key: str = "", deadline_s: float = 60.0) -> ops.Blocked | bool:
    """Ask whether a job may begin."""
    asked = ops.Try("mail", key, job.id, job.claims, deadline_s)
    return hand.run(ops.try_breakers([asked]))[job.id]


def look(hand: Hand, key: str = "") -> str:
    """Return the state that a worker sees."""
    blocked = hand.run(ops.look_at_breakers([("mail", key)])).get(("mail", key))
    return "closed" if blocked is None else blocked.state


def let_window_pass(connection: Connection) -> None:
    """Let the time of all open breakers be over."""
    connection.execute("update rota.breaker set open_until = rota.clock() where state = 'open'")


def hand_back(hand: Hand, *jobs: Job, key: str = "", delay_s: float = 1_000.0) -> None:
    """Put claimed jobs back, as a worker does."""
    outcomes = [
        {
            "id": job.id, "claims": job.claims, "status": "queued", "charged": False,
            "delay_s": delay_s, "waits_for": format_waits_for("mail", key),
        }
        for job in jobs
    ]  # fmt: skip
    hand.connection.execute("select rota.job_leave(%s::jsonb, '1'::text)", [Jsonb(outcomes)])


def claim(hand: Hand, count: int = 1) -> list[Job]:
    """Claim so many new jobs."""
    insert(hand.connection, count)
    return hand.claim(count).jobs
