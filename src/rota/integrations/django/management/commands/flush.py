"""`manage.py flush` also deletes the jobs. Django flushes after each TransactionTestCase."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush

from rota.integrations.django.django_app import find_app
from rota.integrations.django.schema import flush as flush_jobs
from rota.integrations.django.schema import is_installed


class FlushCommand(flush.Command):
    """Django's command, and the jobs with it."""

    def handle(self, **options: Any) -> None:
        super().handle(**options)
        app = find_app()
        if options["database"] == app.using and is_installed(app):
            flush_jobs(app)


Command = FlushCommand  # the name that Django looks for
