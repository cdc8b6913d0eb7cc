"""`rota run ID`: one job, here, in the foreground."""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.app import App
from rota.cli.flags import argument, flag
from rota.cli.output import clean, print_json, print_text
from rota.cli.target import AppOption, JsonOption, need_app
from rota.client.base import check_by
from rota.declare.config import WorkerConfig
from rota.declare.secret import find_keys_problem
from rota.errors import ConfigurationError, UnknownJobType, UsageError
from rota.model.job import Job, Status
from rota.model.outcome import End, Expired, HandedBack, Interrupted, Outcome, Succeeded
from rota.model.scrub import scrub
from rota.runtime.loop import run_alone
from rota.store import migrate
from rota.worker.summary import find_error

if TYPE_CHECKING:  # no other command needs a worker, and its imports take a twentieth of a command
    from rota.worker.attempt import Attempt
    from rota.worker.by_hand import ByHand, MainThread
    from rota.worker.worker import Worker

GRACE_S = 0.0
"""Ctrl-C stops the handler at once."""


def run(
    id: int = argument("ID", "The job.", min=1),
    record: bool = flag(
        "--record", "Record the outcome, as a worker does. Default: return it to the queue."
    ),
    *,
    app: AppOption = None,
    as_json: JsonOption = False,
) -> int:
    """Run one queued, failed or dead job here, in the foreground, whatever its run_at.

    A plain handler runs in the main thread, so breakpoint() and Ctrl-C work. There is no timeout,
    and the lease is renewed meanwhile. When the handler ends, however it ends, the job returns to
    the queue: no attempt is used, and it is due as before. --record records its outcome instead, as
    a worker does. Effects and steps are recorded in both cases, so a later attempt does not repeat
    them. SIGTERM and SIGHUP end the handler as Ctrl-C does. If this command is killed, its lease
    expires as that of any worker.

    A dead job stays as it is: a copy of it runs, which no worker takes, and which is cancelled at
    the end. If this command is killed, the copy becomes dead. It has no key, no group and no
    schedule, but the steps of the dead job: steps that are done are not repeated, and steps
    that the copy does are recorded.

    Exit status: 0 if the handler succeeded, otherwise 1.
    """
    from rota.worker.by_hand import ByHand, MainThread, pick_one  # noqa: PLC0415

    found = need_app(app)
    job = found.get(id)
    job_type = found._type_of(job.job_type)
    if job_type is None:
        raise UnknownJobType(job.job_type, advice="; this App cannot run the job")
    problem = find_keys_problem()
    if problem is not None and job_type._declaration.codec.secret:
        raise ConfigurationError(f"job {id} has secret arguments: {problem}")
    is_dead = job.status is Status.DEAD
    if is_dead and record:
        raise UsageError(
            f"job {id} is dead: without --record a copy of it runs; to record what comes of it, "
            "retry it, and run the new job"
        )
    here = MainThread()
    hand = ByHand(pick_one(id), record, here, copies_by=check_by(None) if is_dead else None)
    ended = _run_worker(found, hand, here, is_async=job_type._declaration.is_async)
    after = found.get(ended[0][0].job.id if ended else id)
    found.close()
    if not ended:
        typer.echo("interrupted before the handler began; the job is as before", err=True)
        return 1
    end, error = ended[0][1], find_error(ended[0][1])
    if as_json:
        print_json(_describe(end, error, after))
    else:
        _print(job, end, error, after)
    return 0 if isinstance(end, Succeeded) or after.status is Status.SUCCEEDED else 1


def _run_worker(
    app: App, hand: ByHand, here: MainThread, *, is_async: bool
) -> list[tuple[Attempt, End]]:
    """Run the job; return how its attempt ended, nothing if it did not begin. An async handler runs
    on the worker's loop in this thread. For a plain handler the worker runs in another thread and
    this thread serves its call, so no loop runs here, as in a worker."""
    from rota.worker.work import handle_signals  # noqa: PLC0415
    from rota.worker.worker import Worker  # noqa: PLC0415

    running: list[tuple[asyncio.AbstractEventLoop, Worker]] = []

    async def work() -> None:
        spec = app._make_spec(WorkerConfig(slots=1, grace_s=GRACE_S, asks_limits=False))
        worker = Worker(app._database, spec, app._bus, hand=hand)
        running.append((asyncio.get_running_loop(), worker))
        with handle_signals(worker, signals=True):
            await app._database.arun(migrate.check(app.schema, app._declarations.packages))
            await worker.run()

    if is_async:
        run_alone("run", work(), app.aclose)
    else:
        _serve(work, app, here, running)
    return hand.ended


def _serve(
    work: Callable[[], Coroutine[Any, Any, None]],
    app: App,
    here: MainThread,
    running: list[tuple[asyncio.AbstractEventLoop, Worker]],
) -> None:
    with (
        _interrupt_on(signal.SIGTERM, signal.SIGHUP),
        ThreadPoolExecutor(1, thread_name_prefix="rota-worker") as threads,
    ):
        ended = threads.submit(run_alone, "run", work(), app.aclose)
        ended.add_done_callback(lambda _: here.close())
        try:
            here.serve()
        except KeyboardInterrupt:  # while no handler ran
            for loop, worker in running:
                loop.call_soon_threadsafe(worker.stop_now)
    ended.result()  # raises what ended the worker


@contextmanager
def _interrupt_on(*signals: signal.Signals) -> Iterator[None]:
    """Treat signals as Ctrl-C: a closed terminal under a debugger returns the job to the queue."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(job: Job, end: End, error: BaseException | None, after: Job) -> None:
    what = f"job {job.id} {job.job_type}"
    if error is not None and not isinstance(error, Outcome | KeyboardInterrupt):
        typer.echo(scrub("".join(traceback.format_exception(error))), err=True, nl=False)
    print_text(f"{what}: {_say(end, error)}")
    if after.id != job.id:
        print_text(f"{what} is dead, as before; copy {after.id} is {after.status}")
    elif after.status in (Status.QUEUED, Status.FAILED):
        print_text(f"{what} is {after.status}, due at {clean(after.run_at)}")
    else:
        print_text(f"{what} is {after.status}")


def _say(end: End, error: BaseException | None) -> str:
    match end:
        case Succeeded(None):
            return "its handler succeeded"
        case Succeeded(result_json):
            return f"its handler returned {result_json}"
        case HandedBack(why) | Interrupted(why):
            return f"its handler was stopped, or did not begin: {why}"
        case Expired():
            return "its handler did not begin: the job has expired"
    if isinstance(error, KeyboardInterrupt):
        return "its handler was interrupted"
    if isinstance(end, Outcome):  # the handler's, or that of a request to stop
        return f"its outcome is {type(end).__name__}" + (scrub(f": {end}") if str(end) else "")
    return scrub(f"its handler raised {type(error).__name__}: {error}")


def _describe(end: End, error: BaseException | None, after: Job) -> dict[str, Any]:
    result = end.result_json if isinstance(end, Succeeded) else None
    return {
        "id": after.id,
        "succeeded": isinstance(end, Succeeded),
        "result": None if result is None else msgspec.json.decode(result),
        "error_type": None if error is None else type(error).__name__,
        "error": None if error is None else scrub(str(error)),
        "status": after.status.value,
        "run_at": after.run_at,
    }
