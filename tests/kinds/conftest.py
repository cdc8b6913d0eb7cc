"""What tests of webhooks need: a receiver, and an App with webhooks. Mail and reports have their
own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rota
from rota.kinds import webhook
from tests.support.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def make(database: str) -> Iterator[Any]:
    """Makes an App with webhooks, migrated and declared."""
    apps: list[rota.App] = []

    def make(**options: Any) -> tuple[rota.App, webhook.Webhooks]:
        hooks = webhook.Webhooks(**options)
        apps.append(rota.App(database, jobs=[hooks.jobs], release="1"))
        apps[-1].migrate()
        apps[-1].sync()
        return apps[-1], hooks

    yield make
    for app in apps:
        app.close()
