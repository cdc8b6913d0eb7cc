"""Rota: background and scheduled work for an application that already has PostgreSQL.

What calls return, and the types of annotations, are in `rota.records`; all exceptions in
`rota.errors`, all events in `rota.events`. Import `rota.integrations.asgi` or `.wsgi` for a web
server, and `rota.logs` for the format of log lines.
"""

import sys as _sys
import typing as _typing

from rota import errors, records
from rota.app import App
from rota.declare.breaker import Breaker
from rota.declare.chunk import Chunk
from rota.declare.context import Context, context
from rota.declare.files import write_file
from rota.declare.groups import Ordered, Process, Unique
from rota.declare.job_type import JobType
from rota.declare.jobs import Jobs
from rota.declare.rate_limit import RateLimit
from rota.declare.release import VERSION as __version__
from rota.declare.secret import Personal, Secret
from rota.declare.taking import result_of, results_of
from rota.errors import (
    AttemptCancelled,
    AttemptTimeout,
    DatabaseUnavailable,
    JobNotFound,
    JoinTimeout,
    KeyTaken,
    PayloadError,
    RotaError,
    UsageError,
    WrongStatus,
)
from rota.model.job import Enqueued, Job, Status
from rota.model.outcome import Cancel, Dead, RateLimited, Retry, Snooze, WaitFor
from rota.model.retry import Delays, Exponential, Fixed, Linear, Quadratic
from rota.observe import events

__all__ = [
    "App",
    "AttemptCancelled",
    "AttemptTimeout",
    "Breaker",
    "Cancel",
    "Chunk",
    "Context",
    "DatabaseUnavailable",
    "Dead",
    "Delays",
    "Enqueued",
    "Exponential",
    "Fixed",
    "Job",
    "JobNotFound",
    "JobType",
    "Jobs",
    "JoinTimeout",
    "KeyTaken",
    "Linear",
    "Ordered",
    "PayloadError",
    "Personal",
    "Process",
    "Quadratic",
    "RateLimit",
    "RateLimited",
    "Retry",
    "RotaError",
    "Secret",
    "Snooze",
    "Status",
    "Unique",
    "UsageError",
    "WaitFor",
    "WrongStatus",
    "__version__",
    "context",
    "errors",
    "events",
    "records",
    "result_of",
    "results_of",
    "write_file",
]


_CALLED_HERE = {
    **dict.fromkeys(("group", "chord"), "app.batch([job_type.new(…), …], then=job_type.new(…))"),
    "chain": "app.enqueue(first.new(…), then=[second.new(…), third.new(…)])",
    "shared_task": "jobs = rota.Jobs(), @jobs.job and rota.App(jobs=[jobs])",
    "AsyncResult": "app.get(id), or app.join(id), which waits",
    **dict.fromkeys(("Celery", "Queue", "Scheduler"), "rota.App"),
    **dict.fromkeys(("task", "actor", "job"), "@app.job"),
    "cron": 'app.schedule("name", "0 2 * * *", job_type.new(…))',
    "Worker": "`rota work`, or app.run()",
    "Reject": "raise rota.Dead(…)",
    "Ignore": "raise rota.Cancel(…)",
}
"""What other libraries call parts of a module."""


def __dir__() -> list[str]:
    return __all__


if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> _typing.NoReturn:
        on_app = name.lower()
        is_call = not name.startswith("_") and hasattr(App, on_app)
        known = {**({name: f"app.{on_app}"} if is_call else {}), **_CALLED_HERE}
        if name in known and _sys._getframe(1).f_code.co_name == "_handle_fromlist":
            # Python leaves out what the AttributeError of a `from rota import task` says.
            raise ImportError(f"cannot import name {name!r} from 'rota'; in Rota: {known[name]}")
        apart = dict.fromkeys(("integrations", "kinds", "logs", "testing"), f"import rota.{name}")
        errors.refuse_attribute("module 'rota'", name, known | apart)
