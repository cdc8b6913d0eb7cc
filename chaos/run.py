"""One run: everything is started, harmed, given time to settle, judged and removed."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from chaos import witness
from chaos.app import app
from chaos.figures import figures
from chaos.hooks import Endpoints, put_endpoints, receive_events
from chaos.judge import Broken, judge, timeline
from chaos.mails import SERVER
from chaos.person import CAPS, Person, requeue_halting, set_cap
from chaos.producer import Producer
from chaos.sink import Sink, receive
from chaos.villain import Villain
from chaos.workers import Workers
from rota.store.migrate import migrate
from tests.support.server import own_server

LOOK_EVERY_S = 0.02
COUNT_EVERY_S = 0.5
REST_S = 60
"""While this long nothing ends, nothing will: two leases, a reaper's period, retries each second, a
breaker's pause."""
LIVE = """
select (select count(*) from rota.job where status <> 'dead' or waits_for = 'person')
  + (select count(*) from rota.batch_delta)
"""


@dataclass(slots=True)
class Verdict:
    """The result of a run."""

    figures: list[tuple[str, str]] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    timelines: dict[int, list[str]] = field(default_factory=dict)


def run(place: Path, seconds: float, seed: int) -> Verdict:
    """Run it in a directory that a guard removes, however this ends."""
    with receive(seed) as sink, receive_events(seed) as endpoints:
        return _run(place, seconds, seed, sink, endpoints)


def _run(place: Path, seconds: float, seed: int, sink: Sink, endpoints: Endpoints) -> Verdict:
    began = time.monotonic()
    server = own_server(place, place / "postgresql.log")
    url = server.url()
    prepare(url, seed, sink, endpoints)
    workers = Workers(url, place)
    try:
        villain, producer = Villain(seed, workers, server, url), Producer(seed, url, app)
        person = Person(seed, url)
        _live_through(seconds, workers, villain, person, producer)
        rested_s = come_to_rest(workers, url)
        workers.stop()
    finally:
        workers.end()
        app.close()
    verdict = judge_all(url, workers, producer, sink, endpoints)
    verdict.figures += [
        (f"did: {name}", str(count)) for name, count in sorted(villain.acts.items())
    ]
    verdict.figures += [
        (f"a person: {name}", str(count)) for name, count in sorted(person.acts.items())
    ]
    verdict.figures += [
        (f"producer: {what}", str(count)) for what, count in sorted(producer.unsure.items())
    ]
    verdict.figures += [
        ("producer: rolled back", str(producer.rolled_back)),
        ("to rest after the last act", f"{rested_s:.1f} s"),
    ]
    verdict.figures += [("all in all", f"{time.monotonic() - began:.0f} s")]
    return verdict


def prepare(url: str, seed: int, sink: Sink, endpoints: Endpoints) -> None:
    """Make everything that the processes find in the database and in their environment."""
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((Path(__file__).parent / "tables.sql").read_bytes())
    os.environ["ROTA_DATABASE_URL"] = url
    os.environ["CHAOS_SEED"] = str(seed)
    os.environ[SERVER] = sink.url
    app.migrate()
    app.sync()
    put_endpoints(endpoints)
    with psycopg.connect(url, autocommit=True) as connection:
        set_cap(connection, max(CAPS))


def _live_through(
    seconds: float, workers: Workers, villain: Villain, person: Person, producer: Producer
) -> None:
    until = time.monotonic() + seconds
    producer.start()
    try:
        while time.monotonic() < until:
            workers.tend()
            villain.turn()
            person.turn()
            time.sleep(LOOK_EVERY_S)
    finally:
        villain.leave()
    producer.stop()


def come_to_rest(workers: Workers, url: str, patience_s: float = math.inf) -> float:
    """Wait until only dead jobs are live, none of them halts its lane, and all batches are counted,
    or the time is up, or there have not been fewer for a while; return how long it took."""
    began = fewer_at = time.monotonic()
    fewest = math.inf
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < min(began + patience_s, fewer_at + REST_S):
            requeue_halting(connection)
            [(live,)] = connection.execute(LIVE).fetchall()
            if live == 0:
                break
            if live < fewest:
                fewest, fewer_at = live, time.monotonic()
            until = time.monotonic() + COUNT_EVERY_S
            while time.monotonic() < until:
                workers.tend()
                time.sleep(LOOK_EVERY_S)
    return time.monotonic() - began


def judge_all(
    url: str,
    workers: Workers,
    producer: Producer,
    sink: Sink,
    endpoints: Endpoints,
    read: Counter[str] | None = None,
) -> Verdict:
    """Write down what everybody knows, and judge it; `read`: how much of each file of a handler was
    written down before, which this changes."""
    verdict = Verdict()
    with psycopg.connect(url, autocommit=True) as connection:
        witness.load(workers.witness, connection, read)
        workers.save(connection)
        producer.save(connection)
        sink.save(connection)
        endpoints.save(connection)
        connection.execute("analyze")
        verdict.broken = judge(connection)
        verdict.figures = [(name, f"{count:,}") for name, count in figures(connection)]
        for broken in verdict.broken:
            for row in broken.rows[:1]:
                for job in {row["job"], row.get("passed")} - {None}:
                    verdict.timelines[job] = timeline(connection, job)
    return verdict
