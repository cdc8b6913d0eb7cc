"""The App: takes in job types, knows the database, builds workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from rota import embedded
from rota.client import Client
from rota.client.actions import index_by_name
from rota.client.schedules import declare_and_plan
from rota.declare.config import HEALTH_PORT_MAX, SLOTS, WorkerConfig, find_url
from rota.declare.job_type import JobType, make_row
from rota.declare.jobs import Jobs, refuse_duplicate_schedules, refuse_duplicates
from rota.declare.load import load
from rota.declare.options import LEASE_S_MIN
from rota.declare.release import release_of
from rota.declare.schedule import ScheduleOptions
from rota.errors import ConfigurationError, DeclarationError, UsageError
from rota.model.bounds import NAME_MAX, check_integer, check_text
from rota.model.units import Duration, seconds
from rota.observe.events import Bus, Event
from rota.runtime import supervised
from rota.runtime.health_server import answering
from rota.runtime.http import aping, check_url
from rota.runtime.loop import run_alone
from rota.store import migrate, ops
from rota.store.db import Database
from rota.worker.signals import obey_signals, stop_after
from rota.worker.spec import WorkerSpec
from rota.worker.summary import Summary
from rota.worker.worker import Worker

E = TypeVar("E", bound=Event)


class Synced(msgspec.Struct, frozen=True):
    """What `App.sync` declared, by name."""

    job_types: list[str]
    schedules: list[str]


class App(Client):
    """Job types, a database, and what can be done with both. Connects to nothing until first used; safe to create before a fork.

    Args:
        url: libpq URL or connection string. Defaults to ROTA_DATABASE_URL, else to a private embedded PostgreSQL under `.rota/`.
        schema: where Rota's tables are, 1 … 50 of a-z, 0-9 and _. Defaults to ROTA_SCHEMA, else "rota".
        jobs: `Jobs`, or "module:attribute" naming one.
        lease: how long a claim holds a job whose type does not say, at least 1 s. Defaults to 2 minutes.
        release: what to record as the release of the code that ran. Defaults to the version of the distribution that the calling module comes from.
        lifespan: a function that returns an async context manager; entered once per worker process on its loop, its value is `ctx.state`.
        alert_url: where alerts are posted as JSON, over HTTP; see docs/alerts.md. Defaults to ROTA_ALERT_URL, else to nowhere: they are logged.
        notify: whether to use LISTEN/NOTIFY, prepared statements and startup options; False behind a transaction pooler. Defaults to True.

    Raises:
        DeclarationError: the lease is out of range, a Jobs belongs to another App, or two types share a name.
        ConfigurationError: a "module:attribute" leads to no Jobs; when the App is first used: only DATABASE_URL is set, or URL or schema cannot be.
    """

    _database: Database | None = None

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        jobs: Iterable[Jobs | str] = (),
        lease: Duration = "2m",
        release: str | None = None,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        notify: bool = True,
        alert_url: str | None = None,
    ) -> None:
        self.schema = schema if schema is not None else os.environ.get("ROTA_SCHEMA") or "rota"
        self._release = release
        self._module = sys._getframe(1).f_globals.get("__name__")
        self._url = url
        try:
            self._lease_s = seconds(lease, name="lease", least=LEASE_S_MIN)
            if release is not None:
                check_text(release, "release", NAME_MAX)
        except UsageError as error:
            raise DeclarationError(f"App: {error}") from None
        enters: object = lifespan
        if enters is not None and (
            not callable(enters) or isinstance(enters, AbstractAsyncContextManager)
        ):
            raise DeclarationError(
                f"App: lifespan must be a function, which each worker calls anew, not {lifespan!r}"
            )
        self._lifespan = lifespan
        self._notify = notify
        self._alert_url = alert_url
        self._bus = Bus()
        self._own = Jobs()
        self._registries = [self._own]
        self._own.bind(self)
        if isinstance(jobs, str | Jobs):
            raise DeclarationError(f"App(jobs=…) takes a list, as in jobs=[…], not {jobs!r}")
        self._add_jobs([load(given, Jobs) if isinstance(given, str) else given for given in jobs])
        self.job = self._own.job
        """Declare a job type of this App: `@app.job("name", …)`, with the options of `Jobs.job`."""
        self.schedule = self._own.schedule
        """Declare a schedule of this App: `app.schedule("name", "0 2 * * *", job_type.new(…), …)`, with the options of `Jobs.schedule`."""

    def _add_jobs(self, registries: list[Jobs]) -> None:
        """All of them or none: an App that cannot be made leaves its Jobs free for another."""
        for registry in registries:
            if not isinstance(registry, Jobs):
                raise DeclarationError(
                    f"App(jobs=…) takes rota.Jobs or 'module:attribute' texts, not {registry!r}"
                )
            registry.refuse_other(self)
        refuse_duplicates(
            job_type for registry in registries for job_type in registry.types.values()
        )
        refuse_duplicate_schedules(
            schedule for registry in registries for schedule in registry.schedules.values()
        )
        for registry in registries:
            registry.bind(self)
        self._registries += registries

    @property
    def types(self) -> dict[str, JobType[..., ..., Any]]:
        """The job types of this App, by name. Raises DeclarationError when two share one: a Jobs may be added to after it was taken in."""
        refuse_duplicates(
            job_type for registry in self._registries for job_type in registry.types.values()
        )
        return {
            name: job_type
            for registry in self._registries
            for name, job_type in registry.types.items()
        }

    def _type_of(self, name: str) -> JobType[..., ..., Any] | None:
        return index_by_name(self.types).get(name)

    @property
    def url(self) -> str | None:
        """The database's URL, from code or the environment; None means the embedded server. Raises ConfigurationError."""
        return find_url(self._url)

    @property
    def notify(self) -> bool:
        """Whether it uses LISTEN/NOTIFY and the settings of a session."""
        return self._notify

    @property
    def database(self) -> Database:
        """The database; starts the embedded server where no URL is given, and migrates it."""
        if self._database is not None:
            return self._database
        url = self.url
        if url is None:
            url = embedded.start()
            migrate.migrate(url, self.schema)
        made = Database(url, self.schema, notify=self._notify)
        # In one step, so that threads which are the first at once share one set of pools.
        kept: Database = vars(self).setdefault("_database", made)
        return kept

    @property
    def release(self) -> str:
        """What is recorded as the release of the code that ran."""
        if self._release is None:
            self._release = release_of(
                self._module
            )  # asks all installed distributions, so not before it is needed
        return self._release

    def on(self, kind: type[E], listener: Callable[[E], object]) -> None:
        """Call `listener(event)` for each event of that class in this process: `app.on(rota.events.JobDead, report)`. It must return quickly; when it
        fails, that is logged, and no job is harmed."""
        self._bus.on(kind, listener)

    # Work

    def sync(self) -> Synced:
        """Declare the job types and schedules of this App in the database, as a worker's start
        does; return their names. Run it at deploy, before the first INSERT.

        Raises:
            DeclarationError: two job types or two schedules share a name.
            SchemaMissing: the schema was never migrated.
        """
        self.database.run(migrate.check(self.schema))
        types, schedules = self.types, self._find_schedules()
        self.database.run(ops.declare(self._encode_types(), self.release))
        self.database.run(declare_and_plan(self._encode_schedules(), self.release))
        return Synced(sorted(types), sorted(schedules))

    def run(
        self,
        *,
        queues: Mapping[str, int] | None = None,
        slots: int = SLOTS,
        grace: Duration = "30s",
        health_port: int | None = None,
        ping: str | None = None,
    ) -> Summary:
        """Work until SIGTERM or SIGINT: then claim nothing more, finish what runs within the grace period, hand the rest back, record results.

        A second signal ends the grace period.

        Args:
            queues: slots by queue. Defaults to every queue of the App's types plus `default`, sharing `slots`.
            slots: jobs at once over all queues, 1 … 10,000; only without `queues`.
            grace: how long running handlers may go on after the signal.
            health_port: where `/healthz` and `/readyz` answer over HTTP, on all interfaces. Defaults to nowhere.
            ping: URL of a dead-man switch, called about each minute after a good pass of upkeep. Defaults to none.

        Raises:
            ConfigurationError: the health port is taken, or a URL cannot be called.
        """
        working = self.arun(
            queues=queues,
            slots=slots,
            grace=grace,
            health_port=health_port,
            ping=ping,
            signals=True,
        )
        return run_alone("run", working, self.aclose)

    async def arun(
        self,
        *,
        queues: Mapping[str, int] | None = None,
        slots: int = SLOTS,
        grace: Duration = "30s",
        health_port: int | None = None,
        ping: str | None = None,
        signals: bool = False,
    ) -> Summary:
        """`run` on the running loop: until cancelled; with `signals`, also until SIGTERM or SIGINT."""
        config = self._config(queues, slots, grace, ping)
        if health_port is not None:
            check_integer(health_port, "health_port", 1, HEALTH_PORT_MAX)
        return await self._work(config, health_port=health_port, signals=signals)

    def drain(
        self,
        *,
        queues: Mapping[str, int] | None = None,
        slots: int = SLOTS,
        for_: Duration | None = None,
        grace: Duration = "30s",
        ping: str | None = None,
        signals: bool = False,
    ) -> Summary:
        """Do one pass of all upkeep, then work until a look at everything came back empty and this worker's own jobs are done.

        Args:
            for_: claim nothing more after so long. Defaults to no limit.
            ping: URL of a dead-man switch, called when all went well; not when the drain was told to stop. Defaults to none.

        Raises:
            CopiedDatabase: the database is a restored copy; nothing was claimed, and no job changed.
            DatabaseUnavailable: the database was unreachable, at the start or later.
            ConfigurationError: a URL cannot be called.
        """
        draining = self.adrain(
            queues=queues, slots=slots, for_=for_, grace=grace, ping=ping, signals=signals
        )
        return run_alone("drain", draining, self.aclose)

    async def adrain(
        self,
        *,
        queues: Mapping[str, int] | None = None,
        slots: int = SLOTS,
        for_: Duration | None = None,
        grace: Duration = "30s",
        ping: str | None = None,
        signals: bool = False,
    ) -> Summary:
        """`drain` on the running loop."""
        for_s = None if for_ is None else seconds(for_, name="for_")
        config = replace(self._config(queues, slots, grace, ping), drain=True, drain_for_s=for_s)
        return await self._work(config, signals=signals)

    async def _drain_within(self, within_s: float, config: WorkerConfig) -> Summary:
        """Drain; after so long stop, with the grace period for what runs then."""
        config = replace(
            config,
            drain=True,
            drain_for_s=within_s,
            stop_after_s=within_s,
            alert_url=self._find_alert_url(),
        )
        return await self._work(config, signals=False)

    def _config(
        self, queues: Mapping[str, int] | None, slots: int, grace: Duration, ping: str | None
    ) -> WorkerConfig:
        return WorkerConfig(
            queues=None if queues is None else dict(queues),
            slots=slots,
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
        by_name = index_by_name(self.types)
        if not by_name:
            raise ConfigurationError(
                "this App has no job types: a worker would have nothing to do; declare some, or give App(jobs=[…])"
            )
        spec = WorkerSpec(
            types=by_name,
            release=self.release,
            lease_s=self._lease_s,
            declaration=self._encode_types(),
            config=config,
            lifespan=self._lifespan,
            module=self._module,
            schedules=self._encode_schedules(),
        )
        worker = Worker(self.database, spec, self._bus)
        with (
            answering(health_port, worker.health.liveness, worker.health.readiness),
            obey_signals(worker, signals=signals),
        ):
            await self.database.arun(migrate.check(self.schema))
            if supervised.current is not None:
                supervised.current.confirm_fit()
            with stop_after(worker, config.stop_after_s):
                report = await worker.run()
            if config.drain and config.ping_url is not None and not worker.is_stopping:
                await aping(config.ping_url)  # a signal meanwhile ends no drain that is done
        return report

    def _encode_types(self) -> str:
        rows = [make_row(job_type, self._lease_s) for job_type in self.types.values()]
        return msgspec.json.encode(rows).decode()

    def _encode_schedules(self) -> str:
        rows = [schedule.make_row() for schedule in self._find_schedules().values()]
        return msgspec.json.encode(rows).decode()

    def _find_schedules(self) -> dict[str, ScheduleOptions]:
        refuse_duplicate_schedules(
            schedule for registry in self._registries for schedule in registry.schedules.values()
        )
        return {
            name: schedule
            for registry in self._registries
            for name, schedule in registry.schedules.items()
        }

    def close(self) -> None:
        """Close the connections that enqueueing and reading opened. The App can be used again."""
        if self._database is not None:
            self._database.close()

    async def aclose(self) -> None:
        """Close the connections, those of the running loop too."""
        if self._database is not None:
            await self._database.aclose()
