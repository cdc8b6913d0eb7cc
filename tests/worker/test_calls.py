"""Handlers that take many jobs in one call: each job keeps its own claim, attempt and outcome."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Unpack

import pytest

import rota
from rota.observe.events import JobCancelled, JobClaimed, JobSucceeded
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.table import Connection, rows, value


@dataclass
class Doc:
    id: int
    text: str = ""


class Index:
    """Handlers of docs, plain and async, and the calls that they got. What they answer is what
    `answer` makes of the ids."""

    def __init__(self, *, chunk: int = 10, wait: str = "0s", **options: Unpack[JobOptions]) -> None:
        self.jobs = rota.Jobs()
        self.calls: list[list[int]] = []
        self.answer: Any = lambda ids: None
        options.setdefault("retry", rota.Fixed("1h"))

        @self.jobs.job("plain", chunk=chunk, chunk_wait=wait, **options)
        def plain(docs: list[Doc]) -> Any:
            return self._take(docs)

        @self.jobs.job("async", chunk=chunk, chunk_wait=wait, **options)
        async def on_loop(docs: list[Doc]) -> Any:
            return self._take(docs)

        self.types: dict[str, Any] = {"plain": plain, "async": on_loop}

    def _take(self, docs: list[Doc]) -> Any:
        ids = [doc.id for doc in docs]
        self.calls.append(ids)
        return self.answer(ids)

    @property
    def sizes(self) -> list[int]:
        return [len(ids) for ids in self.calls]


def make_app(database: str, index: Index) -> rota.App:
    return rota.App(database, jobs=[index.jobs])


def put_docs(app: rota.App, index: Index, count: int, kind: str = "plain") -> list[int]:
    made = app.enqueue_many([index.types[kind].new(Doc(at)) for at in range(1, count + 1)])
    return [one.id for one in made]


def states(connection: Connection) -> dict[int, tuple[str, int]]:
    """The status and the attempts of each job, by its doc."""
    found = rows(connection, "select (payload ->> 'id')::int, status, attempts from rota.jobs")
    return {doc: (status, attempts) for doc, status, attempts in found}


@pytest.mark.parametrize("kind", ["plain", "async"])
@rule("M72")
def test_one_call_takes_as_many_jobs_as_its_type_says(
    kind: str, database: str, connection: Connection
) -> None:
    index = Index(chunk=10)
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 1_000, kind)
        assert app.drain().succeeded == 1_000
    assert sorted(at for ids in index.calls for at in ids) == list(range(1, 1_001))
    assert max(index.sizes) == 10
    assert len(index.calls) <= 110


@rule("M72")
def test_each_job_ends_as_the_handler_answers_for_it(database: str, connection: Connection) -> None:
    index = Index()
    answers: dict[int, Any] = {
        1: None,
        2: {"indexed": True},
        3: ValueError("a bad doc"),
        4: rota.Dead("no such doc"),
        5: rota.Snooze("1h"),
        6: rota.Cancel("deleted"),
        7: rota.Retry("later"),
        8: ConnectionError("reset"),
    }
    index.answer = lambda ids: [answers[at] for at in ids]
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 8)
        app.drain()
        assert states(connection) == {
            1: ("succeeded", 1),
            2: ("succeeded", 1),
            3: ("failed", 1),
            4: ("dead", 1),
            5: ("queued", 0),
            6: ("cancelled", 1),
            7: ("failed", 1),
            8: ("failed", 1),
        }
        [second] = [job for job in app.find(status="succeeded") if job.result]
        assert (second.payload["id"], second.result) == (2, {"indexed": True})
    assert index.sizes == [8]
    errors = "select (payload ->> 'id')::int, error_type from rota.jobs where error_type <> ''"
    assert dict(rows(connection, errors)) == {
        3: "ValueError",
        4: "Dead",
        7: "Retry",
        8: "ConnectionError",
    }


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("error", [ValueError("a bad doc"), rota.PayloadError("x", None, "bad")])
@rule("M40", "M42")
def test_the_job_at_fault_for_an_error_of_all_is_found(
    error: Exception, kind: str, database: str, connection: Connection
) -> None:
    index = Index(chunk=16)

    def answer(ids: list[int]) -> None:
        if 11 in ids:
            raise error

    index.answer = answer
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 16, kind)
        app.drain(slots=20)
    found = states(connection)
    assert found.pop(11)[0] == ("failed" if isinstance(error, ValueError) else "dead")
    assert set(found.values()) == {("succeeded", 1)}
    assert index.calls[-1] == [11] or [11] in index.calls
    assert len(index.calls) == 9


@rule("M41")
def test_a_timeout_a_connection_or_a_503_is_the_fault_of_no_job(
    database: str, connection: Connection
) -> None:
    index = Index()

    def answer(ids: list[int]) -> None:
        raise ConnectionError("the index is away")

    index.answer = answer
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 10)
        app.drain(slots=20)
    assert index.sizes == [10]
    assert set(states(connection).values()) == {("failed", 1)}


@rule("M42")
def test_the_last_attempt_of_a_job_is_a_call_of_its_own(
    database: str, connection: Connection
) -> None:
    index = Index(max_attempts=2, retry=rota.Fixed("1s"))

    def answer(ids: list[int]) -> None:
        if 4 in ids:
            raise TimeoutError("4 takes for ever")

    index.answer = answer
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 10)
        app.drain(slots=20)
        assert set(states(connection).values()) == {("failed", 1)}
        connection.execute("update rota.job set run_at = now()")
        connection.execute("select rota.look_back('default', now() - interval '1 s')")
        app.drain(slots=20)
    found = states(connection)
    assert found.pop(4) == ("dead", 2)
    assert set(found.values()) == {("succeeded", 2)}
    assert index.sizes == [10] + [1] * 10


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ([None], "the handler returned 1 answers for 3 jobs"),
        ({"ok": 3}, "must return a list with an answer for each of its 3 jobs, or None, not dict"),
    ],
)
@rule("M41")
def test_answers_that_do_not_fit_fail_each_job_and_say_why(
    answer: Any, text: str, database: str, connection: Connection
) -> None:
    index = Index()
    index.answer = lambda ids: answer
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 3)
        app.drain()
    assert index.sizes == [3]
    told = rows(connection, "select error_type, last_error from rota.job")
    assert len(told) == 3
    assert all(kind == "TypeError" and text in why for kind, why in told)


@rule("M12")
def test_a_payload_that_fits_no_item_ends_alone(database: str, connection: Connection) -> None:
    index = Index()
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 3)
        connection.execute(
            "insert into rota.job (job_type, payload) values ('plain', '{\"no\": 1}')"
        )
        connection.execute(
            "insert into rota.job (job_type, payload) values ('plain', '{\"id\": 9, \"x\": 1}')"
        )
        app.drain()
    assert sorted(index.calls[0]) == [1, 2, 3, 9]
    assert value(connection, "select count(*) from rota.jobs where status = 'dead'") == 1


@rule("M60")
def test_the_jobs_of_one_call_are_of_one_lane(database: str, connection: Connection) -> None:
    index = Index(chunk=10, lane_capacity=10)
    lanes: list[set[str | None]] = []

    @index.jobs.job("laned", chunk=10, lane_capacity=5, takes_context=True)
    def laned(ctx: rota.Context, docs: list[Doc]) -> None:
        assert [one.job.payload["id"] for one in ctx.items] == [doc.id for doc in docs]
        lanes.append({one.job.group_key for one in ctx.items})
        index.calls.append([doc.id for doc in docs])

    with closing(make_app(database, index)) as app:
        app.enqueue_many(
            [laned.new(Doc(at)).using(group_key=f"lane {at % 3}") for at in range(30)]
            + [laned.new(Doc(at)) for at in range(30, 50)]
        )
        assert app.drain(slots=10).succeeded == 50
    assert all(len(one) == 1 for one in lanes)
    assert max(index.sizes) == 10
    laned_sizes = [size for size, of in zip(index.sizes, lanes, strict=True) if of != {None}]
    assert max(laned_sizes) == 5


@rule("M32", "M87")
async def test_what_is_said_of_a_cancelled_job_is_dropped_and_the_call_goes_on(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    go = asyncio.Event()
    seen: list[str | None] = []

    @jobs.job("index", chunk=10, takes_context=True)
    async def index(ctx: rota.Context, docs: list[Doc]) -> list[int]:
        await go.wait()
        seen.extend(one.cancelled for one in ctx.items)
        assert ctx.cancelled is None
        return [doc.id for doc in docs]

    app = rota.App(database, jobs=[jobs])
    made = [one.id for one in await app.aenqueue_many([index.new(Doc(at)) for at in range(3)])]
    async with Hand(database, jobs) as hand:
        await hand.heard(JobClaimed, 3)
        await app.acancel(made[1], why="deleted")
        attempt = hand.worker.parts.attempts[made[1]]
        await asyncio.to_thread(eventually, lambda: attempt.stop_outcome is not None)
        go.set()
        await hand.heard(JobSucceeded, 2)
        await hand.heard(JobCancelled, job=made[1])
    assert seen == [None, "it was cancelled: deleted", None]
    assert states(connection) == {
        0: ("succeeded", 1),
        1: ("cancelled", 1),
        2: ("succeeded", 1),
    }
    await app.aclose()
