"""Jobs that wait for others: when they go on, and what they are told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.model.retry import DEFAULT_RETRY
from rota.model.settle import RetryRules, Transition, settle
from rota.store import ops
from rota.testing import Harness
from tests.store.work import SUCCEED, Hand, insert, waits
from tests.support.rules import rule
from tests.support.wait import eventually

Connection = psycopg.Connection[TupleRow]
NOTES: list[Any] = []


@pytest.fixture
def shop(app: rota.App) -> rota.App:
    """An App with the types `page` (dead at once if n < 0), and `report`, which waits for pages and
    returns what came of them."""
    NOTES.clear()

    @app.job("page", max_attempts=1)
    async def page(n: int) -> int:
        if n < 0:
            raise ValueError(f"page {n}")
        return n * 10

    @app.job("report", takes_context=True)
    async def report(ctx: rota.Context, pages: list[int], on_failure: str = "continue") -> Any:
        NOTES.append((ctx.job.attempts, sorted(ctx.results)))
        if not ctx.results:
            raise rota.WaitFor(pages, on_failure=on_failure)  # type: ignore[arg-type]
        told = (ctx.results[id_] for id_ in pages)
        return [[one.outcome, one.result, one.error] for one in told]

    app.sync()
    return app


def pages(app: rota.App, *numbers: int, **options: Any) -> list[int]:
    return [app.enqueue(app.types["page"].new(n).using(**options)).id for n in numbers]


def report(app: rota.App, ids: list[int], **arguments: Any) -> int:
    return app.enqueue(app.types["report"].new(ids, **arguments)).id


def look(app: rota.App, id_: int) -> rota.Job:
    job = app.get(id_)
    assert job is not None
    return job


@rule("M11")
def test_a_job_waits_for_others_uncharged_and_goes_on_with_their_results(shop: rota.App) -> None:
    waiter = report(shop, pages(shop, 1, 2, delay="1h"))
    shop.drain()
    job = look(shop, waiter)
    assert (job.status, job.attempts, job.waits_for) == ("waiting", 0, f"job {waiter - 1}")
    assert job.locked_by is None
    shop.retry(waiter - 1)
    shop.drain()
    assert look(shop, waiter).waits_for == f"job {waiter - 2}"
    shop.retry(waiter - 2)
    shop.drain()
    job = look(shop, waiter)
    assert (job.status, job.attempts) == ("succeeded", 1)
    assert job.result == [["succeeded", 10, None], ["succeeded", 20, None]]
    assert [(1, []), (1, [waiter - 2, waiter - 1])] == NOTES


@rule("M11")
def test_a_dead_job_has_ended_and_the_one_that_waits_is_told_why(shop: rota.App) -> None:
    waiter = report(shop, pages(shop, 1, -1))
    shop.drain()
    assert look(shop, waiter).result == [["succeeded", 10, None], ["dead", None, "page -1"]]


@rule("M11")
def test_a_job_that_is_told_goes_on_after_a_cancel_an_expiry_and_a_job_that_is_gone(
    shop: rota.App, connection: Connection
) -> None:
    first, second, third = ids = pages(shop, 1, 2, 3, delay="1h", expires="2h")
    waiter = report(shop, ids)
    shop.drain()
    shop.cancel(first, why="not needed")
    connection.execute(
        "update rota.job set run_at = now() - interval '2 h', expires_at = now() - interval '1 h' "
        "where id = %s",
        [second],
    )
    connection.execute("delete from rota.job where id = %s", [third])
    shop.drain()
    told = look(shop, waiter).result
    assert [one[0] for one in told] == ["cancelled", "dead", "gone"]
    assert told[0][2] == "not needed"
    assert "not started before" in told[1][2]


@rule("M11")
def test_a_type_that_keeps_failures_only_is_gone_after_a_success(shop: rota.App) -> None:
    @shop.job("quiet", history="failures")
    async def quiet() -> int:
        return 7

    waiter = report(shop, [shop.enqueue(quiet.new()).id])
    shop.drain()
    assert look(shop, waiter).result == [["gone", None, None]]


@rule("M11", "M44")
def test_a_job_that_was_requeued_is_waited_for_as_the_new_one(shop: rota.App) -> None:
    [page] = pages(shop, -1)
    shop.drain()
    again = shop.retry(page, payload={"n": 4}).id
    shop.jobs.reschedule(again, delay="1h")
    waiter = report(shop, [page])
    shop.drain()
    assert look(shop, waiter).waits_for == f"job {again}"
    shop.retry(again)
    shop.drain()
    assert look(shop, waiter).result == [["succeeded", 40, None]]


@rule("M11", "M44")
def test_a_job_may_wait_until_dead_ones_are_requeued(shop: rota.App) -> None:
    page, other = pages(shop, -1, 2)
    waiter = report(shop, [page, other], on_failure="wait")
    shop.drain()
    shop.drain()
    assert (look(shop, waiter).status, look(shop, waiter).waits_for) == ("waiting", f"job {page}")
    shop.retry(page, payload={"n": 3})
    shop.drain()
    assert look(shop, waiter).result == [["succeeded", 30, None], ["succeeded", 20, None]]


@rule("M11", "M44")
def test_a_job_that_waits_for_a_dead_one_goes_on_when_a_person_ignores_that(shop: rota.App) -> None:
    [page] = pages(shop, -1)
    waiter = report(shop, [page], on_failure="wait")
    shop.drain()
    shop.jobs.archive(page, why="not needed")
    shop.drain()
    assert look(shop, waiter).result == [["archived", None, "page -1"]]


@rule("M11")
def test_a_job_that_runs_too_early_is_told_nothing_and_waits_again(shop: rota.App) -> None:
    first, second = pages(shop, 1), pages(shop, 2, delay="1h")
    waiter = report(shop, [*first, *second])
    shop.drain()
    shop.jobs.reschedule(waiter, delay="0s")
    shop.drain()
    assert NOTES == [(1, []), (1, [])]
    assert look(shop, waiter).status == "waiting"
    shop.retry(second[0])
    shop.drain()
    assert look(shop, waiter).status == "succeeded"


@rule("M11")
def test_a_job_may_wait_more_than_once_and_keeps_what_it_was_told(shop: rota.App) -> None:
    @shop.job("chain", takes_context=True)
    async def chain(ctx: rota.Context) -> Any:
        ids = []
        for n in range(3):
            id_ = await ctx.step(f"page {n}", enqueue_page, n)
            ids.append(id_)
            if id_ not in ctx.results:
                raise rota.WaitFor(id_)
        return [ctx.results[id_].result for id_ in ids]

    async def enqueue_page(n: int) -> int:
        return (await shop.aenqueue(shop.types["page"].new(n))).id

    id_ = shop.enqueue(chain.new()).id
    shop.drain()
    assert look(shop, id_).result == [0, 10, 20]
    assert shop.find(job_type="page", status="succeeded").__len__() == 3


@rule("M11")
@pytest.mark.parametrize(
    ("wait", "says"),
    [
        (lambda ctx: rota.WaitFor(list(ctx.results)), "read ctx.results first"),
        (lambda ctx: rota.WaitFor(ctx.job), "waits for itself"),
        (lambda ctx: rota.WaitFor(range(5, 1_005)), "at most 1,000 jobs in all"),
    ],
    ids=["told before", "itself", "too many"],
)
def test_a_wait_that_could_never_end_is_a_fatal_error_of_the_handler(
    shop: rota.App, wait: Any, says: str
) -> None:
    [page] = pages(shop, 1)

    @shop.job("wrong", takes_context=True)
    def wrong(ctx: rota.Context) -> None:
        raise wait(ctx) if ctx.results else rota.WaitFor(page)

    id_ = shop.enqueue(wrong.new()).id
    shop.drain()
    job = look(shop, id_)
    assert (job.status, job.verdict, job.verdict_rule) == ("dead", "fatal", "raised WaitFor")
    assert job.error_type == "rota.errors.UsageError"
    assert says in str(job.last_error)


@rule("M11")
def test_a_waiting_job_can_be_cancelled_and_discarded_at_once_and_is_not_retried(
    shop: rota.App,
) -> None:
    ids = pages(shop, 1, delay="1h")
    first, second, third = (report(shop, ids) for _ in range(3))
    shop.drain()
    shop.cancel(first)
    assert look(shop, first).status == "cancelled"
    shop.jobs.discard(second)
    assert (look(shop, second).status, look(shop, second).waits_for) == ("dead", None)
    with pytest.raises(rota.WrongStatus):
        shop.retry(third)
    with Harness(shop) as bench, pytest.raises(rota.UsageError, match=f"waits for job {ids[0]} to"):
        bench.perform(third)


@rule("M36")
def test_a_job_that_waits_too_long_expires(shop: rota.App, connection: Connection) -> None:
    [page] = pages(shop, 1, delay="1h")
    waiter = shop.enqueue(shop.types["report"].new([page]).using(expires="1h")).id
    shop.drain()
    connection.execute(
        "update rota.job set expires_at = now() - interval '1 s' where id = %s", [waiter]
    )
    shop.drain()
    job = look(shop, waiter)
    assert (job.status, job.error_type) == ("dead", "Expired")
    assert f"it waited for job {page} to end" in str(job.last_error)


@rule("M44")
def test_a_requeued_job_keeps_what_it_was_told_and_one_that_is_run_again_does_not(
    shop: rota.App,
) -> None:
    [page] = pages(shop, 1)

    @shop.job("once", takes_context=True, max_attempts=1)
    def once(ctx: rota.Context) -> None:
        NOTES.append(sorted(ctx.results))
        if not ctx.results:
            raise rota.WaitFor(page)
        raise ValueError("too bad")

    id_ = shop.enqueue(once.new()).id
    shop.drain()
    shop.retry(id_)
    shop.drain()
    told, NOTES[:] = NOTES[:], []
    assert told == [[], [page], [page]]
    shop.retry(id_, again=True)
    shop.drain()
    shop.retry(shop.find(status="dead")[0].id, fresh=True)
    shop.drain()
    told = NOTES[:]
    assert told == [[], [page], [], [page]]


def leave(job: rota.Job, *awaited: int) -> tuple[rota.Job, Transition]:
    """A job, and what is written of it when it begins to wait for others."""
    return job, settle(job, rota.WaitFor(awaited), RetryRules(1, DEFAULT_RETRY))


def sweep(hand: Hand) -> ops.WaitSweep:
    return hand.run(ops.sweep_waits("", 100))


def status(connection: Connection, id_: int) -> tuple[str, str | None]:
    [row] = connection.execute("select status, waits_for from rota.job where id = %s", [id_])
    return row[0], row[1]


SLOW = """
alter function rota.wait_next(jsonb) rename to wait_next_at_once;
create function rota.wait_next(p_meta jsonb) returns bigint language plpgsql as $$
declare
  v_next bigint := rota.wait_next_at_once(p_meta);
begin
  perform pg_advisory_xact_lock_shared(42);
  return v_next;
end $$;
select pg_advisory_lock(42);
"""
"""Now an answer takes as long as the session that ran this wants it to."""


@rule("M11")
def test_a_sweep_decides_on_the_wait_that_it_has_locked_not_on_the_one_it_has_seen(
    connection: Connection, second: Connection
) -> None:
    hand, sweeper = Hand(connection), Hand(second)
    done, waiter = insert(connection, 2)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), leave(jobs[waiter], done))
    [live] = insert(connection)
    connection.execute(SLOW)
    with ThreadPoolExecutor(1) as pool:
        sweeping = pool.submit(sweep, sweeper)
        eventually(waits(connection, second), what="the sweep has seen the first wait")
        connection.execute("update rota.job set status = 'queued', waits_for = null")
        [again] = [job for job in hand.claim().jobs if job.id == waiter]
        hand.settle(leave(again, live, done))
        connection.execute("select pg_advisory_unlock(42)")
        assert sweeping.result(30).released == 0
    assert status(connection, waiter) == ("waiting", f"job {live}")


@rule("M11")
def test_two_sessions_do_not_sweep_side_by_side(connection: Connection, second: Connection) -> None:
    done, waiter = insert(connection, 2)
    hand, sweeper = Hand(connection), Hand(second)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), leave(jobs[waiter], done))
    with connection.transaction():
        assert sweep(hand).released == 1
        assert sweep(sweeper).is_busy
    assert (sweep(sweeper).waits, status(connection, waiter)) == (0, ("queued", None))


@rule("M11")
def test_a_sweep_passes_a_job_that_is_locked_and_reads_on_from_where_it_stopped(
    connection: Connection, second: Connection
) -> None:
    hand = Hand(connection)
    done, *waiters = insert(connection, 6)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), *(leave(jobs[id_], done) for id_ in waiters))
    [live] = insert(connection)
    connection.execute(
        "update rota.job set waits_for = 'job ' || %s, meta = jsonb_set(meta, "
        "'{rota.waits,jobs}', to_jsonb(array[%s::bigint])) where id = %s",
        [live, live, waiters[4]],
    )
    with second.transaction():
        second.execute("select from rota.job where id = %s for update", [waiters[0]])
        assert hand.run(ops.sweep_waits("", 4)) == ops.WaitSweep(f"job {done}", 4, 3, False)
        assert hand.run(ops.sweep_waits(f"job {done}", 4)) == ops.WaitSweep(None, 1, 0, False)
    assert sweep(hand) == ops.WaitSweep(None, 2, 1, False)
    assert [status(connection, id_)[0] for id_ in waiters] == [*["queued"] * 4, "waiting"]


@rule("M15")
def test_a_trigger_that_refuses_one_job_holds_up_no_other(connection: Connection) -> None:
    hand = Hand(connection)
    done, first, second = insert(connection, 3)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), leave(jobs[first], done), leave(jobs[second], done))
    connection.execute(
        "create function no() returns trigger language plpgsql as "
        "$$ begin raise exception 'not this one'; end $$"
    )
    connection.execute(
        "create trigger no before update on rota.job for each row "
        f"when (old.id = {first}) execute function no()"
    )
    assert sweep(hand).released == 1
    assert status(connection, first)[0] == "waiting"
    assert status(connection, second)[0] == "queued"


@rule("M12")
def test_the_ids_of_awaited_jobs_do_not_count_towards_the_limit_of_meta(
    connection: Connection,
) -> None:
    hand = Hand(connection)
    connection.execute(
        "insert into rota.job (job_type, queue, priority, meta) values "
        "('t', 'default', 0, jsonb_build_object('large', repeat('x', 65500)))"
    )
    [job] = hand.claim().jobs
    hand.settle(leave(job, *range(2**62, 2**62 + 1_000)))
    assert status(connection, job.id)[0] == "waiting"


@rule("M11")
@pytest.mark.parametrize("made_up", ['"x"', '{"jobs": ["x", 1.5]}', '{"jobs": 1}', "null"])
def test_a_meta_that_a_producer_made_up_stops_no_job(
    shop: rota.App, connection: Connection, made_up: str
) -> None:
    id_ = report(shop, pages(shop, 1))
    connection.execute(
        "update rota.job set meta = jsonb_build_object('rota.waits', %s::jsonb) where id = %s",
        [made_up, id_],
    )
    shop.drain()
    assert look(shop, id_).status == "succeeded"


@rule("M11")
def test_a_job_that_is_given_the_meta_of_another_is_not_told_of_that_ones_jobs(
    shop: rota.App,
) -> None:
    @shop.job("tells", takes_context=True)
    async def tells(ctx: rota.Context, again: bool = True) -> None:
        NOTES.append((ctx.ended_batch is not None, sorted(ctx.results)))
        if again and not ctx.results:
            raise rota.WaitFor(await shop.aenqueue(shop.types["page"].new(1)))
        if again:
            await shop.aenqueue(tells.new(again=False).using(meta=ctx.job.meta))

    ended = shop.batch([], then=tells.new().using(meta={"tenant": "x"}))
    shop.drain()
    assert [bool(told) for _, told in NOTES] == [False, True, False]
    assert [of_batch for of_batch, _ in NOTES] == [True, True, False]
    then = shop.batches.get(ended.id)
    assert then.then_job is not None
    last = max(shop.find(job_type="tells"), key=lambda job: job.id)
    assert (last.id > then.then_job, last.meta) == (True, {"tenant": "x"})


@rule("M11", "M50")
def test_a_drain_of_a_bench_goes_on_with_jobs_that_wait(shop: rota.App) -> None:
    waiter = report(shop, pages(shop, 1, 2))
    with Harness(shop) as bench:
        drained = bench.drain()
    assert len(drained.performed) == 4
    assert look(shop, waiter).result == [["succeeded", 10, None], ["succeeded", 20, None]]


@rule("M11", "M50")
def test_a_drain_in_the_transaction_of_a_test_goes_on_with_them_too(
    shop: rota.App, connection: Connection
) -> None:
    with connection.transaction(force_rollback=True), Harness(shop, connection=connection) as bench:
        waiter = report(shop, pages(shop, 1, -2), on_failure="continue")
        bench.drain()
        assert look(shop, waiter).result == [["succeeded", 10, None], ["dead", None, "page -2"]]


@rule("M2", "M13")
def test_a_drain_of_plain_jobs_looks_once_and_reads_no_results(
    database: str, connection: Connection
) -> None:
    connection.execute(
        "do $$ begin execute format('alter database %I set track_functions = ''all''', "
        "current_database()); end $$"
    )
    app = rota.App(database)

    @app.job("plain")
    async def plain() -> int:
        return 1

    app.sync()
    app.enqueue_many([plain.new() for _ in range(300)])
    assert app.drain().succeeded == 300
    app.close()
    called = "select funcname, calls from pg_stat_user_functions where funcname = any (%s)"
    names = ["waits_sweep", "waits_note", "results_of", "job_end", "job_finish"]

    def count() -> dict[str, int]:
        connection.execute("select pg_stat_clear_snapshot()")
        return dict(connection.execute(called, [names]).fetchall())

    eventually(lambda: "job_finish" in count(), what="the server has counted")
    counted = count()
    assert counted.pop("job_finish") > 0
    assert counted == {"waits_sweep": 1}


@rule("M11")
def test_a_pass_with_too_much_to_decide_leaves_the_rest_to_the_next(
    connection: Connection,
) -> None:
    hand = Hand(connection)
    done, *waiters = insert(connection, 6)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), *(leave(jobs[id_], done) for id_ in waiters))
    connection.execute(SLOW.replace("pg_advisory_xact_lock_shared(42)", "pg_sleep(0.3)"))
    released = [sweep(hand).released for _ in range(5)]
    assert sum(released) == 5
    assert 1 <= max(released) < 5


def stuck(connection: Connection) -> list[tuple[int, str]]:
    """The jobs that can never go on by themselves, with why."""
    asked = "select id, rota.wait_stuck(id) from rota.job order by id"
    return [(id_, why) for id_, why in connection.execute(asked) if why is not None]


@rule("M3", "M11")
@pytest.mark.parametrize("capacity", [1, 2])
def test_jobs_that_fill_a_lane_and_wait_for_jobs_behind_them_are_named(
    shop: rota.App, connection: Connection, capacity: int
) -> None:
    lane: Any = {"group_key": "g", "group_capacity": capacity}
    behind = pages(shop, *range(capacity), delay="1h", **lane)
    waiters = [
        shop.enqueue(shop.types["report"].new([page]).using(**lane)).id for page in reversed(behind)
    ]
    shop.drain()
    assert [look(shop, id_).status for id_ in waiters] == ["waiting"] * capacity
    assert stuck(connection) == [(id_, "lane") for id_ in waiters]
    shop.cancel(behind[0])
    for page in behind[1:]:
        shop.retry(page)
    shop.drain()
    assert {look(shop, id_).status for id_ in waiters} == {"succeeded"}


@rule("M3", "M11")
def test_a_lane_with_a_holder_that_will_end_is_not_stuck(
    shop: rota.App, connection: Connection
) -> None:
    lane: Any = {"group_key": "g", "group_capacity": 2}
    [elsewhere] = pages(shop, 1, delay="1h")
    [behind] = pages(shop, 2, delay="1h", **lane)
    for page in (behind, elsewhere):
        shop.enqueue(shop.types["report"].new([page]).using(**lane))
    shop.drain()
    assert [job.id for job in shop.find(status="waiting")] == [elsewhere + 3, elsewhere + 2]
    assert stuck(connection) == []
