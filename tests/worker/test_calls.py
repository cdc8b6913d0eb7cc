"""Handlers that take many jobs in one call: each job keeps its own claim, attempt and outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Unpack

import psycopg
import pytest

import rota
from rota.declare.options import JobOptions
from rota.errors import UsageError
from rota.model.job import Job
from rota.model.outcome import End, Errored
from rota.observe.events import JobCancelled, JobClaimed, JobFailed, JobSucceeded, LeaseLost
from rota.worker.attempt import Attempt
from rota.worker.calls import Call, CallRunner
from rota.worker.packs import Pack
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.hand import Hand
from tests.worker.process import WorkerProcess, notes
from tests.worker.table import Connection, expire_leases, put, rows, value
from tests.worker.test_lost_workers import work_until


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

        @self.jobs.job("plain", chunk=rota.Chunk(chunk, wait=wait), **options)
        def plain(docs: list[Doc]) -> Any:
            return self._take(docs)

        @self.jobs.job("async", chunk=rota.Chunk(chunk, wait=wait), **options)
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
        app.drain(concurrency=20)
    found = states(connection)
    assert found.pop(11)[0] == ("dead" if isinstance(error, rota.PayloadError) else "failed")
    assert set(found.values()) == {("succeeded", 1)}
    assert index.calls[-1] == [11] or [11] in index.calls
    assert len(index.calls) == 9


@rule("M33", "M42")
def test_a_job_with_one_attempt_is_called_once_also_after_an_error_of_all(
    database: str, connection: Connection
) -> None:
    index = Index()

    def answer(ids: list[int]) -> None:
        if 3 in ids:
            raise ValueError("a bad doc")

    index.answer = answer
    with closing(make_app(database, index)) as app:
        plain = index.types["plain"]
        app.enqueue_many([plain.new(Doc(at)).using(max_attempts=1) for at in range(4)])
        app.enqueue_many([plain.new(Doc(at)) for at in range(4, 8)])
        app.drain(concurrency=20)
    assert index.calls[0] == list(range(8))
    assert sorted(at for ids in index.calls[1:] for at in ids) == [4, 5, 6, 7]
    found = states(connection)
    assert {at: found[at] for at in range(4)} == dict.fromkeys(range(4), ("dead", 1))
    assert {at: found[at] for at in range(4, 8)} == dict.fromkeys(range(4, 8), ("succeeded", 1))


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
        app.drain(concurrency=20)
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
        app.drain(concurrency=20)
        assert set(states(connection).values()) == {("failed", 1)}
        connection.execute("update rota.job set run_at = now()")
        connection.execute("select rota.look_back('default', now() - interval '1 s')")
        app.drain(concurrency=20)
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
    index = Index()
    calls: list[tuple[int, set[str | None]]] = []

    @index.jobs.job("laned", chunk=10, ordered=rota.Ordered(capacity=5), takes_context=True)
    def laned(ctx: rota.Context, docs: list[Doc]) -> None:
        assert [one.job.payload["id"] for one in ctx.items] == [doc.id for doc in docs]
        calls.append((len(docs), {one.job.group_key for one in ctx.items}))

    with closing(make_app(database, index)) as app:
        app.enqueue_many(
            [laned.new(Doc(at)).using(group_key=f"lane {at % 3}") for at in range(30)]
            + [laned.new(Doc(at)) for at in range(30, 50)]
        )
        assert app.drain(concurrency=10).succeeded == 50
    assert all(len(lanes) == 1 for _, lanes in calls)
    assert max(size for size, lanes in calls if lanes == {None}) > 5
    assert 1 < max(size for size, lanes in calls if lanes != {None}) <= 5


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
        attempt = hand.worker.attempts[made[1]]
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


@rule("M72")
async def test_a_job_waits_for_others_until_the_call_is_full(
    database: str, connection: Connection
) -> None:
    index = Index(chunk=3, wait="10s")
    async with Hand(database, index.jobs, poll_s=0.05) as hand:
        put(connection, "plain", id=1)
        put(connection, "plain", id=2)
        await hand.heard(JobClaimed, 2)
        assert index.calls == []
        connection.execute(
            "insert into rota.job (job_type, payload) "
            "select 'plain', jsonb_build_object('id', n) from generate_series(3, 4) n"
        )
        await hand.heard(JobSucceeded, 3)
    assert index.calls == [[1, 2, 3]]
    assert value(connection, "select payload ->> 'id' from rota.job") == "4"


async def test_a_job_waits_for_others_no_longer_than_its_type_says(
    database: str, connection: Connection
) -> None:
    index = Index(chunk=3, wait="300ms")
    put(connection, "async", id=1)
    put(connection, "async", id=2)
    async with Hand(database, index.jobs) as hand:
        await hand.heard(JobSucceeded, 2)
    assert index.calls == [[1, 2]]
    waited = "select min(started_at - created_at) >= interval '0.3 s' from rota.job_history"
    assert value(connection, waited)


@rule("M72", "M31")
@pytest.mark.parametrize(
    ("wait", "options", "least_s"),
    [
        ("1300ms", {}, 1.3),  # longer than a job waits for a free slot
        ("10s", {"lease": "2s"}, 1.0),  # half of its lease
        ("10s", {"expires": "3s"}, 1.5),  # a little less than its expiry
    ],
)
def test_a_job_waits_for_others_as_long_as_it_can_and_then_runs(
    wait: str, options: JobOptions, least_s: float, database: str, connection: Connection
) -> None:
    index = Index(chunk=5, wait=wait, **options)
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 3)
        assert app.drain(max_time="15s").succeeded == 3
    assert index.calls == [[1, 2, 3]]
    waited = "min(started_at - created_at) >= %s * interval '1 s'"
    ran = f"select max(claims), {waited} from rota.job_history"
    assert rows(connection, ran, least_s) == [(1, True)]


@rule("M83")
async def test_a_worker_that_goes_down_hands_back_what_waits_for_others(
    database: str, connection: Connection
) -> None:
    index = Index(chunk=3, wait="10s")
    put(connection, "plain", id=1)
    async with Hand(database, index.jobs) as hand:
        await hand.heard(JobClaimed)
    assert index.calls == []
    assert rows(connection, "select status, attempts, losses from rota.job") == [
        ("queued", 0, None)
    ]


class Waiting:
    """A handler that waits until it may go on, with what it saw."""

    def __init__(self, **options: Unpack[JobOptions]) -> None:
        self.jobs = rota.Jobs()
        self.go = asyncio.Event()
        self.why: list[str | None] = []
        self.calls: list[list[int]] = []
        options.setdefault("retry", rota.Fixed("1h"))

        @self.jobs.job("waiting", chunk=10, takes_context=True, **options)
        async def waiting(ctx: rota.Context, docs: list[Doc]) -> None:
            self.calls.append([doc.id for doc in docs])
            try:
                await self.go.wait()
            finally:
                self.why.append(ctx.cancelled)

    async def claimed(self, hand: Hand, count: int) -> None:
        await hand.heard(JobClaimed, count)
        await asyncio.to_thread(eventually, lambda: self.calls)


@rule("M35")
async def test_a_timeout_is_that_of_the_call_and_charges_each_of_its_jobs(
    database: str, connection: Connection
) -> None:
    waiting = Waiting(timeout="200ms")
    for at in range(3):
        put(connection, "waiting", id=at)
    async with Hand(database, waiting.jobs) as hand:
        await hand.heard(JobFailed, 3)
    assert waiting.calls == [[0, 1, 2]]
    assert waiting.why == ["it ran longer than its timeout of 0.2 s"]
    assert rows(connection, "select distinct status, attempts, error_type from rota.job") == [
        ("failed", 1, "rota.errors.AttemptTimeout")
    ]


@rule("M83", "M33")
async def test_jobs_of_a_call_that_is_stopped_with_its_worker_come_back_uncharged(
    database: str, connection: Connection
) -> None:
    waiting = Waiting()
    for at in range(3):
        put(connection, "waiting", id=at)
    async with Hand(database, waiting.jobs, grace_s=0.1) as hand:
        await waiting.claimed(hand, 3)
    assert waiting.why == ["the worker is going down"]
    assert (
        rows(connection, "select status, attempts, losses from rota.job") == [("queued", 0, 1)] * 3
    )


@rule("M32")
async def test_a_job_that_its_worker_has_lost_is_not_finished_and_the_others_are(
    database: str, connection: Connection
) -> None:
    waiting = Waiting()
    lost, *others = [put(connection, "waiting", id=at) for at in range(3)]
    async with Hand(database, waiting.jobs, lease_s=3) as hand:
        await waiting.claimed(hand, 3)
        connection.execute("update rota.job set claims = claims + 1 where id = %s", [lost])
        attempt = hand.worker.attempts[lost]
        await asyncio.to_thread(eventually, lambda: attempt.is_lost)
        waiting.go.set()
        await hand.heard(LeaseLost, job=lost)
        await hand.heard(JobSucceeded, 2)
    assert waiting.why == [None]
    assert rows(connection, "select id, status from rota.job") == [(lost, "running")]
    assert rows(connection, "select id from rota.job_history order by id") == [
        (one,) for one in others
    ]


@rule("M87")
async def test_a_call_whose_jobs_are_all_cancelled_is_stopped(
    database: str, connection: Connection
) -> None:
    waiting = Waiting()
    made = [put(connection, "waiting", id=at) for at in range(2)]
    async with Hand(database, waiting.jobs) as hand:
        await waiting.claimed(hand, 2)
        connection.execute("select rota.job_cancel(%s, 'not wanted')", [made])
        await hand.heard(JobCancelled, 2)
    assert waiting.why == ["all of its jobs were cancelled or lost"]


@rule("M33")
async def test_starts_that_must_be_recorded_are_so_before_the_one_call(
    database: str, connection: Connection
) -> None:
    waiting = Waiting(on_lost="dead")
    for at in range(5):
        put(connection, "waiting", id=at)
    async with Hand(database, waiting.jobs) as hand:
        await waiting.claimed(hand, 5)
        recorded = "select count(*) from rota.job where start_recorded"
        assert value(connection, recorded) == 5
        waiting.go.set()
        await hand.heard(JobSucceeded, 5)
    assert waiting.calls == [[0, 1, 2, 3, 4]]


@rule("M52")
def test_effects_steps_and_progress_belong_to_each_job(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    sent: list[int] = []
    failing = [True]

    @jobs.job("mails", chunk=10, takes_context=True, retry=rota.Fixed("1s"))
    def mails(ctx: rota.Context, docs: list[Doc]) -> list[Any]:
        for item, doc in zip(ctx.items, docs, strict=True):
            item.progress(1, 2)
            with item.effect(f"mail:{doc.id}") as effect:
                if not effect.done:
                    sent.append(doc.id)
                    effect.result = f"id-{doc.id}"
            if doc.id == 2 and failing.pop():
                raise ConnectionError("the server has gone")
        return [item.step("note", str, doc.id) for item, doc in zip(ctx.items, docs, strict=True)]

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([mails.new(Doc(at)) for at in range(4)])
        app.drain()
        assert sent == [0, 1, 2]
        connection.execute("update rota.job set run_at = now()")
        connection.execute("select rota.look_back('default', now() - interval '1 s')")
        failing.append(False)
        app.drain()
        assert {job.payload["id"]: job.result for job in app.find(status="succeeded")} == {
            at: str(at) for at in range(4)
        }
    assert sorted(sent) == [0, 1, 2, 3]


@rule("M54")
def test_a_handler_can_finish_each_job_in_its_own_transaction(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    connection.execute("create table indexed (doc int)")

    @jobs.job("index", chunk=10, takes_context=True, retry=rota.Fixed("1h"))
    def index(ctx: rota.Context, docs: list[Doc]) -> None:
        with psycopg.connect(database) as own:
            for item, doc in zip(ctx.items, docs, strict=True):
                own.execute("insert into indexed values (%s)", [doc.id])
                if doc.id != 3:
                    item.complete(own, {"doc": doc.id})
            own.commit()
        raise ConnectionError("after the commit")

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([index.new(Doc(at)) for at in range(5)])
        app.drain()
    found = states(connection)
    assert found.pop(3) == ("failed", 1)
    assert set(found.values()) == {("succeeded", 1)}
    assert value(connection, "select count(*) from indexed") == 5


@rule("M54")
def test_what_belongs_to_one_job_is_refused_of_the_whole_call(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    said: list[str] = []
    around: list[tuple[int, int]] = []

    @jobs.job("index", chunk=10, takes_context=True)
    def index(ctx: rota.Context, docs: list[Doc]) -> None:
        assert rota.context() is ctx
        assert ctx.job.id == ctx.items[0].job.id
        for use in (
            lambda: ctx.effect("once"),
            lambda: ctx.step("once", str),
            lambda: ctx.progress(1),
            lambda: ctx.complete(connection),
            lambda: ctx.transaction().__enter__(),
        ):
            with pytest.raises(UsageError) as refused:
                use()
            said.append(str(refused.value))

    @contextmanager
    def count(ctx: rota.Context) -> Iterator[None]:
        around.append((ctx.job.id, len(ctx.items)))
        yield

    with closing(rota.App(database, jobs=[jobs], middleware=[count])) as app:
        made = app.enqueue_many([index.new(Doc(at)) for at in range(3)])
        assert app.drain().succeeded == 3
    assert len(said) == 5
    assert all("ctx.items[i]" in one for one in said)
    assert around == [(made[0].id, 3)]


@rule("M62")
def test_jobs_of_one_call_count_one_by_one_in_a_rate_limit(
    database: str, connection: Connection
) -> None:
    of_api = rota.RateLimit("api", 5, per="1h", burst=5)
    index = Index(rate_limit=of_api)
    with closing(make_app(database, index)) as app:
        app.sync()
        put_docs(app, index, 20)
        app.drain()
    assert sum(index.sizes) == 5
    assert value(connection, "select count(*) from rota.job where waits_for = 'limit api'") == 15


@rule("M63")
def test_failed_calls_open_a_breaker_and_one_trial_closes_it(
    database: str, connection: Connection
) -> None:
    of_api = rota.Breaker("api", failures=5, open_for="1s", max_open="1s")
    index = Index(breaker=of_api, retry=rota.Fixed("1s"))
    is_up = [False]

    def answer(ids: list[int]) -> None:
        if not is_up[0]:
            raise ConnectionError("away")

    index.answer = answer
    with closing(make_app(database, index)) as app:
        app.sync()
        put_docs(app, index, 40)
        app.drain()
        assert [one.state for one in app.breakers.list()] == ["open"]
        before = sum(index.sizes)
        assert before < 40
        is_up[0] = True

        def is_done() -> bool:
            app.drain()
            return value(connection, "select count(*) from rota.job") == 0

        eventually(is_done)
    assert {status for status, _ in states(connection).values()} == {"succeeded"}


@rule("M52")
def test_an_effect_that_a_failed_call_left_open_is_not_done_again(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    sent: list[int] = []

    @jobs.job("mails", chunk=10, takes_context=True)
    def mails(ctx: rota.Context, docs: list[Doc]) -> None:
        for item, doc in zip(ctx.items, docs, strict=True):
            with item.effect(f"mail:{doc.id}") as effect:
                if not effect.done:
                    sent.append(doc.id)
                    if doc.id == 2:
                        raise ValueError("was it sent?")

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([mails.new(Doc(at)) for at in range(5)])
        app.drain()
    assert sorted(sent) == [0, 1, 2, 3, 4]
    found = states(connection)
    assert found.pop(2) == ("dead", 1)
    assert set(found.values()) == {("succeeded", 1)}


@rule("M52")
def test_a_step_is_kept_when_the_handler_is_called_again_with_its_job(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    made: list[int] = []

    def make(doc: int) -> int:
        made.append(doc)
        return doc

    @jobs.job("makes", chunk=10, takes_context=True)
    def makes(ctx: rota.Context, docs: list[Doc]) -> None:
        for item, doc in zip(ctx.items, docs, strict=True):
            item.step("make", make, doc.id)
            if doc.id == 2:
                raise ValueError("a bad doc")

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([makes.new(Doc(at)) for at in range(5)])
        app.drain()
    assert sorted(made) == [0, 1, 2, 3, 4]
    found = states(connection)
    assert found.pop(2) == ("failed", 1)
    assert set(found.values()) == {("succeeded", 1)}


@rule("M52")
def test_what_the_effect_of_one_job_says_is_for_that_job_alone(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()

    @jobs.job("mails", chunk=10, takes_context=True)
    def mails(ctx: rota.Context, docs: list[Doc]) -> None:
        for item, doc in zip(ctx.items, docs, strict=True):
            with item.effect(f"mail:{doc.id}"):
                pass

    with closing(rota.App(database, jobs=[jobs])) as app:
        [other] = app.enqueue_many([mails.new(Doc(9)).using(queue="elsewhere")])
        connection.execute(
            "update rota.job set status = 'running', claims = 1, attempts = 1, "
            "locked_by = 'other', locked_until = now() + interval '1 h' where id = %s",
            [other.id],
        )
        connection.execute("select rota.effect_begin(%s, 1, 'mail:2')", [other.id])
        app.enqueue_many([mails.new(Doc(at)) for at in range(5)])
        app.drain()
    found = states(connection)
    assert found.pop(2) == ("queued", 0)
    assert found.pop(9) == ("running", 1)
    assert set(found.values()) == {("succeeded", 1)}


@rule("M42")
def test_a_handler_that_gives_one_job_up_gives_up_no_other(
    database: str, connection: Connection
) -> None:
    index = Index()

    def answer(ids: list[int]) -> None:
        for at in ids:
            if at == 3:
                raise rota.Dead("no such doc")
            if at == 5:
                raise rota.Cancel("deleted")

    index.answer = answer
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 8)
        app.drain(concurrency=20)
    found = states(connection)
    assert (found.pop(3), found.pop(5)) == (("dead", 1), ("cancelled", 1))
    assert set(found.values()) == {("succeeded", 1)}


@pytest.mark.slow
@rule("M33", "M42")
@pytest.mark.parametrize(("job_type", "chunk", "count"), [("many", 10, 30), ("hundreds", 500, 999)])
@pytest.mark.parametrize("kills", [True, False], ids=["one kills", "none is at fault"])
def test_jobs_that_were_lost_with_their_worker_come_back_in_smaller_calls(
    job_type: str, chunk: int, count: int, kills: bool, database: str,
    connection: Connection, tmp_path: Path,
) -> None:  # fmt: skip
    """Without a fault of their own they all go through at once. The one that kills its worker is
    soon alone, and only that one is charged."""
    for at in range(count):
        put(connection, job_type, id=at, kills=at == chunk // 3)
    processes: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        expire_leases(connection)
        if processes and not kills:
            connection.execute("update rota.job set payload = payload - 'kills'")
        processes.append(WorkerProcess(tmp_path, database, drain=True))
        return processes[-1]

    try:
        live = "select count(*) from rota.job where status <> 'dead'"
        work_until(start, lambda: len(processes) > 1 and value(connection, live) == 0)
    finally:
        for process in processes:
            process.kill()
    poison = str(chunk // 3)
    calls = [what.split()[1:] for _, what in notes(tmp_path / "notes") if what.startswith("call ")]
    with_poison = [len(ids) for ids in calls if poison in ids]
    assert with_poison[0] > chunk // 4
    assert all(size <= max(1, chunk // 4**lost) for lost, size in enumerate(with_poison))
    assert max(map(len, calls[1:])) > 1
    done = "select status, max(attempts), count(*) from rota.job_history group by 1"
    if kills:
        assert rows(connection, "select payload ->> 'id', attempts from rota.job") == [(poison, 3)]
        assert rows(connection, done) == [("succeeded", 1, count - 1)]
        assert with_poison[-3:] == [1, 1, 1]
        assert len(with_poison) <= 10
    else:
        assert rows(connection, done) == [("succeeded", 1, count)]
        assert len(calls) <= 2 + 3 * count / (chunk // 4)
        few = "select sum(claims) <= 3 * count(*) from rota.job_history"
        assert value(connection, few), "each was lost at most once, and none waited for long"


@rule("M33")
async def test_a_suspect_is_called_with_no_job_that_is_none(
    database: str, connection: Connection
) -> None:
    index = Index(chunk=12, wait="10s")
    for at in range(15):
        put(connection, "async", id=at)
    connection.execute(
        "update rota.job set losses = 1, error_type = 'LeaseExpired' "
        "where (payload ->> 'id')::int < 3"
    )
    async with Hand(database, index.jobs) as hand:
        await hand.heard(JobSucceeded, 15, timeout_s=8)  # the suspects do not wait for others
    assert sorted(map(sorted, index.calls)) == [[0, 1, 2], [*range(3, 15)]]


@rule("M11")
def test_a_job_of_a_call_waits_for_others_by_itself_and_goes_on_with_their_results(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    calls: list[list[int]] = []

    @jobs.job("part")
    def part(n: int) -> int:
        return n * 2

    @jobs.job("whole", chunk=10, takes_context=True)
    def whole(ctx: rota.Context, docs: list[Doc]) -> list[Any]:
        calls.append([doc.id for doc in docs])
        assert not ctx.results
        answers: list[Any] = []
        for item, doc in zip(ctx.items, docs, strict=True):
            if doc.id and not item.results:
                answers.append(rota.WaitFor(part.enqueue(doc.id)))
            else:
                answers.append([one.result for one in item.results.values()])
        return answers

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([whole.new(Doc(at)) for at in range(3)])
        assert app.drain().succeeded == 5
        results = {job.payload["id"]: job.result for job in app.find(job_type="whole")}
    assert results == {0: [], 1: [2], 2: [4]}
    assert calls[0] == [0, 1, 2]
    assert sorted(at for ids in calls[1:] for at in ids) == [1, 2]


@rule("M42")
async def test_no_job_dies_of_the_error_of_one_that_was_cancelled_meanwhile(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    go = asyncio.Event()
    calls: list[list[int]] = []

    @jobs.job("index", chunk=10)
    async def index(docs: list[Doc]) -> None:
        calls.append([doc.id for doc in docs])
        await go.wait()
        if docs[0].id == 1:
            raise rota.Dead("no such doc")

    bad = put(connection, "index", id=1)
    put(connection, "index", id=2)
    async with Hand(database, jobs) as hand:
        await hand.heard(JobClaimed, 2)
        await asyncio.to_thread(eventually, lambda: calls)
        connection.execute("select rota.job_cancel(%s, 'not wanted')", [[bad]])
        attempt = hand.worker.attempts[bad]
        await asyncio.to_thread(eventually, lambda: attempt.stop_outcome is not None)
        go.set()
        await asyncio.to_thread(
            eventually, lambda: value(connection, "select count(*) from rota.job") == 0
        )
    assert calls == [[1, 2], [2]]
    assert states(connection) == {1: ("cancelled", 1), 2: ("succeeded", 1)}


@rule("M83", "M33")
async def test_jobs_whose_calls_inside_were_stopped_with_the_worker_come_back_uncharged(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    begun: list[int] = []

    async def post(doc: Doc) -> str:
        begun.append(doc.id)
        if doc.id:
            await asyncio.Event().wait()
        return "posted"

    @jobs.job("index", chunk=10, retry=rota.Fixed("1h"))
    async def index(docs: list[Doc]) -> list[Any]:
        tasks = [asyncio.create_task(post(doc)) for doc in docs]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    for at in range(3):
        put(connection, "index", id=at)
    async with Hand(database, jobs, grace_s=0.1):
        await asyncio.to_thread(eventually, lambda: len(begun) == 3)
    assert states(connection) == {0: ("succeeded", 1), 1: ("queued", 0), 2: ("queued", 0)}


@rule("M72")
def test_the_class_of_an_exception_is_no_result(database: str, connection: Connection) -> None:
    index = Index()
    index.answer = lambda ids: [ConnectionError if at == 2 else None for at in ids]
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 3)
        app.drain()
    assert states(connection) == {1: ("succeeded", 1), 2: ("failed", 1), 3: ("succeeded", 1)}
    [(said,)] = rows(connection, "select last_error from rota.job")
    assert "the handler answered with the class ConnectionError; give an instance" in said


@pytest.mark.parametrize("error", [SystemExit(2), asyncio.CancelledError()])
@rule("M42")
def test_what_is_no_exception_may_be_of_one_job_too(
    error: BaseException, database: str, connection: Connection
) -> None:
    index = Index()

    def answer(ids: list[int]) -> None:
        if 3 in ids:
            raise error

    index.answer = answer
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 5)
        app.drain()
    found = states(connection)
    assert found.pop(3) == ("failed", 1)
    assert set(found.values()) == {("succeeded", 1)}


@dataclass(frozen=True)
class Numbered:
    """The payload of one job."""

    n: int


AT = datetime(2026, 1, 1, tzinfo=UTC)


class EndsAtOnce:
    """A runner whose handlers fail before `call` returns, as those that never wait may do on Python
    3.12 and later."""

    stop_s = 0.0

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def begin(self, attempts: Sequence[Attempt]) -> None: ...

    def call(
        self,
        job_type: Any,
        runs: Iterable[tuple[Call, dict[str, Any]]],
        tell: Callable[[Call, End], None],
    ) -> None:
        for call, _ in runs:
            self.sizes.append(len(call.items))
            assert call.take_first_step(0.0) is None
            tell(call, Errored(ValueError()))

    def tell_unknown(self, job_type: Any, fields: frozenset[str]) -> None: ...

    def stop(self, run: Any) -> None: ...


@rule("M72")
def test_a_call_that_is_over_before_it_was_made_goes_on_with_its_halves() -> None:
    made = rota.Jobs()

    @made.job("many", chunk=1000)
    def many(items: list[Numbered]) -> None: ...

    attempts = [
        Attempt(
            Job(
                id=n, origin_id=n, queue="default", job_type="many", payload_json='{"n": 1}',
                payload_version=None, priority=0, run_at=AT, expires_at=None,
                attempts=1, max_attempts=5, claims=1, idempotency_key=None, meta_json=None,
                created_at=AT, started_at=AT,
            ),
            made.types["many"]._declaration,
            0.0,
            60.0,
        )
        for n in range(1, 601)
    ]  # fmt: skip
    pack, ended, runner = Pack(attempts), list[int](), EndsAtOnce()
    calls = CallRunner(runner, "host:1", lambda ends: ended.extend(one.job.id for one, _ in ends))
    calls.begin(attempts)
    assert sorted(ended) == list(range(1, 601))
    assert (runner.sizes[:3], len(runner.sizes), pack.current) == ([600, 300, 150], 1199, None)
