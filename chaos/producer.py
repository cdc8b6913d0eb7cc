"""Enqueues thousands of jobs in every possible way, through everything that happens to the server.

A lost answer leaves it open whether the job exists. A producer with a key then asks again with the
same key; one that wrote a row of its own in the same transaction looks for that row. So in the end
each job is known to exist, or known not to.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
from psycopg.types.json import Jsonb

import rota
from chaos.app import MEMBERS, SHARED, TYPES, gather
from chaos.hooks import ENDPOINTS, hooks
from chaos.mails import mailer
from rota.errors import DatabaseUnavailable

T = TypeVar("T")
RATE = 80
"""Average jobs per second."""
BULK = (100, 400)
BATCH = (2, 60)
MAILS = (1, 20)
PAUSE_S = 0.1
PATIENCE_S = 60
"""How long a request is repeated; the server is away for seconds."""
BEHIND_S = 5.0
"""Longest backlog that is made up for after an outage."""
LOST = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.UniqueViolation,
    DatabaseUnavailable,
)
"""Errors after which a request is repeated.

A sale may exist after all: the connection broke before the answer to its commit arrived.
"""


class Producer:
    """A thread that enqueues until it is stopped."""

    def __init__(
        self, seed: int, url: str, app: rota.App, *, rate: float = RATE, first_tag: int = 1
    ) -> None:
        self.ordered: dict[int, tuple[int, str]] = {}
        """What is known to be committed: tag to job and way."""
        self.unsure: Counter[str] = Counter()
        """How often an answer was lost, and what the next request found."""
        self.rolled_back = 0
        self._chance = random.Random(f"producer {seed}")
        self._url = url
        self._app = app
        self._rate = rate
        self._tags = itertools.count(first_tag)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="producer", daemon=True)
        self._ways: list[tuple[int, Callable[[], int]]] = [
            (60, self._one),
            (12, self._transaction),
            (12, self._plain),
            (1, self._bulk),
            (3, self._batch),
            (4, self._mails),
            (8, self._event),
        ]

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the current request and stop; raise the error that ended it before, if any."""
        self._stop.set()
        self._thread.join(PATIENCE_S + 10)
        if self._thread.is_alive():
            raise RuntimeError("the producer does not come to an end")
        if self._failure is not None:
            raise self._failure

    @property
    def next_tag(self) -> int:
        """The first tag that the next producer may use, once this one has stopped."""
        return (next(self._tags) // SHARED + 1) * SHARED  # so no effect is of both

    def save(self, connection: psycopg.Connection) -> None:
        """Write down what it knows."""
        with (
            connection.cursor() as cursor,
            cursor.copy("copy chaos.ordered (tag, job, way) from stdin") as copy,
        ):
            for tag, (job, way) in self.ordered.items():
                copy.write_row((tag, job, way))

    def _main(self) -> None:
        due_at = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, due_at - time.monotonic())):
                [way] = self._chance.choices(
                    [way for _, way in self._ways], [weight for weight, _ in self._ways]
                )
                due_at = max(due_at + way() / self._rate, time.monotonic() - BEHIND_S)
        except BaseException as error:  # noqa: BLE001 - passed on by stop
            self._failure = error

    # The ways

    def _one(self) -> int:
        tag, new = self._new()
        self._keep(
            "one by one", [tag], [self._until_answered("key", lambda: self._app.enqueue(new))]
        )
        return 1

    def _bulk(self) -> int:
        drawn = [self._new() for _ in range(self._chance.randint(*BULK))]
        made = self._until_answered(
            "key", lambda: self._app.enqueue_many([new for _, new in drawn])
        )
        self._keep("in bulk", [tag for tag, _ in drawn], made)
        return len(drawn)

    def _batch(self) -> int:
        """Enqueue jobs that are followed as one. Their keys let a repeated call find the batch."""
        drawn = [self._new(MEMBERS) for _ in range(self._chance.randint(*BATCH))]
        follow = gather.new(n=drawn[0][0])
        then: Any = self._chance.choice([follow, {"succeeded": follow, "failed": follow}, None])
        on_failure: Any = self._chance.choice(["continue", "wait"])
        made = self._until_answered(
            "batch",
            lambda: self._app.batch([new for _, new in drawn], then=then, on_failure=on_failure),
        )
        self._keep("in a batch", [tag for tag, _ in drawn], made.jobs)
        return len(drawn)

    def _mails(self) -> int:
        """Enqueue mails, each of them twice: a mail has its key by itself."""
        tags = [next(self._tags) for _ in range(self._chance.randint(*MAILS))]
        new = [
            mailer.new("hello", to=f"u{n}@x.example", user_id=n, event="chaos", data={"n": n})
            for n in tags
        ]
        made = self._until_answered("key", lambda: self._app.enqueue_many([*new, *new]))
        self._keep("as mails", tags, made[: len(tags)])
        return len(tags)

    def _event(self) -> int:
        """Emit an event, at times more than once: an endpoint has one delivery of it."""
        tag, account = next(self._tags), self._chance.choice(list(ENDPOINTS))
        times = self._chance.choice([1, 1, 2])

        def emit() -> int:
            with psycopg.connect(self._url, autocommit=True) as connection:
                for _ in range(times):
                    hooks.emit(
                        "chaos.event", {"n": tag}, event_id=f"chaos:{tag}", account=account,
                        connection=connection,
                    )  # fmt: skip
                found = connection.execute(
                    "select job from rota.webhook_delivery where event_id = %s", [f"chaos:{tag}"]
                ).fetchone()
                return -1 if found is None else int(found[0])

        self.ordered[tag] = self._until_answered("key", emit), "as an event"
        return 1

    def _plain(self) -> int:
        """Insert as a program in another language would."""
        tag, [job_type] = next(self._tags), self._draw_types(1)
        key = f"chaos:{tag}"
        new = job_type.new(n=tag)
        meta = new.asks_json and Jsonb({"rota.asks": json.loads(new.asks_json)})
        payload = Jsonb({"n": tag})

        def insert() -> int:
            with psycopg.connect(self._url, autocommit=True) as connection:
                statement = (
                    "insert into rota.job (job_type, payload, idempotency_key, group_key, "
                    "group_capacity, meta) values (%s, %s, %s, %s, %s, %s) returning id"
                )
                made = connection.execute(
                    statement,
                    [job_type.name, payload, key, new.group_key, new.group_capacity, meta],
                ).fetchone()
                return _find(connection, tag) if made is None else int(made[0])

        self.ordered[tag] = self._until_answered("key", insert), "plain INSERT"
        return 1

    def _transaction(self) -> int:
        """Enqueue in a transaction with a row of the caller's own, and sometimes roll it back."""
        tag, [job_type] = next(self._tags), self._draw_types(1)
        think_better = self._chance.random() < 0.2

        def sell() -> int | None:
            with psycopg.connect(self._url, autocommit=True) as connection:
                if connection.execute("select from chaos.sale where tag = %s", [tag]).fetchone():
                    return _find(connection, tag)
                with connection.transaction(force_rollback=think_better):
                    connection.execute("insert into chaos.sale (tag) values (%s)", [tag])
                    made = job_type.using(connection=connection).enqueue(n=tag)
                return None if think_better else int(made.id)

        job = self._until_answered("transaction", sell)
        if job is None:
            self.rolled_back += 1
        else:
            self.ordered[tag] = job, "in a transaction"
        return 1

    # What they share

    def _new(self, job_types: list[Any] | None = None) -> tuple[int, Any]:
        tag = next(self._tags)
        [job_type] = self._draw_types(1) if job_types is None else [self._chance.choice(job_types)]
        options: dict[str, Any] = {"key": f"chaos:{tag}"}
        if self._chance.random() < 0.15:
            options["delay"] = timedelta(seconds=self._chance.uniform(0.1, 3))
        if self._chance.random() < 0.1:
            options["priority"] = self._chance.choice([-5, 5, 10])
        if self._chance.random() < 0.2:
            options["max_attempts"] = self._chance.choice([1, 2, 3])
        return tag, job_type.new(n=tag).using(**options)

    def _draw_types(self, count: int) -> list[Any]:
        return self._chance.choices(
            [job_type for _, job_type in TYPES], [share for share, _ in TYPES], k=count
        )

    def _keep(self, way: str, tags: list[int], made: Any) -> None:
        for tag, enqueued in zip(tags, made, strict=True):
            self.ordered[tag] = enqueued.id, way
            if not enqueued.created:
                self.unsure["job found by its key"] += 1

    def _until_answered(self, what: str, call: Callable[[], T]) -> T:
        for attempt in self._attempts():
            try:
                return call()
            except LOST:
                if not attempt:
                    self.unsure[f"asked again, {what}"] += 1
        raise RuntimeError(f"the producer had no answer for {PATIENCE_S} s")

    def _attempts(self) -> Iterator[int]:
        until = time.monotonic() + PATIENCE_S
        for attempt in itertools.count():
            yield attempt
            if time.monotonic() > until:
                return
            time.sleep(PAUSE_S)


def _find(connection: psycopg.Connection, tag: int) -> int:
    """Return the job of a tag; 0: there is none, and the judge reports it as lost."""
    row = connection.execute(
        "select id from chaos.job where (payload->>'n')::bigint = %s", [tag]
    ).fetchone()
    return 0 if row is None else int(row[0])
