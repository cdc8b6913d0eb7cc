"""What both backends of Django's tasks have in common."""

from __future__ import annotations

import os
from typing import Any

from bench.peers.harness import KINDS, Harness, Kind, library


class DjangoTasks(Harness):
    """A site; its worker is a command of manage.py."""

    def setup_django(self) -> None:
        """Load the site."""
        os.environ["PEERS_SETUP"] = self.setup.name
        os.environ["DJANGO_SETTINGS_MODULE"] = "bench.peers.django_site.settings"
        # The benchmark's loop does nothing else, so plain calls may be made within it.
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
        library("django").setup()
        tasks = library("bench.peers.django_site.tasks")
        self._tasks: dict[Kind, Any] = {kind: getattr(tasks, kind) for kind in KINDS}

    def command(self, *arguments: str) -> None:
        """Run a command of manage.py."""
        library("django.core.management").execute_from_command_line(["manage.py", *arguments])

    async def prepare(self) -> None:
        self.setup_django()
        self.command("migrate", "-v", "0")

    async def open(self) -> None:
        self.setup_django()

    async def one(self, kind: Kind, n: int) -> None:
        self._tasks[kind].enqueue(n)

    async def bulk(self, kind: Kind, numbers: range) -> None:
        backend, task = library("django.tasks").default_task_backend, self._tasks[kind]
        if hasattr(backend, "enqueue_all"):  # of dj_queue alone
            backend.enqueue_all([(task, [n], {}) for n in numbers])
            return
        with library("django.db").transaction.atomic():
            for n in numbers:
                task.enqueue(n)

    async def in_transaction(self, n: int) -> None:
        database = library("django.db")
        with database.transaction.atomic(), database.connection.cursor() as cursor:
            cursor.execute("insert into application (n) values (%s)", [n])
            self._tasks["noop"].enqueue(n)
