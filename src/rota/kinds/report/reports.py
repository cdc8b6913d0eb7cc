"""`Reports`: job types that make files of many rows in pages, and what is known of the files."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from inspect import isasyncgenfunction, iscoroutinefunction
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Protocol, get_args

from msgspec import UNSET, UnsetType

import rota
from rota import records
from rota.kinds import REPORT, REPORT_PAGE
from rota.kinds.report.formats import FORMATS, Csv, Format, FormatName, Formulas, Row, order_rows
from rota.kinds.report.run import FileGone, ReportRun
from rota.kinds.report.store import Directory, Store
from rota.kinds.steps import RunsSteps, Steps
from rota.records import awaitable, both

if TYPE_CHECKING:
    from rota.records import AsyncConnection, Connection, JobOptions, NewJob

logger = logging.getLogger("rota")

PAGES_MAX = 10_000


class ReportSource(Protocol):
    """The rows of a report, as static methods of a class."""

    @staticmethod
    def ranges(params: dict[str, Any]) -> Iterable[Any]:
        """Return the pages as JSON values. Each is fixed and bounded, so that later changes of the
        data move no row to another page."""
        ...

    @staticmethod
    def rows(params: dict[str, Any], range: Any) -> Iterable[Row]:
        """Yield the rows of a page in their order."""
        ...


@dataclass(frozen=True, slots=True)
class _Report:
    name: str
    columns: tuple[str, ...]
    format: Format
    keep: records.Duration
    reuse: records.Duration
    made_of: Any

    @property
    def shape(self) -> str:
        """What all pages have in common: pages of two shapes make no file."""
        return f"{self.format}:{json.dumps(self.columns)}"


class Reports(RunsSteps):
    """Files of many rows, made in pages by all workers.

    `App(jobs=[jobs, reports.jobs])` declares its job types; `rota migrate` makes its table.
    """

    def __init__(
        self, store: Store | str | Path, *, parallel: int = 4, options: JobOptions | None = None
    ) -> None:
        """Declare the job types.

        Args:
            store: where the files are: a `Store`, or the path of a directory which all workers
                share.
            parallel: how many pages of one run are made at once. Defaults to 4.
            options: of the job type of pages, on top of `rota.kinds.REPORT_PAGE`; a `queue` is that
                of all types.
        """
        self.store: Store = Directory(store) if isinstance(store, str | Path) else store
        self.jobs = rota.Jobs(
            tables=records.Tables("report", files(__package__) / "sql"),
            commands={
                "reports list": self.list,
                "reports show": self.get,
                "reports cancel": self.cancel,
            },
        )
        """The job types, for `App(jobs=[…])`."""
        self._reports: dict[str, _Report] = {}
        lanes = rota.Ordered(_group, capacity=parallel, while_retrying="release")
        page: Any = {**REPORT_PAGE, "ordered": lanes, **(options or {})}
        queue = page.get("queue", "default")
        start: Any = {**REPORT, "queue": queue}
        job = self.jobs.job
        self._start = job("report.start", takes_context=True, **start)(self._find_pages)
        self._page = job("report.page", takes_context=True, **page)(self._make_page)
        joining: Any = {"timeout": "1h", "lease": "2m", "max_attempts": 5, "queue": queue}
        self._join = job("report.join", takes_context=True, **joining)(self._join_pages)
        self._tidy = job("report.tidy", max_attempts=5, queue=queue)(self._delete_files)
        clean = job("report.clean", max_attempts=3, queue=queue)(self._clean)
        self.jobs.schedule("report.clean", "43 * * * *")(clean)

    def report(
        self,
        name: str,
        *,
        columns: Sequence[str],
        format: FormatName = "csv",
        bom: bool = False,
        formulas: Formulas = "keep",
        keep: records.Duration = "7d",
        reuse: records.Duration = "1m",
    ) -> Callable[[type[Any]], type[Any]]:
        """Declare a report by a class with the static methods `ranges(params)` and
        `rows(params, range)`, as `ReportSource` says; and, if something follows,
        `finish(run, connection)`: what that enqueues or writes with the connection is committed
        with the report.

        Args:
            name: 1 … 100 characters.
            columns: their names, in order.
            format: `csv`, `jsonl`, `xlsx` or `parquet`.
            bom: of a CSV: it begins with a byte order mark, for Excel.
            formulas: of a CSV: "escape" puts `'` before a text that a spreadsheet may take for a
                formula. Defaults to "keep", the texts as they are.
            keep: how long the file is kept. Defaults to a week.
            reuse: how long after it is ready a request gets it, too; "0s": never. Defaults to a
                minute, for a double click.

        Raises:
            DeclarationError: an option cannot be what it is for, the name is taken, or a method
                missing.
        """

        def declare(made_of: type[Any]) -> type[Any]:
            if not 0 < len(name) <= 100:
                raise rota.errors.DeclarationError(
                    f"a report's name has 1 to 100 characters, not {name!r}"
                )
            for method in ("ranges", "rows", "finish"):
                found = getattr(made_of, method, None)
                if method != "finish" and not callable(found):
                    raise rota.errors.DeclarationError(f"report {name!r} has no method {method}")
                if iscoroutinefunction(found) or isasyncgenfunction(found):
                    raise rota.errors.DeclarationError(
                        f"report {name!r}: {method} runs in a thread: it must be no async function"
                    )
            if isinstance(columns, str) or not 0 < len(columns) == len(set(columns)):
                raise rota.errors.DeclarationError(
                    f"report {name!r}: columns is a list of names, each once, not {columns!r}"
                )
            for duration in (keep, keep if reuse == "0s" else reuse):
                rota.Fixed(duration)  # raises, if it is no duration
            if name in self._reports:
                raise rota.errors.DeclarationError(f"report {name!r} is declared twice")
            chosen = _choose_format(name, format, Csv(bom, formulas))
            self._reports[name] = _Report(name, tuple(columns), chosen, keep, reuse, made_of)
            return made_of

        return declare

    # Ask

    def request(
        self,
        name: str,
        params: dict[str, Any] | None = None,
        *,
        by: str | None = None,
        connection: Connection | UnsetType = UNSET,
    ) -> ReportRun:
        """Ask for a report; return its run. The same name and parameters are one run while that is
        queued or runs, and for as long after it is ready as `reuse` of the report says.

        Args:
            params: what JSON can hold; `ranges` and `rows` get them.
            by: who asks.
            connection: whose transaction it joins.

        Raises:
            UsageError: there is no such report.
            PayloadError: the parameters have no JSON form.
        """
        new, given = self._ask(name, params, by)
        [row] = self.jobs.call("report_request", given, connection=connection, enqueues=new)
        return self.get(row["run"], connection=connection)

    async def arequest(
        self,
        name: str,
        params: dict[str, Any] | None = None,
        *,
        by: str | None = None,
        connection: AsyncConnection | UnsetType = UNSET,
    ) -> ReportRun:
        """Ask for a report, as `request` does."""
        new, given = self._ask(name, params, by)
        [row] = await self.jobs.acall("report_request", given, connection=connection, enqueues=new)
        return await self.aget(row["run"], connection=connection)

    @both
    def get(
        self, id: int, *, connection: records.AnyConnection | UnsetType = UNSET
    ) -> Steps[ReportRun]:
        """Return a run.

        Raises:
            FileGone: there is none of this id, or it is not kept any more.
        """
        return self._get(id, connection)

    aget = awaitable(get)

    def _get(self, id: int, connection: Any) -> Steps[ReportRun]:
        if not isinstance(id, int):
            raise rota.UsageError(f"the id of a run is a whole number, not {id!r}")
        found = yield partial(self.jobs.call, "report_runs", {"id": id}, connection=connection)
        if not found:
            raise FileGone(f"there is no report run {id}, or it is not kept any more")
        return self._read(found[0])

    @both
    def list(self, *, name: str | None = None, limit: int = 100) -> Steps[list[ReportRun]]:
        """List runs, the newest first: all runs, or the runs of a report."""
        rows = yield partial(self.jobs.call, "report_runs", {"name": name, "limit": limit})
        return [*map(self._read, rows)]

    alist = awaitable(list)

    @both
    def cancel(self, id: int, *, why: str | None = None) -> Steps[None]:
        """Cancel a run: its pages stop. A ready run stays. Raises FileGone: unknown."""
        yield from self._get(id, UNSET)
        for row in (yield partial(self.jobs.call, "report_cancel", {"run": id})):
            if row["batch"] is not None:
                yield partial(self._app.batches.cancel, row["batch"], why=why)
            with suppress(rota.WrongStatus, rota.JobNotFound):  # it is over, or not there yet
                yield partial(self._app.cancel, row["job"], why=why)
            yield partial(self._app.enqueue, self._tidy.new(run=id))

    acancel = awaitable(cancel)

    def _ask(
        self, name: str, params: dict[str, Any] | None, by: str | None
    ) -> tuple[NewJob, dict[str, Any]]:
        report = self._find(name)
        new: NewJob = self._start.new(run=0)
        page = self._page.new(run=0, number=0, range=dict(params or {}), shape="")
        given = {"name": name, "params": json.loads(page.payload_json)["range"], "by": by}
        return new, {**given, "reuse": report.reuse}

    def _read(self, row: dict[str, Any]) -> ReportRun:
        return ReportRun(**{**row, "params": json.loads(row["params"])}, _reports=self)

    def _find(self, name: str) -> _Report:
        if name not in self._reports:
            listed = ", ".join(self._reports) or "none"
            raise rota.UsageError(f"there is no report {name!r}; there are {listed}")
        return self._reports[name]

    def _open(self, run: ReportRun) -> IO[bytes]:
        if run.file is None or run.status == "expired":
            raise FileGone(f"report run {run.id} has no file: it is {run.status}")
        try:
            return self.store.open(run.file)
        except FileNotFoundError:
            raise FileGone(f"the file of report run {run.id} is gone from its store") from None

    @property
    def _app(self) -> rota.App:
        app: rota.App = self._start.app
        return app

    # Make

    def _find_pages(self, ctx: rota.Context, run: int) -> None:
        asked, report = self._get_for_work(ctx, run)
        ranges = list(islice(report.made_of.ranges(asked.params), PAGES_MAX + 1))
        if len(ranges) > PAGES_MAX:
            raise rota.Dead(f"report {asked.name!r} has more than {PAGES_MAX:,} pages")
        pages = [
            self._page.new(run=run, number=number, range=bounds, shape=report.shape)
            for number, bounds in enumerate(ranges)
        ]
        with ctx.transaction() as connection:
            joining = self._join.using(connection).new(run=run, shape=report.shape)
            batch: int | None = None
            if pages:
                batch = self._app.batch(
                    pages, then=joining, on_failure="wait", connection=connection
                ).id
            else:
                self._app.enqueue(joining)
            begun = {"run": run, "batch": batch, "pages": len(pages)}
            [row] = self.jobs.call("report_begin", begun, connection=connection)
            if not row["report_begin"]:
                raise rota.Cancel(f"report run {run} was cancelled")

    def _make_page(self, ctx: rota.Context, run: int, number: int, range: Any, shape: str) -> None:
        asked, report = self._get_for_work(None, run, shape)
        rows = order_rows(report.made_of.rows(asked.params, range), report.columns)
        name = f"{_claim(ctx, run)}.part"
        with TemporaryFile() as file:
            watched = _watch(ctx, rows)
            count = report.format.write_page(watched, report.columns, file)
            ctx.raise_if_cancelled()
            with self._choose(ctx, run, name, file, page=number) as connection:
                done = {"run": run, "file": name, "rows": count}
                [row] = self.jobs.call("report_page_done", done, connection=connection)
                if not row["report_page_done"]:
                    raise rota.Cancel(f"report run {run} was cancelled")

    def _join_pages(self, ctx: rota.Context, run: int, shape: str) -> None:
        asked, report = self._get_for_work(ctx, run, shape)
        shown = re.sub(r"[^A-Za-z0-9_.-]", "-", asked.name)
        name = f"{_claim(ctx, run)}/{shown}.{report.format.ending}"
        with TemporaryFile() as file:
            report.format.join(lambda: self._open_parts(ctx, asked), report.columns, file)
            facts: dict[str, Any] = {"size": file.tell(), "file": name}
            file.seek(0)
            facts["checksum"] = hashlib.file_digest(file, "sha256").hexdigest()
            with self._choose(ctx, run, name, file) as connection:
                facts |= {"run": run, "keep": report.keep}
                [row] = self.jobs.call("report_finish", facts, connection=connection)
                if not row["report_finish"]:
                    raise rota.Cancel(f"report run {run} was cancelled")
                if finish := getattr(report.made_of, "finish", None):
                    finish(self.get(run, connection=connection), connection)
                self._app.enqueue(self._tidy.using(connection).new(run=run, kept=name))

    @contextmanager
    def _choose(
        self, ctx: rota.Context, run: int, name: str, file: IO[bytes], page: int | None = None
    ) -> Iterator[Any]:
        """Put a file, and finish the job in the transaction that makes this file count. A worker
        that has lost the job deletes its own file."""
        self.jobs.call("report_note", {"run": run, "file": name, "page": page})
        file.seek(0)
        self.store.put(name, file)
        with ctx.transaction() as connection:
            try:
                yield connection
                ctx.complete(connection)
            except BaseException:
                try:
                    self.store.delete(name)  # nothing of this is committed
                except Exception:
                    logger.warning("report file %r stays until its run goes", name, exc_info=True)
                raise

    def _delete_files(self, run: int, kept: str | None = None) -> None:
        for row in self.jobs.call("report_files", {"run": run}):
            if row["name"] != kept:
                self.store.delete(row["name"])

    def _open_parts(self, ctx: rota.Context, asked: ReportRun) -> Iterator[IO[bytes]]:
        found = self.jobs.call("report_files", {"run": asked.id})
        parts = {row["page"]: row["name"] for row in found if row["rows"] is not None}
        pages = asked.pages or 0
        for number in range(pages):
            ctx.raise_if_cancelled()
            ctx.progress(number, pages)
            try:
                yield self.store.open(parts[number])
            except (KeyError, FileNotFoundError):
                raise rota.Dead(
                    f"page {number} of report run {asked.id} is gone from its store: cancel the "
                    "run, and ask for it again"
                ) from None

    def _get_for_work(
        self, ctx: rota.Context | None, run: int, shape: str | None = None
    ) -> tuple[ReportRun, _Report]:
        """Return a run and its report for a job; `ctx`: the job that finds or joins pages."""
        if ctx is not None:
            self.jobs.call("report_work", {"run": run, "job": ctx.job.id})
        try:
            asked = self.get(run)
        except FileGone as error:
            raise rota.Cancel(str(error)) from None
        if asked.status == "cancelled":
            raise rota.Cancel(f"report run {run} was cancelled")
        if asked.name not in self._reports:
            raise rota.Snooze("1m", f"this worker has no report {asked.name!r}")
        report = self._reports[asked.name]
        if shape is not None and shape != report.shape:
            raise rota.Dead(
                f"report {asked.name!r} had other columns, or another format, when this run began: "
                "cancel the run, and ask for it again"
            )
        return asked, report

    def _clean(self) -> None:
        """Delete expired runs, files first. A file that cannot be deleted is tried again in an
        hour."""
        after = None
        while expired := self.jobs.call("report_expired", {"after": after}):
            after, gone = expired[-1]["run"], []
            for row in expired:
                try:
                    self._delete_files(row["run"])
                except OSError as error:
                    logger.warning("report run %s: its files stay: %s", row["run"], error)
                else:
                    gone.append(row["run"])
            self.jobs.call("report_forget", {"runs": gone})


def _choose_format(name: str, format: str, csv: Csv) -> Format:
    if format not in FORMATS:
        raise rota.errors.DeclarationError(
            f"report {name!r}: no format {format!r}; there are {', '.join(FORMATS)}"
        )
    if csv.formulas not in get_args(Formulas):
        raise rota.errors.DeclarationError(
            f"report {name!r}: formulas is keep or escape, not {csv.formulas!r}"
        )
    if format != csv.ending and csv != FORMATS[csv.ending]:
        raise rota.errors.DeclarationError(f"report {name!r}: bom and formulas are for CSV alone")
    return csv if format == csv.ending else FORMATS[format]


def _group(run: int) -> str:
    return f"report:{run}"


def _claim(ctx: rota.Context, run: int) -> str:
    """Begin the name of a file that only this claim of the job writes."""
    return f"{run}/{ctx.job.id}-{ctx.job.claims}"


def _watch(ctx: rota.Context, rows: Iterator[Any]) -> Iterator[Any]:
    """Yield the rows, and stop where the attempt should."""
    look_at = 0.0
    for place, row in enumerate(rows):
        if time.monotonic() >= look_at:
            ctx.raise_if_cancelled()
            ctx.progress(place)
            look_at = time.monotonic() + 0.2
        yield row
