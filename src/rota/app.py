"""The App: holds job types and a database, and makes workers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from rota import embedded
from rota.client import Client, find_in_namespaces
from rota.client.both import in_thread
from rota.client.schedules import declare_and_plan
from rota.declare.around import (
    Around,
    EnqueueAround,
    check_around,
    check_enqueue_around,
    list_arounds,
    refuse_unfit,
)
from rota.declare.config import HEALTH_PORT_MAX, SLOTS, Queues, WorkerConfig, check_url
from rota.declare.declarations import Declarations
from rota.declare.job_type import JobType
from rota.declare.jobs import Jobs, Lifespan, refuse_no_lifespan
from rota.declare.options import LEASE_S_MIN
from rota.declare.release import release_of
from rota.declare.url import DatabaseUrl, find_url
from rota.errors import (
    ConfigurationError,
    DeclarationError,
    UsageError,
    explains,
    refuse_attribute,
)
from rota.model.bounds import NAME_MAX, check_bool, check_integer, check_text
from rota.model.record import Record
from rota.model.scrub import add_patterns
from rota.model.units import Duration, seconds
from rota.observe.events import Bus, Event
from rota.runtime.loop import run_alone
from rota.store import migrate, ops
from rota.store.db import Database
from rota.store.driver import Operation
from rota.store.migrate import Migrated
from rota.worker.summary import Summary

if TYPE_CHECKING:
    from rota.worker.spec import WorkerSpec

MISSPELLED = 0.75
"""How much alike two names are, 0 … 1, if one is the other misspelled."""

E = TypeVar("E", bound=Event)
A = TypeVar("A", bound=Around)
B = TypeVar("B", bound=EnqueueAround)


_CALLED_HERE = {
    **dict.fromkeys(("task", "actor"), "@app.job"),
    "send_task": 'app.enqueue("name", {"argument": 1})',
    "AsyncResult": "app.get(id), or app.join(id), which waits",
    **dict.fromkeys(("worker", "start", "serve"), "`rota work`, or app.run()"),
    **dict.fromkeys(("get_job", "fetch_job"), "app.get(id)"),
    "list": "app.find(…)",
    "purge": 'app.jobs.cancel_many(queue="mail")',
    "conf": "the arguments of rota.App, and the options of @app.job",
    **dict.fromkeys(
        ("enqueue_in", "enqueue_at", "add_job", "defer"),
        'job_type.using(delay="1m").enqueue(…), or app.schedule for what repeats',
    ),
    "control": "app.cancel, app.queues and app.jobs",
    **dict.fromkeys(
        ("add_periodic_task", "periodic"),
        'app.schedule("name", "0 2 * * *", job_type.new(…)), written by `rota migrate`',
    ),
}
"""Parts of an App, by their names in other libraries."""
_ARGUMENTS_ELSEWHERE = {
    **dict.fromkeys(
        ("backend", "broker", "connection", "connector", "result_backend"),
        'the URL of PostgreSQL alone: rota.App("postgresql://…"), or ROTA_DATABASE_URL',
    ),
    **dict.fromkeys(("import_paths", "imports", "include"), 'jobs=["shop.mail:jobs"]'),
    **dict.fromkeys(("concurrency", "queues"), "rota work --concurrency 20 --queue mail"),
    "timezone": "an option of each schedule: timezone=",
}
"""What other libraries call the arguments of an App."""


class Synced(Record, frozen=True):
    """What `App.sync` declared."""

    job_types: list[str]
    """Names, sorted."""
    schedules: list[str]
    """Names, sorted."""


class App(Client):
    """Job types and a database: enqueues jobs, reads them, and runs workers.

    Connects to the database when first used. Safe to create before a fork.

    Args:
        url: libpq URL or connection string, a URL of SQLAlchemy's, a connection of Django's, or a
            plain function that returns such a value when the App first connects. Defaults to
            ROTA_DATABASE_URL, otherwise (without a function) to a private PostgreSQL under
            `.rota/`.
        schema: schema of Rota's tables, 1 … 50 of a-z, 0-9 and _. Defaults to ROTA_SCHEMA,
            otherwise to "rota".
        jobs: a list of `Jobs`, or of "module:attribute" strings that name `Jobs`.
        lease: how long a claim holds a job whose type has no lease of its own, at least 1 s.
            Defaults to 2 minutes.
        release: the release of your code, recorded with each attempt. Defaults to ROTA_RELEASE,
            otherwise to what your platform names, the commit of the calling module's checkout, the
            version of its distribution, or "unknown"; see docs/operate/deploy.md.
        lifespan: a function that returns an async context manager. Each worker process enters it
            once, on its loop; the value is `ctx.state`. Defaults to none.
        alert_url: HTTP URL to which alerts are posted as JSON; see docs/operate/alerts.md. Defaults
            to ROTA_ALERT_URL, otherwise to none: alerts are only logged.
        middleware: a function, or a list of functions, that gets the `Context` of each attempt and
            returns a context manager around the handler. The first is the outermost. Defaults to
            none.
        enqueue_middleware: a function, or a list of functions, that gets the jobs of each call that
            enqueues and returns a plain context manager. Its mapping is added to their meta.
            Defaults to none.
        notify: whether to use LISTEN/NOTIFY, prepared statements and startup options. Use False
            behind a transaction pooler. Defaults to True.
        scrub: regular expressions, as texts or compiled, that mask more in the errors and logs of
            this process; see docs/operate/secrets.md. Defaults to none.
        require_connection: whether every enqueue from code must name a connection of yours, so that
            the job commits with your transaction. Defaults to False.

    Raises:
        DeclarationError: the lease is out of range, a pattern of `scrub` cannot be read, a Jobs
            belongs to another App, or two types share a name.
        ConfigurationError: a "module:attribute" names no Jobs. On first use: only DATABASE_URL is
            set, or the URL or the schema is invalid.
    """

    _opened: Database | None = None
    _metrics: Callable[[], str] | None = None
    """The text of a worker's `/metrics`; None: the port has none."""

    @explains(_ARGUMENTS_ELSEWHERE)
    def __init__(
        self,
        url: DatabaseUrl | None = None,
        *,
        schema: str | None = None,
        jobs: Iterable[Jobs | str] = (),
        lease: Duration = "2m",
        release: str | None = None,
        lifespan: Lifespan | None = None,
        middleware: Around | Iterable[Around] = (),
        enqueue_middleware: EnqueueAround | Iterable[EnqueueAround] = (),
        notify: bool = True,
        alert_url: str | None = None,
        scrub: Iterable[str | re.Pattern[str]] = (),
        require_connection: bool = False,
    ) -> None:
        self.schema = schema if schema is not None else os.environ.get("ROTA_SCHEMA") or "rota"
        self._release = release
        self._module = sys._getframe(2).f_globals.get("__name__")
        self._url = url
        try:
            self._lease_s = seconds(lease, name="lease", least=LEASE_S_MIN)
            self._require_connection = check_bool(require_connection, "require_connection")
            self._notify = check_bool(notify, "notify")
            if release is not None:
                check_text(release, "release", NAME_MAX)
            add_patterns(scrub)
        except UsageError as error:
            raise DeclarationError(f"App: {error}") from None
        refuse_no_lifespan(lifespan, "App")
        self._lifespan = lifespan
        self._arounds: list[Around] = []
        self._enqueue_arounds: list[EnqueueAround] = []
        for around in list_arounds(middleware):
            self.middleware(around)
        for around in list_arounds(enqueue_middleware):
            self.enqueue_middleware(around)
        self._alert_url = alert_url
        self._bus = Bus()
        self._own = Jobs()
        self._declarations = Declarations(self)
        self._declarations.add([self._own])
        self._declarations.add(jobs)
        self.job = self._own.job
        """Declare a job type: `@app.job("name", …)`, with the options of `Jobs.job`."""
        self.command = self._own.command
        """Declare a program as a job type: `app.command("backup", "pg_dump …", timeout="1h")`, with
        the options of `Jobs.command`."""
        self.schedule = self._own.schedule
        """Declare a schedule: `app.schedule("name", "0 2 * * *", job_type.new(…), …)`, with the
        options of `Jobs.schedule`."""

    if not TYPE_CHECKING:
        # For `help(rota.App.job)`; each App has its own, of `__init__`.
        job, command, schedule = Jobs.job, Jobs.command, Jobs.schedule

        def __getattr__(self, name: str) -> Any:
            """Explain the names of other libraries."""
            known = {**find_in_namespaces(name), **_CALLED_HERE}
            if name in known:
                refuse_attribute("an App", name, known)
            return self.__getattribute__(name)  # with the error of a property, if one failed

    def __repr__(self) -> str:
        return f"<App of module {self._module}, schema {self.schema}>"

    @property
    def types(self) -> Mapping[str, JobType[..., ..., Any]]:
        """The job types of this App and of its `jobs`, by name. Raises DeclarationError if two
        share a name: a Jobs can still grow after it is in the App."""
        return self._declarations.job_types

    def _type_of(self, name: str) -> JobType[..., ..., Any] | None:
        return self._declarations.find_job_type(name)

    def _find_misspelled(self, name: str) -> str | None:
        return self._declarations.find_nearest(name, MISSPELLED)

    def _declares_queue(self, name: str) -> bool:
        declared = self._declarations
        types = [found.options.queue for found in declared.types.values()]
        return name in types or any(
            name == schedule.enqueue.queue for schedule in declared.schedules.values()
        )

    @property
    def url(self) -> str:
        """The URL of the database, in a test of the test's database. Without a URL in code and
        environment, the private PostgreSQL is started and migrated.

        Raises:
            ConfigurationError: the URL is invalid, or the private PostgreSQL cannot be started.
        """
        return self._database.url

    def _find_url(self) -> str | None:
        """Return the URL; None: the private PostgreSQL has it, and is not asked to start."""
        return self._opened.url if self._opened is not None else find_url(self._url)

    @property
    def _database(self) -> Database:
        """Without a URL, starts the private PostgreSQL and migrates it."""
        if self._opened is not None:
            return self._opened
        url = self._find_url()
        if url is None:
            url = embedded.start()
            migrate.migrate(url, self.schema, self._declarations.packages, restore=True)
        made = Database(url, self.schema, notify=self._notify)
        # Atomic: concurrent first callers must share one Database, which holds the pools.
        kept: Database = vars(self).setdefault("_opened", made)
        return kept

    _is_tested_by_its_framework = False
    """Whether a framework such as Django makes the databases of its tests."""

    @property
    def _tested(self) -> Any:
        """The connection of a framework's test, with its transaction; None: no such test runs."""
        return None

    @property
    def release(self) -> str:
        """The release of your code, recorded with each attempt."""
        if self._release is None:
            # On demand: it asks git, and reads all installed distributions.
            self._release = release_of(self._module)
        return self._release

    def on(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Call `listener(event)` for each event of the class `kind` in this process.

        For example `app.on(rota.events.JobDead, report)`. The listener must return quickly. Its
        exception is logged and affects no job.
        """
        self._bus.on(kind, listener)

    def middleware(self, around: A) -> A:
        """Put a function around each attempt, within earlier functions: `@app.middleware`.

        It gets the `Context` and returns a context manager, sync or async, which is entered where
        the handler runs: in its thread, task or process. Its error is an error of the attempt.

        Raises:
            DeclarationError: the function cannot return a context manager.
        """
        self._arounds.append(check_around(around, "middleware"))
        return around

    def enqueue_middleware(self, around: B) -> B:
        """Put a function around each call that enqueues, within earlier functions.

        It gets the list of `NewJob` of the call and returns a plain context manager. A mapping that
        the context manager yields is added to the meta of the jobs; a job's own meta counts first.

        Raises:
            DeclarationError: the function cannot return a plain context manager.
        """
        self._enqueue_arounds.append(check_enqueue_around(around, "enqueue_middleware"))
        return around

    def _declare_limit(self, name: str) -> Operation[bool]:
        if name not in self._declarations.limits:
            return False
        limits = self._declarations.encode_limits()
        yield from ops.declare_limits(limits, self.release, is_deploy=False)
        return True

    # Work

    def migrate(self) -> Migrated:
        """Create or update Rota's schema, as `rota migrate` does. Return what was done.

        The call is safe to repeat, and for several processes at once. Make it where you migrate
        your own tables, before `sync`, and not at the start of every process: a role of an
        application should not own the schema.

        Raises:
            SchemaError: a privilege is missing, the server does not fit, or others may create
                objects in the schema; nothing was changed.
            SchemaTooNew: a newer release has migrated the schema.
            DatabaseUnavailable: the database does not answer.
        """
        self._warn_in_loop()
        url = self._find_url() or embedded.start()
        return migrate.migrate(url, self.schema, self._declarations.packages)

    amigrate = in_thread(migrate)

    def sync(self) -> Synced:
        """Declare the job types and schedules of this App in the database. Return their names.

        A worker does so at its start. Call it at each deploy, before the first INSERT.

        Raises:
            DeclarationError: two job types or two schedules share a name, or two types disagree on
                a breaker or a rate limit; nothing was declared.
            SchemaMissing: the schema is missing, or older than this release needs.
        """
        self._warn_in_loop()
        return self._sync(self._database)

    def _sync(self, database: Database, connection: Any = None) -> Synced:
        run = partial(database.run, connection=connection)
        run(migrate.check(database.schema, self._declarations.packages))
        declared = self._declarations
        types, schedules = declared.encode_types(self._lease_s), declared.encode_schedules()
        run(ops.declare(types, self.release))
        limits = declared.encode_limits()
        run(ops.declare_limits(limits, self.release, is_deploy=True))
        run(declare_and_plan(schedules, self.release, sorted(declared.types_by_any_name)))
        return Synced(sorted(declared.types), sorted(declared.schedules))

    def run(
        self,
        *,
        queues: Queues | None = None,
        concurrency: int = SLOTS,
        reserved: int | None = None,
        grace: Duration = "30s",
        health_port: int | None = None,
        ping: str | None = None,
    ) -> Summary:
        """Run jobs until SIGTERM, SIGINT or SIGHUP.

        After the signal the worker claims no more jobs, waits for running handlers for the grace
        period, returns the rest to the queue and records all results, or names the results that the
        database does not take within ten seconds. A second SIGTERM or SIGINT skips the grace
        period. A SIGHUP that the process ignores, as under `nohup`, does nothing.

        Args:
            queues: names, which share `concurrency`, as in `["mail"]`; or slots by name, as in
                `{"mail": 4}`. Defaults to all queues of the App's types and `default`, which share
                `concurrency`.
            concurrency: maximum number of concurrent jobs over all queues without slots of their
                own, 1 … 10,000. Defaults to 10.
            reserved: slots that only jobs with a priority above 0 may take, of each queue with
                slots of its own and of the shared slots; 0: none. Defaults to ROTA_RESERVED,
                otherwise to one in five, at least one of two.
            grace: how long running handlers may continue after the signal. Defaults to 30 s.
            health_port: port on which `/healthz` and `/readyz` answer over HTTP, on all interfaces,
                and `/metrics` with `rota.integrations.prometheus`. Defaults to none.
            ping: URL of a dead-man switch, requested about once a minute after a successful pass of
                maintenance. Defaults to none.

        Raises:
            ConfigurationError: the health port is in use, or a URL is invalid.
        """
        working = self.arun(
            queues=queues,
            concurrency=concurrency,
            reserved=reserved,
            grace=grace,
            health_port=health_port,
            ping=ping,
            signals=True,
        )
        return run_alone("run", working, self.aclose)

    async def arun(
        self,
        *,
        queues: Queues | None = None,
        concurrency: int = SLOTS,
        reserved: int | None = None,
        grace: Duration = "30s",
        health_port: int | None = None,
        ping: str | None = None,
        signals: bool = False,
    ) -> Summary:
        """Run jobs on the running event loop until cancelled; with `signals` also until a signal
        that stops `run`. Other arguments and errors are as in `run`."""
        config = self._config(queues, concurrency, reserved, grace, ping)
        if health_port is not None:
            check_integer(health_port, "health_port", 1, HEALTH_PORT_MAX)
        return await self._work(config, health_port=health_port, signals=signals)

    def drain(
        self,
        *,
        queues: Queues | None = None,
        concurrency: int = SLOTS,
        reserved: int | None = None,
        max_time: Duration | None = None,
        grace: Duration = "30s",
        ping: str | None = None,
        signals: bool = False,
    ) -> Summary:
        """Run one pass of all maintenance, then run jobs until none is due and all claimed jobs
        have ended.

        Args:
            queues: as for `run`.
            concurrency: as for `run`.
            reserved: as for `run`.
            max_time: how long to claim jobs. Defaults to no limit.
            grace: as for `run`.
            ping: URL of a dead-man switch, requested if the drain succeeded and was not stopped
                early. Defaults to none.
            signals: whether SIGTERM, SIGINT and SIGHUP stop the drain, as with `run`. Defaults to
                False.

        Raises:
            CopiedDatabase: the database is a restored copy; nothing was claimed and no job changed.
            DatabaseUnavailable: the database was unavailable, at the start or later.
            ConfigurationError: a URL is invalid.
        """
        draining = self.adrain(
            queues=queues,
            concurrency=concurrency,
            reserved=reserved,
            max_time=max_time,
            grace=grace,
            ping=ping,
            signals=signals,
        )
        return run_alone("drain", draining, self.aclose)

    async def adrain(
        self,
        *,
        queues: Queues | None = None,
        concurrency: int = SLOTS,
        reserved: int | None = None,
        max_time: Duration | None = None,
        grace: Duration = "30s",
        ping: str | None = None,
        signals: bool = False,
    ) -> Summary:
        """Drain on the running event loop. Arguments and errors are as in `drain`."""
        for_s = None if max_time is None else seconds(max_time, name="max_time")
        config = self._config(queues, concurrency, reserved, grace, ping)
        config = replace(config, drain=True, drain_for_s=for_s)
        return await self._work(config, signals=signals)

    async def _drain_by_request(self, config: WorkerConfig) -> Summary:
        """Drain with the settings of an endpoint, and with the URL for alerts of this moment."""
        return await self._work(replace(config, alert_url=self._find_alert_url()), signals=False)

    def _config(
        self,
        queues: Queues | None,
        concurrency: int,
        reserved: int | None,
        grace: Duration,
        ping: str | None,
    ) -> WorkerConfig:
        return WorkerConfig.make(
            queues,
            concurrency,
            reserved,
            grace_s=seconds(grace, name="grace"),
            alert_url=self._find_alert_url(),
            ping_url=None if ping is None else check_url(ping, "the URL to ping"),
        )

    def _find_alert_url(self) -> str | None:
        url = self._alert_url or os.environ.get("ROTA_ALERT_URL")
        return check_url(url, "the URL for alerts (alert_url, ROTA_ALERT_URL)") if url else None

    async def _work(
        self, config: WorkerConfig, *, health_port: int | None = None, signals: bool
    ) -> Summary:
        from rota.worker.work import work  # noqa: PLC0415 - who only enqueues needs no worker

        check = migrate.check(self.schema, self._declarations.packages)
        spec = self._make_spec(config)
        return await work(
            self._database, spec, self._bus, check, self._metrics, health_port, signals=signals
        )

    def _make_spec(self, config: WorkerConfig) -> WorkerSpec:
        from rota.worker.spec import WorkerSpec  # noqa: PLC0415 - who only enqueues needs none

        by_name = self._declarations.types_by_any_name
        if not by_name:
            raise ConfigurationError(
                "this App has no job types, so a worker would do nothing; "
                "declare job types, or give App(jobs=[…])"
            )
        refuse_unfit(self._arounds, by_name.values())
        return WorkerSpec(
            types=by_name,
            release=self.release,
            lease_s=self._lease_s,
            declaration=self._declarations.encode_types(self._lease_s),
            config=config,
            lifespan=self._lifespan,
            lifespans=self._declarations.lifespans,
            arounds=tuple(self._arounds),
            module=self._module,
            schedules=self._declarations.encode_schedules(),
            limits=self._declarations.encode_limits(),
        )

    def close(self) -> None:
        """Close the connections of this App's calls. The App stays usable."""
        if self._opened is not None:
            self._opened.close()

    async def aclose(self) -> None:
        """Close the connections, also of the running event loop. The App stays usable."""
        if self._opened is not None:
            await self._opened.aclose()
