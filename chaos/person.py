"""What a person does meanwhile: cancels and moves jobs of lanes, requeues those that halt one,
cancels batches and requeues their dead members, and changes a cap and a limit."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import LiteralString

import psycopg

from chaos.app import LIMITED, NARROW

EVERY_S = 0.5
CAPS = (1, 2, 4)
PACES = (2, 3, 5)
CANCELLED_SHARE = 0.3
"""Of the turns to cancel a batch, so that most of them end by themselves."""
CHOOSE: LiteralString = (
    "select id from rota.job where group_key is not null and status in ('queued', 'failed', "
    "'waiting', 'running') and chaos.real(created_at) < now() - %s::interval "
    "order by md5(id::text || %s::text) limit 1"
)
HALTING: LiteralString = (
    "select rota.job_requeue(array(select id from rota.job where waits_for = 'person' "
    "and status = 'dead'), 'chaos'::text, 'chaos'::text)"
)
BATCH: LiteralString = (
    "select id from rota.batches where outcome is null and parent is null "
    "and chaos.real(created_at) < now() - %s::interval order by md5(id::text || %s::text) limit 1"
)
CANCEL_BATCH: LiteralString = """
select rota.job_cancel(array(
    select m from rota.batch_tree(%s) t, rota.batch_members(t, 0::bigint, null::int) m
  ), 'chaos'::text, 'chaos'::text)
"""
REQUEUE_MEMBERS: LiteralString = """
select rota.job_requeue(array(
    select id from rota.job where batch is not null and status = 'dead'
      and chaos.real(created_at) < now() - %s::interval order by md5(id::text || %s::text) limit 5
  ), 'chaos'::text, 'chaos'::text)
"""
ANSWERED = "5 seconds"
"""A producer that lost its answer has asked again by then. A cancelled job frees its key, so that
it would make another one."""


class Person:
    """Does one act each time that one is due. The seed decides which."""

    def __init__(self, seed: int, url: str) -> None:
        self.acts: Counter[str] = Counter()
        self._chance = random.Random(f"person {seed}")
        self._url = url
        self._due_at = time.monotonic() + EVERY_S

    def turn(self) -> None:
        """Do the act that is due, unless the database does not let it."""
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + EVERY_S
        act = self._chance.choice(
            [
                self._cancel,
                self._delay,
                self._prefer,
                self._requeue,
                self._cancel_batch,
                self._requeue_members,
                self._requeue_members,
                self._set_cap,
                self._set_pace,
            ]
        )
        name = act.__name__.strip("_").replace("_", " ")
        try:
            # A frozen worker may have locked the row.
            with psycopg.connect(
                self._url,
                autocommit=True,
                application_name="person",
                options="-c statement_timeout=1s",
            ) as connection:
                act(connection)
        except psycopg.Error:
            name += ", refused"
        self.acts[name] += 1

    def _cancel(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "select rota.job_cancel(%s::bigint[], 'chaos'::text, 'chaos'::text)",
            [self._choose(connection, ANSWERED)],
        )

    def _delay(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "select rota.job_reschedule(%s::bigint[], 'chaos'::text, 'chaos'::text, "
            "p_delay => %s::interval)",
            [self._choose(connection, "0 s"), f"{self._chance.uniform(0, 2)} s"],
        )

    def _prefer(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "select rota.job_reschedule(%s::bigint[], 'chaos'::text, 'chaos'::text, "
            "p_priority => 5::int)",
            [self._choose(connection, "0 s")],
        )

    def _requeue(self, connection: psycopg.Connection) -> None:
        requeue_halting(connection)

    def _cancel_batch(self, connection: psycopg.Connection) -> None:
        if self._chance.random() < CANCELLED_SHARE:
            for (batch,) in connection.execute(BATCH, [ANSWERED, self._draw()]).fetchall():
                connection.execute(CANCEL_BATCH, [batch])

    def _requeue_members(self, connection: psycopg.Connection) -> None:
        connection.execute(REQUEUE_MEMBERS, [ANSWERED, self._draw()])

    def _set_cap(self, connection: psycopg.Connection) -> None:
        set_cap(connection, self._chance.choice(CAPS))

    def _set_pace(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "select rota.limit_set(%s::text, %s::int, p_why => 'chaos'::text)",
            [LIMITED, self._chance.choice(PACES)],
        )

    def _choose(self, connection: psycopg.Connection, age: str) -> list[int]:
        return [row[0] for row in connection.execute(CHOOSE, [age, self._draw()]).fetchall()]

    def _draw(self) -> str:
        return str(self._chance.random())


def set_cap(connection: psycopg.Connection, most: int) -> None:
    """Set the cap of the narrow queue."""
    connection.execute(
        "select rota.queue_set_max_running(%s::text, %s::int, 'chaos'::text, 'chaos'::text, true)",
        [NARROW, most],
    )


def requeue_halting(connection: psycopg.Connection) -> None:
    """Requeue the dead jobs that halt their lanes."""
    connection.execute(HALTING)
