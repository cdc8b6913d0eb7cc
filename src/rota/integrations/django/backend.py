"""Rota as a backend of Django's tasks: `django.tasks` of Django 6, or the backport `django-tasks`.

Each task is a job type named by its function's path; its jobs have the arguments as `args` and
`kwargs`. A worker knows the tasks of each installed app's `tasks.py`, and of what it imports.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.checks import Error
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django.utils.timezone import is_naive, make_aware, now

from rota.client.base import ID_MAX
from rota.declare.context import Context
from rota.declare.job_type import JobType
from rota.errors import JobNotFound, RotaError
from rota.integrations.django.django_app import find_app
from rota.model.job import Enqueued, Job, Status
from rota.model.outcome import Errored, find_outcome, is_stop
from rota.model.retry import RetryPolicy
from rota.model.settle import settle
from rota.model.units import Duration
from rota.store import ops
from rota.store.driver import Operation, Query, Row
from rota.store.ops.read import AttemptRecord

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import signals
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.utils.json import normalize_json
else:
    from django_tasks import signals
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.utils import normalize_json

logger = logging.getLogger("rota")

DEFAULTS = ("max_attempts", "timeout", "retry", "expires")
"""The options of a job type that the backend's OPTIONS, and a task, may have."""
RUN_AFTER = "run_after"
"""The key in a job's meta for the task's run_after."""
_STATUSES = {
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    Status.DEAD: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}
"""All other statuses are READY: a failed job is executed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaTask(Task):  # type: ignore[type-arg]  # not generic in Django itself
    """A task with options of Rota: `@task(max_attempts=8, timeout="20s", key=…)`.

    Without an option a task has that of the backend's OPTIONS, otherwise the default of a job type.
    """

    max_attempts: int | None = None
    timeout: Duration | None = None
    expires: Duration | None = None
    retry: RetryPolicy | None = None
    key: Callable[..., str] | None = None
    """Makes the key of a job from the arguments: a second task with the same key is not enqueued,
    and returns the result of the first."""


class RotaBackend(BaseTaskBackend):
    """The backend. It enqueues in the transaction of Django's connection."""

    task_class = RotaTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := sorted(self.options.keys() - DEFAULTS):
            raise ValueError(
                f"TASKS[{alias!r}]: OPTIONS has no option {unknown[0]!r}; it has "
                f"{', '.join(DEFAULTS)}"
            )

    def check(self, **_: Any) -> list[Any]:
        """Check that INSTALLED_APPS has Rota's app, which makes the tables and finds the tasks."""
        if apps.is_installed("rota.integrations.django"):
            return []
        text = "TASKS names Rota, and INSTALLED_APPS lacks 'rota.integrations.django'"
        return [Error(text, id="rota.E003")]

    def validate_task(self, task: Task[..., Any]) -> None:
        """Refuse a task that cannot be run; declare its job type."""
        super().validate_task(task)
        if apps.apps_ready and (lacking := self.check()):  # `manage.py check` may not ask
            raise ImproperlyConfigured(lacking[0].msg)
        key = getattr(task, "key", None)
        if key is not None and not callable(key):
            raise InvalidTask(f"The key of a task is a function, not {key!r}.")
        self.declare(task)

    def declare(self, task: Task[..., Any]) -> JobType[..., ..., Any]:
        """Return the job type of a task; declare it where it is new."""
        app, path = find_app(), task.module_path
        app.more_queues |= {task.queue_name, *self.queues}
        found = app._type_of(path)
        if found is not None:
            return found
        if apps.ready:
            logger.warning("no worker imports the task %s: do so in tasks.py of an app", path)

        def run(
            context: Context, args: list[Any] | None = None, kwargs: dict[str, Any] | None = None
        ) -> Any:
            return self.run(import_string(path), context, args or [], kwargs or {})

        own = {name: getattr(task, name, None) for name in DEFAULTS}
        options = {
            **self.options,
            **{name: value for name, value in own.items() if value is not None},
        }
        try:
            made: JobType[..., ..., Any]
            made = app.job(path, takes_context=True, queue=task.queue_name, **options)(run)
            return made
        except RotaError as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Task[..., Any], args: Any, kwargs: Any) -> Any:
        """Enqueue a job in the transaction of Django's connection; return it as a result."""
        self.validate_task(task)
        given = {"args": normalize_json(list(args)), "kwargs": normalize_json(kwargs)}
        options: dict[str, Any] = {"queue": task.queue_name, "priority": task.priority}
        if task.run_after is not None:
            at = make_aware(task.run_after) if is_naive(task.run_after) else task.run_after
            options |= {"run_at": at, "meta": {RUN_AFTER: task.run_after.isoformat()}}
        make_key = getattr(task, "key", None)
        if make_key is not None:
            options["key"] = make_key(*args, **kwargs)
        job = self.declare(task).using(**options).enqueue(**given)
        result = self._make_new(task, job, given) if job.created else None
        result = result or self.get_result(str(job.id))
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def _make_new(
        self, task: Task[..., Any], job: Enqueued, given: dict[str, Any]
    ) -> TaskResult[..., Any] | None:
        """Return the result for an inserted job, without a slow read of the job; None: a worker has
        finished the job already."""
        created = find_app()._run(_read_created(job.id))
        if not created:
            return None
        return TaskResult(
            task=task,
            id=str(job.id),
            status=TaskResultStatus.READY,
            enqueued_at=created[0][0],
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            backend=self.alias,
            errors=[],
            worker_ids=[],
            **given,
        )

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Read a job as a result. Raises TaskResultDoesNotExist."""
        text = str(result_id)
        if not text.isdecimal() or int(text) > ID_MAX:
            raise TaskResultDoesNotExist(result_id)
        try:
            job, attempts = find_app()._run(_read(int(text)))
            task = import_string(job.job_type)
        except (JobNotFound, ImportError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        if not isinstance(task, Task):
            raise TaskResultDoesNotExist(result_id)
        return self.make_result(task, job, attempts)

    def make_result(
        self, task: Task[..., Any], job: Job, attempts: Sequence[AttemptRecord] = ()
    ) -> TaskResult[..., Any]:
        """Return a job and its failed attempts as a result."""
        run_after = (job.meta or {}).get(RUN_AFTER)
        failed = [attempt for attempt in attempts if attempt.error_type is not None]
        workers = [attempt.worker for attempt in failed][: job.attempts]
        # A person may have moved the job to a queue that is not in the backend's QUEUES.
        has_queue = not self.queues or job.queue in self.queues
        finished_at = job.finished_at or (job.failed_at if job.status == Status.DEAD else None)
        result: TaskResult[..., Any] = TaskResult(
            task=task.using(
                priority=job.priority,
                queue_name=job.queue if has_queue else task.queue_name,
                run_after=None if run_after is None else datetime.fromisoformat(run_after),
                backend=self.alias,
            ),
            id=str(job.id),
            status=_STATUSES.get(job.status, TaskResultStatus.READY),
            enqueued_at=job.created_at,
            started_at=next(
                (attempt.started_at for attempt in failed if attempt.started_at), job.started_at
            ),
            last_attempted_at=job.started_at,
            finished_at=finished_at,
            args=job.payload.get("args", []),
            kwargs=job.payload.get("kwargs", {}),
            backend=self.alias,
            errors=[_make_error(attempt) for attempt in failed],
            worker_ids=workers + [job.locked_by or ""] * (job.attempts - len(workers)),
        )
        object.__setattr__(result, "_return_value", job.result)
        return result

    def run(
        self, task: Task[..., Any], context: Context, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Run a task in an attempt of its job, with Django's signals around it."""
        job, earlier = context.job, []
        if job.attempts > 1:
            earlier = find_app()._run(ops.attempts(job.id))
        result = self.make_result(task, job, earlier)
        signals.task_started.send(type(self), task_result=result)
        first: tuple[Any, ...] = (TaskContext(task_result=result),) if task.takes_context else ()
        try:
            value = normalize_json(task.call(*first, *args, **kwargs))
        except BaseException as error:
            end = find_outcome(error) or Errored(error)
            ended = settle(job, end, self.declare(task)._declaration.rules).status
            if not is_stop(error) and ended in (Status.DEAD, Status.CANCELLED):
                path = f"{type(error).__module__}.{type(error).__qualname__}"
                text = "".join(format_exception(error))
                result.errors.append(TaskError(exception_class_path=path, traceback=text))
                self._finish(result, TaskResultStatus.FAILED)
            raise
        object.__setattr__(result, "_return_value", value)
        self._finish(result, TaskResultStatus.SUCCESSFUL)
        return value

    def _finish(self, result: TaskResult[..., Any], status: Any) -> None:
        object.__setattr__(result, "finished_at", now())
        object.__setattr__(result, "status", status)
        signals.task_finished.send(type(self), task_result=result)


def _make_error(attempt: AttemptRecord) -> TaskError:
    """Return the error of an attempt. Built-in errors and Rota's own errors are stored without
    their module."""
    name = attempt.error_type or "RotaError"
    if "." not in name:
        name = f"{'builtins' if hasattr(builtins, name) else 'rota.errors'}.{name}"
    return TaskError(exception_class_path=name, traceback=attempt.stack or attempt.message or "")


def _read_created(id_: int) -> Operation[list[Row]]:
    return (yield Query("job_created", {"id": id_}))


def _read(id_: int) -> Operation[tuple[Job, list[AttemptRecord]]]:
    job = yield from ops.get(id_)
    return job, [] if job.attempts == 0 else (yield from ops.attempts(id_))
