"""Handlers that take many jobs in one call: each job keeps its own claim, attempt and outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import psycopg
import pytest

import rota
from rota.declare.options import JobOptions
from rota.errors import UsageError
from rota.observe.events import (
    BreakerOpened,
    JobCancelled,
    JobClaimed,
    JobFailed,
    JobSucceeded,
    LeaseLost,
)
from tests.support.rules import rule
from tests.support.wait import aeventually
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

    def fail_with(self, error: BaseException, *faulty: int) -> None:
        """Let each call fail that has one of these docs, or all."""

        def answer(ids: list[int]) -> None:
            if not faulty or set(faulty) & set(ids):
                raise error

        self.answer = answer


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

    async def begun(self, connection: Connection, hand: Hand, count: int) -> list[int]:
        """Put so many jobs, and wait until one call has begun with them; return their ids."""
        with connection.transaction():
            made = [put(connection, "waiting", id=at) for at in range(count)]
        await hand.heard(JobClaimed, count)
        await aeventually(lambda: self.calls)
        assert self.calls == [list(range(count))]
        return made


def make_app(database: str, index: Index) -> rota.App:
    return rota.App(database, jobs=[index.jobs])


def put_docs(app: rota.App, index: Index, count: int, kind: str = "plain") -> list[int]:
    made = app.enqueue_many([index.types[kind].new(Doc(at)) for at in range(1, count + 1)])
    return [job.id for job in made]


def run_again(connection: Connection) -> None:
    """Let what failed be due."""
    connection.execute("update rota.job set run_at = now()")
    connection.execute("select rota.look_back('default', now() - interval '1 s')")


def states(connection: Connection) -> dict[int, tuple[str, int]]:
    """The status and the attempts of each job, by its doc."""
    found = rows(connection, "select (payload ->> 'id')::int, status, attempts from rota.jobs")
    return {doc: (status, attempts) for doc, status, attempts in found}


@rule("M72")
def test_one_call_takes_as_many_jobs_as_its_type_says(database: str) -> None:
    for kind in ("plain", "async"):
        index = Index(chunk=10)
        with closing(make_app(database, index)) as app:
            put_docs(app, index, 100, kind)
            assert app.drain().succeeded == 100
        assert sorted(at for ids in index.calls for at in ids) == list(range(1, 101))
        assert max(index.sizes) == 10
        assert len(index.calls) <= 20


@rule("M12", "M43", "M72")
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
        8: ConnectionError,  # the class is no result
    }
    index.answer = lambda ids: [answers[at] for at in ids]
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 8)
        connection.execute(  # a payload that fits no item ends alone
            'insert into rota.job (job_type, payload) values (\'plain\', \'{"no": 1, "id": "a"}\')'
        )
        app.drain()
        [second] = [job for job in app.find(status="succeeded") if job.result]
        assert (second.payload["id"], second.result) == (2, {"indexed": True})
    assert index.sizes == [8]
    found = "select payload ->> 'id', status, attempts, error_type from rota.jobs"
    ended = {
        doc: (status, attempts, error) for doc, status, attempts, error in rows(connection, found)
    }
    assert ended == {
        "1": ("succeeded", 1, None),
        "2": ("succeeded", 1, None),
        "3": ("failed", 1, "ValueError"),
        "4": ("dead", 1, "Dead"),
        "5": ("queued", 0, None),
        "6": ("cancelled", 1, None),
        "7": ("failed", 1, "Retry"),
        "8": ("failed", 1, "TypeError"),
        "a": ("dead", 0, "rota.errors.PayloadError"),
    }


@rule("M40", "M42")
def test_the_job_at_fault_for_an_error_of_all_is_found(
    database: str, connection: Connection
) -> None:
    cases: dict[str, tuple[BaseException, str]] = {
        "unknown": (ValueError("a bad doc"), "failed"),
        "fatal": (rota.PayloadError("x", None, "bad"), "dead"),
        "gives up": (rota.Dead("no such doc"), "dead"),
        "cancels": (rota.Cancel("deleted"), "cancelled"),
        "exits": (SystemExit(2), "failed"),
        "is cancelled": (asyncio.CancelledError(), "failed"),
    }
    jobs = rota.Jobs()
    calls: dict[str, list[list[int]]] = {name: [] for name in cases}

    def declare(name: str, error: BaseException) -> Any:
        def take(docs: list[Doc]) -> None:
            ids = [doc.id for doc in docs]
            calls[name].append(ids)
            if 5 in ids:
                raise error

        async def atake(docs: list[Doc]) -> None:
            take(docs)

        handler: Any = atake if name in ("fatal", "cancels") else take
        return jobs.job(name, chunk=8, retry=rota.Fixed("1h"))(handler)

    types = [declare(name, error) for name, (error, _) in cases.items()]
    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([job_type.new(Doc(at)) for job_type in types for at in range(1, 9)])
        app.drain(concurrency=100)
    for name, (_, status) in cases.items():
        found = rows(
            connection,
            "select (payload ->> 'id')::int = 5, status, attempts, count(*) from rota.jobs "
            "where job_type = %s group by 1, 2, 3 order by 1",
            name,
        )
        assert found == [(False, "succeeded", 1, 7), (True, status, 1, 1)], name
        assert (len(calls[name]), [5] in calls[name]) == (7, True), name


@rule("M33", "M42")
def test_a_job_with_one_attempt_is_called_once_also_after_an_error_of_all(
    database: str, connection: Connection
) -> None:
    index = Index()
    index.fail_with(ValueError("a bad doc"), 3)
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


@rule("M41", "M43")
def test_an_outage_or_answers_that_do_not_fit_fail_each_job_of_one_call(
    database: str, connection: Connection
) -> None:
    answers: dict[str, tuple[Any, str]] = {
        "away": (ConnectionError("the index is away"), "ConnectionError"),
        "too few": ([None], "TypeError"),
        "no list": ({"ok": 3}, "TypeError"),
    }
    jobs = rota.Jobs()
    calls: list[str] = []

    def declare(name: str, answer: Any) -> Any:
        def take(docs: list[Doc]) -> Any:
            calls.append(name)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return jobs.job(name, chunk=10, retry=rota.Fixed("1h"))(take)

    types = [declare(name, answer) for name, (answer, _) in answers.items()]
    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([job_type.new(Doc(at)) for job_type in types for at in range(3)])
        app.drain(concurrency=20)
    assert sorted(calls) == sorted(answers), "none of them is the fault of a job"
    found = (
        "select job_type, status, error_type, attempts, count(*) from rota.job group by 1, 2, 3, 4"
    )
    assert {name: rest for name, *rest in rows(connection, found)} == {
        name: ["failed", error, 1, 3] for name, (_, error) in answers.items()
    }


@rule("M42")
def test_the_last_attempt_of_a_job_is_a_call_of_its_own(
    database: str, connection: Connection
) -> None:
    index = Index(max_attempts=2, retry=rota.Fixed("1s"))
    index.fail_with(TimeoutError("4 takes for ever"), 4)
    with closing(make_app(database, index)) as app:
        put_docs(app, index, 10)
        app.drain(concurrency=20)
        assert set(states(connection).values()) == {("failed", 1)}
        run_again(connection)
        app.drain(concurrency=20)
    found = states(connection)
    assert found.pop(4) == ("dead", 2)
    assert set(found.values()) == {("succeeded", 2)}
    assert index.sizes == [10] + [1] * 10


@rule("M60")
def test_the_jobs_of_one_call_are_of_one_lane(database: str) -> None:
    jobs = rota.Jobs()
    calls: list[tuple[int, set[str | None]]] = []

    @jobs.job("laned", chunk=10, ordered=rota.Ordered(capacity=5), takes_context=True)
    def laned(ctx: rota.Context, docs: list[Doc]) -> None:
        assert [item.job.payload["id"] for item in ctx.items] == [doc.id for doc in docs]
        calls.append((len(docs), {item.job.group_key for item in ctx.items}))

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many(
            [laned.new(Doc(at)).using(group_key=f"lane {at % 3}") for at in range(30)]
            + [laned.new(Doc(at)) for at in range(30, 50)]
        )
        assert app.drain(concurrency=10).succeeded == 50
    assert all(len(lanes) == 1 for _, lanes in calls)
    assert max(size for size, lanes in calls if lanes == {None}) > 5
    assert 1 < max(size for size, lanes in calls if lanes != {None}) <= 5


# How long a job waits for others


@rule("M72", "M83")
async def test_a_job_waits_for_others_until_the_call_is_full_or_its_worker_goes_down(
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
        await hand.heard(JobClaimed, 4)
    assert index.calls == [[1, 2, 3]]
    left = "select payload ->> 'id', status, attempts, losses from rota.job"
    assert rows(connection, left) == [("4", "queued", 0, None)]


@rule("M72", "M31")
def test_a_job_waits_for_others_as_long_as_it_can_and_then_runs(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    calls: list[list[int]] = []
    types: dict[str, tuple[str, JobOptions, float]] = {
        "longer than for a slot": ("1300ms", {}, 1.3),
        "half of its lease": ("10s", {"lease": "2s"}, 1.0),
        "less than its expiry": ("10s", {"expires": "3s"}, 1.5),
    }

    def take(docs: list[Doc]) -> None:
        calls.append([doc.id for doc in docs])

    with closing(rota.App(database, jobs=[jobs])) as app:
        for name, (wait, options, _) in types.items():
            made = jobs.job(name, chunk=rota.Chunk(5, wait=wait), **options)(take)
            app.enqueue_many([made.new(Doc(at)) for at in range(3)])
        assert app.drain().succeeded == 9
    assert calls == [[0, 1, 2]] * 3
    waited = "select job_type, max(claims), min(started_at - created_at) from rota.job_history"
    for name, claims, waited_for in rows(connection, f"{waited} group by 1"):
        assert (claims, waited_for.total_seconds() >= types[name][2]) == (1, True), name


# What becomes of one job of a call, and of all


@rule("M32", "M42", "M87")
async def test_what_is_said_of_a_cancelled_job_is_dropped_and_the_call_goes_on(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    go = asyncio.Event()
    seen: list[str | None] = []
    calls: list[list[int]] = []

    @jobs.job("index", chunk=10, takes_context=True)
    async def index(ctx: rota.Context, docs: list[Doc]) -> list[int]:
        calls.append([doc.id for doc in docs])
        await go.wait()
        seen.extend(item.cancelled for item in ctx.items)
        if docs[0].id == 10:
            raise rota.Dead("no such doc")
        return [doc.id for doc in docs]

    async with Hand(database, jobs) as hand:
        for ids, bad in (((0, 1, 2), 1), ((10, 11), 10)):
            go.clear()
            calls.clear()
            with connection.transaction():
                made = {id_: put(connection, "index", id=id_) for id_ in ids}
            await aeventually(lambda: calls)
            connection.execute("select rota.job_cancel(%s, 'deleted')", [[made[bad]]])
            attempt = hand.worker.attempts[made[bad]]
            await aeventually(partial(getattr, attempt, "stop_outcome"))
            go.set()
            await hand.heard(JobCancelled, job=made[bad])
            for id_ in set(ids) - {bad}:
                await hand.heard(JobSucceeded, job=made[id_])
    assert seen[:3] == [None, "it was cancelled: deleted", None]
    assert calls == [[10, 11], [11]], "the error may have been that of the cancelled one"
    assert states(connection) == {
        0: ("succeeded", 1),
        1: ("cancelled", 1),
        2: ("succeeded", 1),
        10: ("cancelled", 1),
        11: ("succeeded", 1),
    }


@rule("M35")
async def test_a_timeout_is_that_of_the_call_and_charges_each_of_its_jobs(
    database: str, connection: Connection
) -> None:
    waiting = Waiting(timeout="200ms")
    async with Hand(database, waiting.jobs) as hand:
        await waiting.begun(connection, hand, 3)
        await hand.heard(JobFailed, 3)
    assert waiting.why == ["it ran longer than its timeout of 0.2 s"]
    assert rows(connection, "select distinct status, attempts, error_type from rota.job") == [
        ("failed", 1, "rota.errors.AttemptTimeout")
    ]


@rule("M83", "M33")
async def test_jobs_of_a_call_that_is_stopped_with_its_worker_come_back_uncharged(
    database: str, connection: Connection
) -> None:
    waiting = Waiting()
    async with Hand(database, waiting.jobs, grace_s=0.1) as hand:
        await waiting.begun(connection, hand, 3)
    assert waiting.why == ["the worker is going down"]
    left = "select status, attempts, losses from rota.job"
    assert rows(connection, left) == [("queued", 0, 1)] * 3


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
        await aeventually(lambda: len(begun) == 3)
    assert states(connection) == {0: ("succeeded", 1), 1: ("queued", 0), 2: ("queued", 0)}


@rule("M32", "M87")
async def test_a_job_that_its_worker_has_lost_is_not_finished_and_without_jobs_a_call_is_stopped(
    database: str, connection: Connection
) -> None:
    waiting = Waiting(on_lost="dead")
    async with Hand(database, waiting.jobs, lease_s=3) as hand:
        lost, *others = await waiting.begun(connection, hand, 3)
        recorded = "select count(*) from rota.job where start_recorded"
        assert value(connection, recorded) == 3, "before the one call"
        connection.execute("update rota.job set claims = claims + 1 where id = %s", [lost])
        attempt = hand.worker.attempts[lost]
        await aeventually(lambda: attempt.is_lost)
        waiting.go.set()
        await hand.heard(LeaseLost, job=lost)
        await hand.heard(JobSucceeded, 2)
        assert waiting.why == [None]
        assert rows(connection, "select id, status from rota.job") == [(lost, "running")]
        done = rows(connection, "select id from rota.job_history order by id")
        assert done == [(id_,) for id_ in others]
        waiting.go.clear()
        waiting.calls.clear()
        made = await waiting.begun(connection, hand, 2)
        connection.execute("select rota.job_cancel(%s, 'not wanted')", [made])
        await hand.heard(JobCancelled, 2)
    assert waiting.why == [None, "all of its jobs were cancelled or lost"]


# Effects, steps, transactions


@rule("M52")
def test_effects_steps_and_progress_belong_to_each_job(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    sent: list[int] = []
    noted: list[int] = []
    failing = [True]

    def note(doc: int) -> str:
        noted.append(doc)
        return str(doc)

    @jobs.job("mails", chunk=10, takes_context=True, retry=rota.Fixed("1s"))
    def mails(ctx: rota.Context, docs: list[Doc]) -> list[Any]:
        said: list[str] = []
        for item, doc in zip(ctx.items, docs, strict=True):
            item.progress(1, 2)
            said.append(item.step("note", note, doc.id))
            with item.effect(f"mail:{doc.id}") as effect:
                if not effect.done:
                    sent.append(doc.id)
                    effect.result = f"id-{doc.id}"
            if doc.id == 2 and failing.pop():
                raise ConnectionError("the server has gone")
        return said

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([mails.new(Doc(at)) for at in range(4)])
        app.drain()
        assert sent == noted == [0, 1, 2]
        run_again(connection)
        failing.append(False)
        app.drain()
        assert {job.payload["id"]: job.result for job in app.find(status="succeeded")} == {
            at: str(at) for at in range(4)
        }
    assert sorted(sent) == sorted(noted) == [0, 1, 2, 3]


@rule("M52")
def test_an_effect_that_a_failed_call_left_open_is_not_done_again(
    database: str, connection: Connection
) -> None:
    jobs = rota.Jobs()
    sent: list[int] = []
    made: list[int] = []

    @jobs.job("mails", chunk=10, takes_context=True)
    def mails(ctx: rota.Context, docs: list[Doc]) -> None:
        for item, doc in zip(ctx.items, docs, strict=True):
            item.step("make", made.append, doc.id)
            with item.effect(f"mail:{doc.id}") as effect:
                if not effect.done:
                    sent.append(doc.id)
                    if doc.id == 2:
                        raise ValueError("was it sent?")

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([mails.new(Doc(at)) for at in range(5)])
        app.drain()
    assert sorted(sent) == sorted(made) == [0, 1, 2, 3, 4]
    found = states(connection)
    assert found.pop(2) == ("dead", 1)
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
        connection.execute("select rota.worker_effect_begin(%s, 1, 'mail:2')", [other.id])
        app.enqueue_many([mails.new(Doc(at)) for at in range(5)])
        app.drain()
    found = states(connection)
    assert (found.pop(2), found.pop(9)) == (("queued", 0), ("running", 1))
    assert set(found.values()) == {("succeeded", 1)}


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
    assert ["ctx.items[i]" in text for text in said] == [True] * 5
    assert around == [(made[0].id, 3)]


# Breakers, suspects, waits


@rule("M62")
def test_jobs_of_one_call_count_one_by_one_in_a_rate_limit(
    database: str, connection: Connection
) -> None:
    index = Index(rate_limit=rota.RateLimit("api", 5, per="1h", burst=5))
    with closing(make_app(database, index)) as app:
        app.sync()
        put_docs(app, index, 20)
        app.drain()
    assert sum(index.sizes) == 5
    assert value(connection, "select count(*) from rota.job where waits_for = 'limit api'") == 15


@rule("M63")
async def test_a_failed_call_opens_a_breaker_and_one_trial_closes_it(
    database: str, connection: Connection
) -> None:
    index = Index(breaker=rota.Breaker("api", failures=5, open_for="10m"))
    index.fail_with(ConnectionError("away"))
    insert = (
        "insert into rota.job (job_type, payload) "
        "select 'async', jsonb_build_object('id', n) from generate_series(1, 10) n"
    )
    async with Hand(database, index.jobs) as hand:
        connection.execute(insert)
        await hand.heard(BreakerOpened)
        [first] = index.sizes
        connection.execute(insert)
        waiting = "select count(*) from rota.job where waits_for = 'breaker api'"
        await aeventually(lambda: value(connection, waiting) == 20 - first)
        assert index.sizes == [first]
        index.answer = lambda ids: None
        connection.execute("update rota.breaker set open_until = rota.clock()")
        connection.execute("update rota.job set run_at = rota.clock()")
        await hand.heard(JobSucceeded, 20)
    assert index.sizes[1] == 1, "one job tries"
    assert value(connection, "select state from rota.breaker") == "closed"


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
        await hand.heard(JobSucceeded, 15)  # the suspects do not wait for others
    assert sorted(map(sorted, index.calls)) == [[0, 1, 2], [*range(3, 15)]]


@rule("M11")
def test_a_job_of_a_call_waits_for_others_by_itself_and_goes_on_with_their_results(
    database: str,
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
                answers.append([result.result for result in item.results.values()])
        return answers

    with closing(rota.App(database, jobs=[jobs])) as app:
        app.enqueue_many([whole.new(Doc(at)) for at in range(3)])
        assert app.drain().succeeded == 5
        results = {job.payload["id"]: job.result for job in app.find(job_type="whole")}
    assert results == {0: [], 1: [2], 2: [4]}
    assert calls[0] == [0, 1, 2]
    assert sorted(at for ids in calls[1:] for at in ids) == [1, 2]


@pytest.mark.nightly
@rule("M33", "M42")
def test_jobs_that_were_lost_with_their_worker_come_back_in_smaller_calls(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    """The one that kills its worker is soon alone, and only that one is charged."""
    count, poison = 20, "3"
    for at in range(count):
        put(connection, "many", id=at, kills=str(at) == poison)
    processes: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        expire_leases(connection)
        processes.append(WorkerProcess(tmp_path, database, drain=True))
        return processes[-1]

    try:
        live = "select count(*) from rota.job where status <> 'dead'"
        work_until(start, lambda: len(processes) > 1 and value(connection, live) == 0)
    finally:
        for process in processes:
            process.kill()
    calls = [what.split()[1:] for _, what in notes(tmp_path / "notes") if what.startswith("call ")]
    with_poison = [len(ids) for ids in calls if poison in ids]
    assert with_poison[0] > 2
    assert all(size <= max(1, 10 // 4**lost) for lost, size in enumerate(with_poison))
    assert with_poison[-3:] == [1, 1, 1]
    assert max(map(len, calls[1:])) > 1
    done = "select status, max(attempts), count(*) from rota.job_history group by 1"
    assert rows(connection, "select payload ->> 'id', attempts from rota.job") == [(poison, 3)]
    assert rows(connection, done) == [("succeeded", 1, count - 1)]
