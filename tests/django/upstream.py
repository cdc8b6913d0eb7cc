"""What Django's own tests of tasks expect of a backend that runs at once, and of one that keeps
what it gets: Rota with a Harness, and Rota with a list of its jobs."""

from __future__ import annotations

from typing import Any, ClassVar

from rota.integrations.django import RotaBackend, app
from rota.integrations.django.schema import flush
from rota.testing import Harness


class Immediate(RotaBackend):
    """Runs each job as soon as it is enqueued."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue and run a job."""
        result = super().enqueue(task, args, kwargs)
        with Harness(app) as harness:
            harness.perform(int(result.id))
        result.refresh()
        return result


class Dummy(RotaBackend):
    """Shows what was enqueued."""

    results: ClassVar[list[Any]] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a job, and remember it."""
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self) -> None:
        """Delete all jobs."""
        self.results.clear()
        flush(app)
