"""Jobs, attempts, schedules and queues as read-only models of Django. `app` acts on them."""

from __future__ import annotations

from typing import Any

from django.db import models

from rota.integrations.django.django_app import find_app
from rota.model.job import Status


class OnAlias(models.Manager[Any]):
    """Reads from the database that ROTA names, whatever the routers say."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().using(find_app().using)


def name_table(name: str) -> str:
    """Return a table or view of Rota's schema in a form that Django leaves unquoted."""
    return f'"{find_app().schema}"."{name}"'


class ReadOnly(models.Model):
    """A row of Rota's schema."""

    objects = OnAlias()

    class Meta:
        abstract = True
        managed = False
        default_permissions = ("view",)


class JobRow(ReadOnly):
    """A job, unfinished or finished. `app.get(row.id)` has its arguments, without its secrets."""

    id: Any = models.BigIntegerField(primary_key=True)
    job_type: Any = models.TextField()
    queue: Any = models.TextField()
    status: Any = models.TextField(choices=[(status.value, status.value) for status in Status])
    priority: Any = models.SmallIntegerField()
    attempts: Any = models.IntegerField()
    max_attempts: Any = models.IntegerField()
    run_at: Any = models.DateTimeField()
    created_at: Any = models.DateTimeField()
    started_at: Any = models.DateTimeField(null=True)
    finished_at: Any = models.DateTimeField(null=True)
    key: Any = models.TextField(null=True, db_column="idempotency_key")
    group_key: Any = models.TextField(null=True)
    schedule: Any = models.TextField(null=True)
    error_type: Any = models.TextField(null=True)
    last_error: Any = models.TextField(null=True)
    locked_by: Any = models.TextField("worker", null=True)
    release: Any = models.TextField(null=True)

    class Meta(ReadOnly.Meta):
        db_table = name_table("jobs")
        verbose_name = "job"
        permissions = [
            *(
                (f"{verb}_job", f"Can {verb} jobs")
                for verb in ("retry", "cancel", "discard", "archive", "enqueue")
            ),
            ("resolve_effect", "Can resolve effects"),
            ("reset_breaker", "Can reset breakers"),
        ]

    def __str__(self) -> str:
        return f"{self.id} {self.job_type}"


class AttemptRow(ReadOnly):
    """An attempt that did not succeed."""

    job: Any = models.BigIntegerField()
    attempt: Any = models.IntegerField()
    job_type: Any = models.TextField()
    outcome: Any = models.TextField()
    error_type: Any = models.TextField(null=True)
    message: Any = models.TextField(null=True)
    stack: Any = models.TextField(null=True)
    worker: Any = models.TextField()
    release: Any = models.TextField(null=True)
    started_at: Any = models.DateTimeField(null=True)
    finished_at: Any = models.DateTimeField(primary_key=True)
    """Django needs one column as the primary key; two attempts may have ended at one time."""

    class Meta(ReadOnly.Meta):
        db_table = name_table("attempt")
        verbose_name = "failed attempt"


class ScheduleRow(ReadOnly):
    """A schedule."""

    name: Any = models.TextField(primary_key=True)
    job_type: Any = models.TextField()
    cron: Any = models.TextField(null=True)
    timezone: Any = models.TextField()
    next_run_at: Any = models.DateTimeField(null=True)
    last_run_at: Any = models.DateTimeField(null=True)
    last_job: Any = models.BigIntegerField(null=True)
    last_error: Any = models.TextField(null=True)
    paused_at: Any = models.DateTimeField(null=True)
    paused_by: Any = models.TextField(null=True)
    paused_why: Any = models.TextField(null=True)
    disabled_at: Any = models.DateTimeField(null=True)

    class Meta(ReadOnly.Meta):
        db_table = name_table("schedule")
        verbose_name = "schedule"
        permissions = [
            (f"{verb}_schedule", f"Can {verb} schedules") for verb in ("pause", "resume", "trigger")
        ]

    def __str__(self) -> str:
        return str(self.name)


class QueueRow(ReadOnly):
    """A queue."""

    name: Any = models.TextField(primary_key=True)
    max_running: Any = models.IntegerField(null=True)
    paused_at: Any = models.DateTimeField(null=True)
    paused_until: Any = models.DateTimeField(null=True)
    paused_by: Any = models.TextField(null=True)
    paused_why: Any = models.TextField(null=True)

    class Meta(ReadOnly.Meta):
        db_table = name_table("queues")
        verbose_name = "queue"
        permissions = [
            (f"{verb}_queue", f"Can {verb} queues") for verb in ("pause", "resume", "limit")
        ]

    def __str__(self) -> str:
        return str(self.name)
