"""Whether a second run of a handler is harmless: "at least once" allows a second run."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from rota.app import App
from rota.client.base import LIST_MAX
from rota.client.carry import carry_meta
from rota.declare.config import WorkerConfig
from rota.declare.job_type import NewJob
from rota.errors import UsageError
from rota.model.failure import one_line
from rota.model.job import Enqueued
from rota.model.units import plural
from rota.observe.events import Bus
from rota.runtime.loop import run_alone
from rota.store.db import Database
from rota.testing.kills import END, KilledRun
from rota.worker.worker import Worker

ROWS_MAX = 100_000
"""Most rows of a table that are compared."""
SHOWN_MAX = 5
"""Most rows of a difference that its message shows."""


def run_twice(new_job: NewJob, *, tables: Iterable[str] = ()) -> None:
    """Run a handler, lose its worker before the success is written, run it again, and compare.

    The runs are real attempts of a worker in this process, on the database of the App. What a
    run did stays; its success is not written, as if the worker had been killed at that moment.
    After the second run all must be as after the first: the rows of the tables that you name, the
    effects and steps of the job, and the jobs that it enqueued, which do not run.

    Before these two runs, the handler is killed at its first ten calls of Rota that commit: before
    each enqueue, each effect, the result of each step (or effect with `if_uncertain="repeat"`), and
    the commit that finishes its job. The next run must come there again, and change nothing before.
    No kill comes between two other statements, or with `process=True`.

    A handler that finished its job in its own transaction has no second run.

    Args:
        new_job: the job, as `welcome.new(42)`; its type belongs to an App.
        tables: names of tables in that database, as SQL writes them; up to 100,000 rows each.

    Raises:
        AssertionError: a run did not succeed, or a repeated run changed something, or left
            something out; with what.
        UsageError: there is no such table, the type belongs to no App, another job has the
            idempotency key, or the call is in a running event loop (await `arun_twice`).
    """
    app = _find_app(new_job)
    run_alone("run_twice", arun_twice(new_job, tables=tables), app.aclose)


async def arun_twice(new_job: NewJob, *, tables: Iterable[str] = ()) -> None:
    """Run a handler twice on the running loop, as `run_twice` does."""
    names = [tables] if isinstance(tables, str) else list(tables)
    await _Runs(_find_app(new_job), new_job, names).compare()


class _Runs:
    def __init__(self, app: App, new_job: NewJob, tables: list[str]) -> None:
        self._app = app
        self._new_job = new_job
        self._name = repr(new_job.job_type.name)
        self._tables = tables
        self._tried: set[str] = set()
        """The places of kills."""

    async def compare(self) -> None:
        """Run the handler twice up to each place of a kill, the last time to its end."""
        await asyncio.to_thread(read_tables, self._app._database, self._tables)
        job = await self._enqueue()
        run = await self._run(KilledRun(job, self._tried), "the first run")
        while run.is_lost:  # otherwise its writes and its success are one
            place = run.place
            before = await self._look(job)
            what = "the second run" if place == END else f"the run after a kill before {place}"
            again = await self._run_again(KilledRun(job, self._tried, place), what)
            if not again.has_come:
                raise AssertionError(
                    f"a second run of {self._name} does not come to {place}, before which the "
                    "first one was killed"
                )
            if again.place == place:
                self._refuse(place, again.unasked, before.compare(await self._look(job)))
            if not again.is_lost:
                return
            run = await self._run_again(KilledRun(job, self._tried), what)

    def _refuse(self, place: str, unasked: Iterable[str], changes: Iterable[str]) -> None:
        differences = [f"effect {key!r}: its block did not ask effect.done" for key in unasked]
        if told := "".join(f"\n  {difference}" for difference in (*differences, *changes)):
            until = "" if place == END else f" up to {place}"
            raise AssertionError(f"a second run of {self._name}{until} is not harmless:{told}")

    async def _enqueue(self) -> int:
        # In a queue of its own: a worker of this database would take the job between two runs.
        new_job = self._new_job.using(queue=f"run_twice:{secrets.token_hex(8)}")
        with carry_meta(self._app._enqueue_arounds, [new_job]) as jobs:
            enqueued = await self._app._arun(self._app._enqueue(jobs))
        return check_new(enqueued)

    async def _run(self, run: KilledRun, what: str) -> KilledRun:
        """Run the job until it is killed or ends. Raises AssertionError: it failed."""
        app, job_type = self._app, self._new_job.job_type._declaration
        spec = app._make_spec(WorkerConfig(slots=1, asks_limits=False))
        if job_type.options.process is None:
            spec = replace(
                spec, types={job_type.name: job_type}, arounds=(run.around, *spec.arounds)
            )
        app._enqueue_arounds.append(run.around_enqueue)
        try:
            summary = await Worker(app._database, spec, Bus(), hand=run).run()
        finally:
            app._enqueue_arounds.remove(run.around_enqueue)
        if not run.is_lost and summary.succeeded != 1:
            raise AssertionError(f"{what} did not succeed: {await _explain(app, run.job)}")
        return run

    async def _run_again(self, run: KilledRun, what: str) -> KilledRun:
        await self._app.aretry(run.job, why="rota.testing.run_twice", by="rota.testing")
        return await self._run(run, what)

    async def _look(self, job: int) -> _Seen:
        effects = await self._app.effects.afind(job=job, status="done", limit=LIST_MAX)
        return _Seen(
            {
                f"{'step' if effect.step_of else 'effect'} {effect.key!r}": effect.intended_at
                for effect in effects
            },
            await asyncio.to_thread(_count_jobs, self._app._database, job),
            await asyncio.to_thread(read_tables, self._app._database, self._tables),
        )


def check_new(enqueued: Enqueued) -> int:
    """Return the id of a new job. Raises UsageError: another job has its key."""
    if not enqueued.created:
        raise UsageError(
            f"job {enqueued.id} ({enqueued.status}) has the idempotency key: use another key, or "
            "perform that job by its id"
        )
    return enqueued.id


def _find_app(new_job: NewJob) -> App:
    if not isinstance(new_job, NewJob):
        raise UsageError(f"run_twice takes a job such as welcome.new(42), not {new_job!r}")
    app = new_job.job_type._sender
    assert isinstance(app, App)
    return app


async def _explain(app: App, job: int) -> str:
    """Return the outcome of a job that should have succeeded."""
    found = await app.aget(job)
    assert found is not None
    if found.error_type is None:
        return f"it is {found.status}, due at {found.run_at}"
    return f"it is {found.status}: {found.error_type}: {found.last_error}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a run can have changed."""

    effects: dict[str, datetime]
    """The begin of each done effect and step."""
    jobs: Counter[str]
    """Jobs that were enqueued after this job, by type."""
    tables: dict[str, Counter[str]]
    """The rows by table."""

    def compare(self, after: _Seen) -> Iterator[str]:
        """Say what the second run changed."""
        for name, began_at in after.effects.items():
            if name not in self.effects:
                yield f"{name} was done by the second run only"
            elif began_at != self.effects[name]:
                yield f"{name} was done again"
        for name, count in (after.jobs - self.jobs).items():
            yield f"{plural(count, 'job')} of type {name!r} enqueued again"
        for table, rows in after.tables.items():
            yield from _tell_rows(table, "more", rows - self.tables[table])
            yield from _tell_rows(table, "gone", self.tables[table] - rows)


def _tell_rows(table: str, what: str, rows: Counter[str]) -> Iterator[str]:
    if rows:
        shown = ", ".join(one_line(row, 200) for row in list(rows)[:SHOWN_MAX])
        rest = "" if len(rows) <= SHOWN_MAX else ", …"
        yield f"table {table}: {plural(rows.total(), 'row')} {what}: {shown}{rest}"


def read_tables(database: Database, names: Iterable[str]) -> dict[str, Counter[str]]:
    """Return the rows of tables. Raises UsageError: a table is missing or too large."""
    with database.open_connection("testing") as connection:
        return {name: _read_rows(connection, name) for name in names}


def _read_rows(connection: Any, table: str) -> Counter[str]:
    [(name,)] = connection.execute("select to_regclass(%s)::text", [table]).fetchall()
    if name is None:
        raise UsageError(f"run_twice: there is no table {table!r} in the database of the App")
    rows = connection.execute(f"select (t.*)::text from {name} t limit {ROWS_MAX + 1}").fetchall()
    if len(rows) > ROWS_MAX:
        raise UsageError(f"run_twice: {table} has more than {ROWS_MAX:,} rows, too many to compare")
    return Counter(row for [row] in rows)


def _count_jobs(database: Database, job: int) -> Counter[str]:
    with database.open_connection("testing") as connection:
        jobs = connection.execute(
            f"select job_type, count(*) from {database.schema}.jobs "
            "where id > %s and schedule is null group by job_type",
            [job],
        ).fetchall()
        return Counter(dict(jobs))
