"""One soak: rounds of work under kills, deploys and a moving clock. After each one everything comes
to rest, the judge reads the ledger, and the ledger is emptied."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from bench.server import DurableServer
from chaos.app import app
from chaos.hooks import Endpoints, receive_events
from chaos.judge import judge
from chaos.person import Person
from chaos.producer import Producer
from chaos.run import LIVE, Verdict, come_to_rest, judge_all, prepare
from chaos.sink import Sink, receive
from chaos.soak.clock import Clock
from chaos.soak.harm import Harm
from chaos.soak.pace import DAYS_KEPT, KEYS_DAYS, Pace
from chaos.soak.plans import Plans
from chaos.soak.samples import Sampler
from chaos.soak.watch import Watch
from chaos.workers import Workers

FLEET = (1, 2)
"""The worker that is left alone, and the one that is killed and deployed."""
RATE = 50.0
LOOK_EVERY_S = 0.02
PATIENCE_S = 300
"""A machine that others use may take long to come to rest."""
LEDGER = (
    *("change", "cap", "pace", "breaker", "run", "witness", "sale", "invoice", "ordered"),
    *("process", "silence", "mail", "hook"),
)
# The ledger is no part of what is measured: most of it writes no WAL.
TABLES = """
alter table chaos.change set unlogged;
alter table chaos.run set unlogged;
alter table chaos.witness set unlogged;
create function chaos.keep_keys() returns trigger language plpgsql as $$
begin
  new.key_ttl := tg_argv[0]::interval;
  return new;
end $$;
create trigger keep_keys before insert or update on rota.job_type
  for each row execute function chaos.keep_keys('{keys_days} days');
update rota.job_type set key_ttl = default;
update rota.retention set keep = interval '{days_kept} days';
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a soak is to be."""

    pace: Pace
    seed: int
    rate: float


@dataclass(slots=True)
class Round:
    """What came of one round."""

    began_s: float
    lasted_s: float
    rested_s: float
    verdict: Verdict


@dataclass(slots=True)
class Soak:
    """What is known so far."""

    asked: Asked
    server: dict[str, Any]
    sampler: Sampler
    plans: Plans
    rounds: list[Round] = field(default_factory=list)
    acts: Counter[str] = field(default_factory=Counter)
    days: float = 0.0
    is_over: bool = False
    """Whether it was not ended before its time."""
    is_stuck: bool = False
    """Whether it was ended because jobs did not end."""


def soak(
    place: Path,
    asked: Asked,
    stop: threading.Event,
    say: Callable[[str], None],
    save: Callable[[Soak], None],
) -> Soak:
    """Run it in a directory that a guard removes, until its time is over or `stop` is set; call
    `save` after each round."""
    server = DurableServer(place)
    server.start()
    with receive(asked.seed) as sink, receive_events(asked.seed) as endpoints:
        url = server.url()
        prepare(url, asked.seed, sink, endpoints)
        with psycopg.connect(url, autocommit=True) as connection:
            tables = TABLES.format(keys_days=KEYS_DAYS, days_kept=DAYS_KEPT)
            connection.execute(tables.encode())
        workers = Workers(url, place, FLEET)
        try:
            _wait_until_they_work(workers)
            say("the workers have begun")
            found = Soak(asked, server.facts(), Sampler(url, workers), Plans(url))
            _Course(found, url, workers, sink, endpoints, stop).run(save)
        finally:
            workers.end()
            app.close()
    return found


def _wait_until_they_work(workers: Workers) -> None:
    until = time.monotonic() + PATIENCE_S
    while not all(worker.has_begun for worker in workers.all):
        if time.monotonic() > until:
            raise RuntimeError(f"the workers have not begun after {PATIENCE_S} s")
        time.sleep(LOOK_EVERY_S)


class _Course:
    """How a soak goes."""

    def __init__(
        self,
        found: Soak,
        url: str,
        workers: Workers,
        sink: Sink,
        endpoints: Endpoints,
        stop: threading.Event,
    ) -> None:
        self._found = found
        self._url = url
        self._workers = workers
        self._sink = sink
        self._endpoints = endpoints
        self._stop = stop
        self._harm = Harm(found.asked.seed, workers, found.asked.pace.harm_s)
        self._person = Person(found.asked.seed, url)
        self._clock = Clock(url, found.asked.pace.day_s)
        self._read: Counter[str] = Counter()
        self._next_tag = 1
        self._watch = Watch(found.asked.pace, found.sampler, found.plans, self._clock)

    def run(self, save: Callable[[Soak], None]) -> None:
        """Do rounds until the time is over; then the workers must stop when asked."""
        until = time.monotonic() + self._found.asked.pace.total_s
        is_last = False
        while not is_last:
            self._do_round(min(time.monotonic() + self._found.asked.pace.round_s, until))
            self._found.acts = self._harm.acts + Counter(
                {f"a person: {name}": count for name, count in self._person.acts.items()}
            )
            self._found.is_over = time.monotonic() >= until
            is_last = self._found.is_over or self._found.is_stuck or self._stop.is_set()
            if not is_last:
                save(self._found)
                self._turn_page()
        self._workers.stop()
        with psycopg.connect(self._url, autocommit=True) as connection:
            self._workers.save(connection)
            self._found.rounds[-1].verdict.broken = judge(connection)
        save(self._found)

    def _do_round(self, until: float) -> None:
        began, began_s = time.monotonic(), self._found.sampler.at_s
        producer = Producer(
            self._found.asked.seed + self._next_tag,
            self._url,
            app,
            rate=self._found.asked.rate,
            first_tag=self._next_tag,
        )
        producer.start()
        self._watch.start()
        try:
            while time.monotonic() < until and not self._stop.is_set():
                self._workers.tend()
                self._harm.turn()
                self._person.turn()
                self._clock.turn()
                time.sleep(LOOK_EVERY_S)
        finally:
            self._watch.stop()
        producer.stop()
        self._next_tag = producer.next_tag
        lasted_s = time.monotonic() - began
        rested_s, self._found.is_stuck = self._rest()
        self._found.sampler.take(self._clock.days, at_rest=True)
        self._found.days = self._clock.days
        verdict = judge_all(
            self._url, self._workers, producer, self._sink, self._endpoints, self._read
        )
        self._found.rounds.append(Round(began_s, lasted_s, rested_s, verdict))

    def _rest(self) -> tuple[float, bool]:
        """Wait until nothing is live, and pause everything, schedules too; return how long it took,
        and whether something is still live when the time is up."""
        rested_s = 0.0
        while rested_s < PATIENCE_S:
            rested_s += come_to_rest(self._workers, self._url, PATIENCE_S - rested_s)
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute("select rota.pause_all(p_by => 'soak')")
                if connection.execute(LIVE).fetchone() == (0,):
                    return rested_s, False
                connection.execute("select rota.resume_all(p_by => 'soak')")
        return rested_s, True

    def _turn_page(self) -> None:
        """Empty the ledger, and go on."""
        with psycopg.connect(self._url) as connection:
            connection.execute(
                "update chaos.floor set job = (select last_value from rota.job_id_seq), "
                "batch = (select coalesce(max(id), 0) from rota.batch)"
            )
            connection.execute(
                sql.SQL("truncate {}").format(
                    sql.SQL(", ").join(sql.Identifier("chaos", name) for name in LEDGER)
                )
            )
            connection.execute(
                "delete from chaos.moved where at < (select max(at) from chaos.moved)"
            )
            # What is in force now was in force when the next round begins.
            connection.execute(
                "insert into chaos.cap (queue, max_running) select name, max_running "
                "from rota.queue where max_running is not null"
            )
            connection.execute(
                "insert into chaos.pace (name, starts, per, burst) "
                "select name, starts, per, burst from rota.rate_limit"
            )
            connection.execute("select rota.resume_all(p_by => 'soak')")
        for file in self._workers.witness.iterdir():
            if not psutil.pid_exists(int(file.name)):
                file.unlink()
                del self._read[file.name]
