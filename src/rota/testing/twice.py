"""Whether a second run of a handler is harmless.

Rota's promise is "at least once", so every handler runs a second time one day. `run_twice` is that
day: `rota.testing.run_twice(welcome.new(42), tables=["app_user"])`.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rota.app import App
from rota.client.base import LIST_MAX
from rota.client.carry import carry_meta
from rota.declare.config import WorkerConfig
from rota.declare.job_type import NewJob
from rota.errors import UsageError
from rota.model.failure import one_line
from rota.model.outcome import Errored, Succeeded
from rota.model.units import plural
from rota.observe.events import Bus
from rota.runtime.loop import run_alone
from rota.store.db import Database
from rota.store.errors import StoreError
from rota.store.ops import EffectRecord
from rota.testing.kills import (
    NOT_THEIRS,
    Place,
    Tables,
    Watcher,
    begin_again,
    count_rows,
    find_obstacle,
    find_stable,
    make_state_query,
    read_tables,
)
from rota.worker.attempt import Attempt
from rota.worker.worker import Worker

ALL_TABLES = "name all tables that it writes"
SHOWN_MAX = 5
"""Most rows of one difference that its message shows."""


def run_twice(new_job: NewJob, *, tables: Iterable[str] = ()) -> None:
    """Run a handler, lose its worker before the success is written, run it again, and compare.

    Both runs are real attempts of a worker in this process, on the database of the App. What the
    first did stays; of its success nothing is written, as if the worker had been killed at that
    moment. After the second run all must be as after the first: the rows of the tables that you
    name, the effects and steps of the job, and the jobs that it enqueued. Nothing else runs
    meanwhile, and the jobs that it enqueued are not run.

    With tables, a handler that commits more than once is also killed after each of its commits (at
    most ten of them), and run again. Each time the rows of these tables are put back, and the jobs
    forgotten that came meanwhile. The end must be as after an undisturbed run, but for columns in
    which each run leaves other values. So name all tables that it writes; a warning says if nothing
    can be told. With `process=True` it is not killed there; nor, lest it deletes what others write,
    if workers of other processes have used the database within the hour.

    A handler that finished its job in its own transaction has no second run.

    Args:
        new_job: the job, as `welcome.new(42)`; its type belongs to an App.
        tables: names of tables in that database, as SQL writes them; up to 100,000 rows each.

    Raises:
        AssertionError: a run did not succeed, or the second one changed something, or left
            something out; with what.
        UsageError: there is no such table, the type belongs to no App, another job has the
            idempotency key, or this is called in a running event loop (await `arun_twice`).
    """
    app = _find_app(new_job)
    run_alone("run_twice", arun_twice(new_job, tables=tables), app.aclose)


async def arun_twice(new_job: NewJob, *, tables: Iterable[str] = ()) -> None:
    """Run a handler twice on the running loop. Arguments and errors are those of `run_twice`."""
    names = [tables] if isinstance(tables, str) else list(tables)
    await _Runs(_find_app(new_job), new_job, names).compare()


class _Runs:
    def __init__(self, app: App, new_job: NewJob, tables: list[str]) -> None:
        self._app = app
        self._new_job = new_job
        self._handler = new_job.job_type._declaration.func
        self._tables = tables
        self._queue = f"run_twice:{secrets.token_hex(8)}"
        self._lost: list[Attempt] = []
        self._unasked: list[str] = []
        self._untold: list[str] = []
        """Why nothing is told of kills between its commits."""

    async def compare(self) -> None:
        """Run it twice, and before that once more for each place at which it is killed."""
        app, database = self._app, self._app._database
        rows = await asyncio.to_thread(read_tables, database, self._tables)
        job = first_job = await self._enqueue()
        is_finished, places = await self._find_places(job)
        if not is_finished and not self._lost:
            raise AssertionError(f"the first run did not succeed: {await _explain(app, job)}")
        before = first = await _look(app, job, self._tables)
        killed: list[tuple[Place, _Seen | str | None]] = []
        try:
            killed = [(at, await self._kill(first_job, rows, at)) for at in places]
            if places:
                await asyncio.to_thread(begin_again, database, first_job, rows)
                job = await self._enqueue()
                is_finished = await self._run(self._lose_success)
                before = await _look(app, job, self._tables)
        except StoreError as error:
            self._untold.append(f"{error.summary}; {ALL_TABLES}")
        if not is_finished:  # otherwise its writes and its success are one
            await self._run_again(job, "the second run")
            unasked = "effect {!r}: its block did not ask effect.done"
            differences = [unasked.format(key) for key in self._unasked]
            differences += before.compare(await _look(app, job, self._tables))
            self._refuse("a second run of {} is not harmless", differences)
        if killed:
            self._judge(rows, first, before, killed)
        if self._untold:
            self._warn("; ".join(self._untold))

    async def _find_places(self, job: int) -> tuple[bool, list[Place]]:
        """Run it for the first time; return whether it finished its job itself, and where it can be
        killed."""
        database, options = self._app._database, self._new_job.job_type._declaration.options
        if not self._tables or options.process is not None:
            return await self._run(self._lose_success), []
        if obstacle := await asyncio.to_thread(find_obstacle, database, self._tables):
            self._untold.append(obstacle)
            return await self._run(self._lose_success), []
        with database.open_connection("testing") as connection:
            query = make_state_query(database.schema, job, self._tables)
            watcher = Watcher(self._handler, connection, query)
            is_finished = await self._run(self._lose_success, watcher)
            if not watcher.visits:
                self._untold.append("none of its lines was seen")
            return is_finished, watcher.list_places()

    async def _kill(self, first_job: int, rows: Tables, place: Place) -> _Seen | str | None:
        """Begin again, kill it at a place, and run it once more; return what there is then, or why
        the next run failed. None: an effect is uncertain, which a person decides."""
        app, database = self._app, self._app._database
        await asyncio.to_thread(begin_again, database, first_job, rows)
        job = await self._enqueue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # what it had open is left behind
            is_finished = await self._run(_kill, Watcher(self._handler, None, "", place))
            gc.collect()
        if not is_finished:
            try:
                await self._run_again(job, "the next run")
            except AssertionError as error:
                is_uncertain = await app.effects.afind(job=job, status="uncertain")
                return None if is_uncertain else str(error)
        return await _look(app, job, self._tables)

    def _judge(
        self,
        rows: Tables,
        first: _Seen,
        again: _Seen,
        killed: Sequence[tuple[Place, _Seen | str | None]],
    ) -> None:
        """Compare what killed runs left with what undisturbed ones did."""
        stable = find_stable(rows, first.tables, again.tables)
        if stable is None or first.jobs != again.jobs:
            why = "it does other things each time, or writes to others"
            return self._untold.append(f"{why}; {ALL_TABLES}")
        effects = first.effects.keys() & again.effects.keys()
        for (file, line, _), after in killed:
            what = f"a run of {{}} that is killed before line {line} of {file} is not made good"
            if isinstance(after, str):
                self._refuse(what, [after])
            elif after is not None:
                self._refuse(what, again.compare_killed(after, stable, effects))
        return None

    def _warn(self, why: str) -> None:
        """Warn at the application's line; last, because as an error it ends the test."""
        frame, level = sys._getframe(), 1
        while frame.f_back and frame.f_code.co_filename.startswith(NOT_THEIRS):
            frame, level = frame.f_back, level + 1
        what = f"run_twice tells nothing of {self._new_job.job_type.name!r} between its commits"
        warnings.warn(f"{what}: {why}", stacklevel=level)

    async def _enqueue(self) -> int:
        with carry_meta(self._app._enqueue_arounds, [self._new_job.using(queue=self._queue)]) as [
            carried
        ]:
            enqueued = await self._app._arun(self._app._enqueue(carried))
        if not enqueued.created:
            what = f"job {enqueued.id} ({enqueued.status}) has the idempotency key"
            raise UsageError(f"run_twice: {what}")
        return enqueued.id

    async def _run(self, on_end: Callable[[Attempt], None], watcher: Watcher | None = None) -> bool:
        """Run what is due; return whether it has succeeded."""
        config = WorkerConfig(queues={self._queue: 1}, drain=True, asks_limits=False)
        spec = self._app._make_spec(config)
        if watcher is not None:
            spec = replace(spec, arounds=(*spec.arounds, watcher.around))
        worker = Worker(self._app._database, spec, Bus(), on_end=on_end)
        return (await worker.run()).succeeded == 1

    async def _run_again(self, job: int, what: str) -> None:
        await self._app.aretry(job, why="rota.testing.run_twice", by="rota.testing")
        if not await self._run(self._see):
            raise AssertionError(f"{what} did not succeed: {await _explain(self._app, job)}")

    def _lose_success(self, attempt: Attempt) -> None:
        """Write nothing of a success: as if the worker was killed when its handler returned."""
        if isinstance(attempt.outcome, Succeeded) and not attempt.completes:
            attempt.lose()
            self._lost.append(attempt)

    def _see(self, attempt: Attempt) -> None:
        """Note the effects that the handler did not ask about; those of another process are not
        seen."""
        if attempt.context is not None:
            self._unasked.extend(attempt.context._unasked_effects)

    def _refuse(self, what: str, differences: Iterable[str]) -> None:
        if told := "".join(f"\n  {difference}" for difference in differences):
            raise AssertionError(f"{what.format(repr(self._new_job.job_type.name))}:{told}")


def _kill(attempt: Attempt) -> None:
    """Write nothing of how it ended, unless its handler may have finished the job itself; and close
    what it had open."""
    if isinstance(attempt.outcome, Errored):
        traceback.clear_frames(attempt.outcome.error.__traceback__)
    if not attempt.completes:
        attempt.lose()


def _find_app(new_job: NewJob) -> App:
    if not isinstance(new_job, NewJob):
        raise UsageError(f"run_twice takes a job such as welcome.new(42), not {new_job!r}")
    app = new_job.job_type._sender
    assert isinstance(app, App)
    return app


async def _explain(app: App, job: int) -> str:
    """Return what became of a job that should have succeeded."""
    found = await app.aget(job)
    assert found is not None
    why = f": {found.error_type}: {found.last_error}" if found.error_type else ""
    return f"it is {found.status}{why or f', due at {found.run_at}'}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a run can have changed."""

    effects: dict[tuple[str, str], EffectRecord]
    """By "effect" or "step", and key."""
    jobs: Counter[str]
    """Those that were enqueued after this one, by type."""
    tables: Tables
    """Their rows."""

    def compare(self, after: _Seen) -> Iterator[str]:
        """Say what the second run changed."""
        for (kind, key), effect in after.effects.items():
            before = self.effects.get((kind, key))
            if before is None:
                yield f"{kind} {key!r} was done by the second run only"
            elif effect.intended_at != before.intended_at:
                yield f"{kind} {key!r} was done again"
        for name, count in (after.jobs - self.jobs).items():
            yield f"{plural(count, 'job')} of type {name!r} enqueued again"
        for table in after.tables:
            yield from self._compare_rows(after, table, None)

    def compare_killed(
        self, after: _Seen, stable: Mapping[str, list[str]], effects: Iterable[tuple[str, str]]
    ) -> Iterator[str]:
        """Say what is otherwise after a run that was killed and one that was not: of these columns
        and effects."""
        for kind, key in effects:
            if (kind, key) not in after.effects:
                yield f"{kind} {key!r} was not done"
        for what, jobs in (("again", after.jobs - self.jobs), ("never", self.jobs - after.jobs)):
            for name, count in jobs.items():
                yield f"{plural(count, 'job')} of type {name!r} enqueued {what}"
        for table, columns in stable.items():
            yield from self._compare_rows(after, table, columns)

    def _compare_rows(
        self, after: _Seen, table: str, columns: Sequence[str] | None
    ) -> Iterator[str]:
        yield from _tell_rows(
            table,
            count_rows(self.tables[table], columns),
            count_rows(after.tables[table], columns),
        )


def _tell_rows(table: str, before: Counter[str], after: Counter[str]) -> Iterator[str]:
    for what, rows in (("more", after - before), ("gone", before - after)):
        if rows:
            shown = ", ".join(one_line(row, 200) for row in list(rows)[:SHOWN_MAX])
            rest = "" if len(rows) <= SHOWN_MAX else ", …"
            yield f"table {table}: {plural(rows.total(), 'row')} {what}: {shown}{rest}"


async def _look(app: App, job: int, tables: Sequence[str]) -> _Seen:
    effects = await app.effects.afind(job=job, limit=LIST_MAX)
    return _Seen(
        {("step" if one.step_of else "effect", one.key): one for one in effects},
        await asyncio.to_thread(_count_jobs, app._database, job),
        await asyncio.to_thread(read_tables, app._database, tables),
    )


def _count_jobs(database: Database, job: int) -> Counter[str]:
    with database.open_connection("testing") as connection:
        jobs = connection.execute(
            f"select job_type, count(*) from {database.schema}.jobs "
            "where id > %s and schedule is null group by job_type",
            [job],
        ).fetchall()
        return Counter(dict(jobs))
