"""Whether a second run of a handler is harmless.

Rota's promise is "at least once", so every handler runs a second time one day. `run_twice` is that
day: `rota.testing.run_twice(welcome.new(42), tables=["app_user"])`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.app import App
from rota.client.base import LIST_MAX
from rota.client.carry import carry_meta
from rota.declare.config import WorkerConfig
from rota.declare.job_type import NewJob
from rota.errors import UsageError
from rota.model.failure import one_line
from rota.model.outcome import Succeeded
from rota.model.units import plural
from rota.observe.events import Bus
from rota.runtime.loop import run_alone
from rota.worker.worker import Worker

if TYPE_CHECKING:
    from rota.store.db import Database
    from rota.store.ops import EffectRecord
    from rota.worker.attempt import Attempt

ROWS_MAX = 100_000
"""Most rows of a table that are compared."""
SHOWN_MAX = 5
"""Most rows of one difference that its message shows."""


def run_twice(new_job: NewJob, *, tables: Iterable[str] = ()) -> None:
    """Run a handler, lose its worker before the success is written, run it again, and compare.

    Both runs are real attempts of a worker in this process, on the database of the App. What the
    first did stays; of its success nothing is written, as if the worker had been killed at that
    moment. After the second run all must be as after the first: the rows of the tables that you
    name, the effects and steps of the job, and the jobs that it enqueued. Nothing else runs
    meanwhile, and the jobs that it enqueued are not run.

    A handler that finished its job in its own transaction has no second run.

    Args:
        new_job: the job, as `welcome.new(42)`; its type belongs to an App.
        tables: names of tables in that database, as SQL writes them.

    Raises:
        AssertionError: a run did not succeed, or the second one changed something; with what.
        UsageError: there is no such table, the type belongs to no App, another job has the
            idempotency key, or this is called in a running event loop (await `arun_twice`).
    """
    app = _find_app(new_job)
    run_alone("run_twice", arun_twice(new_job, tables=tables), app.aclose)


async def arun_twice(new_job: NewJob, *, tables: Iterable[str] = ()) -> None:
    """Run a handler twice on the running loop. Arguments and errors are those of `run_twice`."""
    app = _find_app(new_job)
    names = [tables] if isinstance(tables, str) else list(tables)
    queue = f"run_twice:{secrets.token_hex(8)}"
    with carry_meta(app._enqueue_arounds, [new_job.using(queue=queue)]) as [carried]:
        enqueued = await app._arun(app._enqueue(carried))
    job = enqueued.id
    if not enqueued.created:
        raise UsageError(f"run_twice: job {job} ({enqueued.status}) has the idempotency key")
    config = WorkerConfig(queues={queue: 1}, drain=True, asks_gates=False)
    lost: list[Attempt] = []
    unasked: list[str] = []

    def lose(attempt: Attempt) -> None:
        """Write nothing of a success: as if the worker was killed when its handler returned."""
        if isinstance(attempt.outcome, Succeeded) and not attempt.completes:
            attempt.lose()
            lost.append(attempt)

    def see(attempt: Attempt) -> None:
        """Note the effects that the handler did not ask about; those of another process are not
        seen."""
        if attempt.context is not None:
            unasked.extend(attempt.context._unasked_effects)

    first = Worker(app._database, app._make_spec(config), Bus(), on_end=lose)
    if (await first.run()).succeeded == 1:
        return  # it finished its job itself: its writes and its success are one
    if not lost:
        raise AssertionError(f"the first run did not succeed: {await _explain(app, job)}")
    before = await _look(app, job, names)
    await app.aretry(job, why="rota.testing.run_twice", by="rota.testing")
    second = Worker(app._database, app._make_spec(config), Bus(), on_end=see)
    if (await second.run()).succeeded != 1:
        raise AssertionError(f"the second run did not succeed: {await _explain(app, job)}")
    differences = [f"effect {key!r}: its block did not ask effect.done" for key in unasked]
    differences += before.compare(await _look(app, job, names))
    if differences:
        told = "".join(f"\n  {difference}" for difference in differences)
        raise AssertionError(f"a second run of {new_job.job_type.name!r} is not harmless:{told}")


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
    tables: dict[str, Counter[str]]
    """Their rows, as text."""

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
        for table, rows in after.tables.items():
            yield from _compare_rows(table, self.tables[table], rows)


def _compare_rows(table: str, before: Counter[str], after: Counter[str]) -> Iterator[str]:
    for what, rows in (("more", after - before), ("gone", before - after)):
        if rows:
            shown = ", ".join(one_line(row, 200) for row in list(rows)[:SHOWN_MAX])
            rest = "" if len(rows) <= SHOWN_MAX else ", …"
            yield f"table {table}: {plural(rows.total(), 'row')} {what}: {shown}{rest}"


async def _look(app: App, job: int, tables: Sequence[str]) -> _Seen:
    effects = await app.effects.afind(job=job, limit=LIST_MAX)
    return _Seen(
        {("step" if one.step_of else "effect", one.key): one for one in effects},
        *(await asyncio.to_thread(_read, app._database, job, tables)),
    )


def _read(
    database: Database, job: int, tables: Sequence[str]
) -> tuple[Counter[str], dict[str, Counter[str]]]:
    with database.open_connection("testing") as connection:
        jobs = connection.execute(
            f"select job_type, count(*) from {database.schema}.jobs "
            "where id > %s and schedule is null group by job_type",
            [job],
        ).fetchall()
        return Counter(dict(jobs)), {table: _read_rows(connection, table) for table in tables}


def _read_rows(connection: Any, table: str) -> Counter[str]:
    [(name,)] = connection.execute("select to_regclass(%s)::text", [table]).fetchall()
    if name is None:
        raise UsageError(f"run_twice: there is no table {table!r} in the database of the App")
    rows = connection.execute(f"select t::text from {name} t limit {ROWS_MAX + 1}").fetchall()
    if len(rows) > ROWS_MAX:
        raise UsageError(f"run_twice: {table} has more than {ROWS_MAX:,} rows, too many to compare")
    return Counter(row for (row,) in rows)
