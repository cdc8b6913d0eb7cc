"""What a worker and a process that runs its handlers send each other."""

from __future__ import annotations

import msgspec

from rota import logs
from rota.model.awaited import JobResult
from rota.model.job import Job
from rota.model.outcome import Failed, Failure, Outcome, Succeeded

# From the worker


class Setup(msgspec.Struct, frozen=True):
    """The first message: the handler to run."""

    worker: str
    release: str
    url: str
    """The address of the database, for `Context.transaction` and effects."""
    schema: str
    notify: bool
    argv: list[str]
    log_level: int
    log_format: logs.Form | None
    """The log format of the worker; None: the application has set up logging."""
    main: dict[str, str]
    """How to import the main module, for `multiprocessing.spawn.prepare`; empty: not needed."""
    app_module: str | None
    """The module of the App, so that a handler can enqueue; None if it is not known."""
    module: str
    qualname: str
    takes_context: bool
    is_async: bool
    arounds: list[tuple[str, str]]
    """What is around each attempt, by module and qualified name; the outermost first."""
    errors: bytes
    """`retry_on` and `fatal_on`, pickled: they load once the modules above are imported."""
    silent_s: float | None = None
    """Seconds without a message after which the worker is gone; None: it sends no `Alive`."""


class RunJob(msgspec.Struct, frozen=True):
    job: Job
    arguments: bytes
    """Pickled: only the handler's module makes them loadable."""
    timeout_s: float
    results: tuple[JobResult, ...] = ()
    """The results of the jobs that it waited for."""
    hidden: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Its secret and personal values, which are masked in all texts."""


class Stop(msgspec.Struct, frozen=True):
    """The attempt should stop. The last message about it: it ends soon, or is killed."""

    why: str


class Alive(msgspec.Struct, frozen=True):
    """The worker is there."""


ToProcess = Setup | RunJob | Stop | Alive


# From the process


class Importing(msgspec.Struct, frozen=True):
    """The interpreter is up: from here on only the application can fail."""


class NotStarted(msgspec.Struct, frozen=True):
    """The machine cannot start the threads that the process needs; the process ends."""

    why: str


class Ready(msgspec.Struct, frozen=True):
    """The handler is imported."""


class NotReady(msgspec.Struct, frozen=True):
    """The handler cannot be imported; the process ends."""

    failure: Failure


class Begun(msgspec.Struct, frozen=True):
    """The process has the job: its handler may run from now on."""


class Stopped(msgspec.Struct, frozen=True):
    """The handler stopped because of a stop request."""


class OfAttempt(msgspec.Struct, frozen=True):
    """A message about an attempt. The next attempt may run by the time it arrives."""

    claim: tuple[int, int]
    """The job and which claim of it."""


class Progressed(OfAttempt, frozen=True):
    """The handler's progress."""

    progress_json: str
    """As `Context._encode_progress` returns it."""


class Completing(OfAttempt, frozen=True):
    """The handler is about to finish the job in a transaction of its own."""


class Ended(OfAttempt, frozen=True):
    """The handler has ended."""

    end: Succeeded | Failed | Outcome | Stopped
