"""What the site does later."""

from __future__ import annotations

import time
import uuid

from django.contrib.auth.models import Group
from django.tasks import task


@task
def noop(n: int) -> None:
    """Do nothing."""


@task
def stamp() -> float:
    """Return when it ran."""
    return time.time()


@task
def work(seconds: float) -> None:
    """Leave a row, and work for a while."""
    Group.objects.create(name=uuid.uuid4().hex)
    time.sleep(seconds)
