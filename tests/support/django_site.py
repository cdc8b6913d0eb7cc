"""Django without a project: databases of its own, added and taken away."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg.conninfo
from django.conf import settings
from django.db import connections

_numbers = itertools.count()


@contextmanager
def django_database(url: str, **options: Any) -> Iterator[str]:
    """Yield the alias of a database, with these OPTIONS, whose sessions are in another time zone.

    It is there for the threads of the block.
    """
    if not settings.configured:
        settings.configure(
            DATABASES={}, USE_TZ=False, TIME_ZONE="America/New_York", LOGGING_CONFIG=None
        )
        django.setup()
    place = psycopg.conninfo.conninfo_to_dict(url)
    alias = f"rota{next(_numbers)}"
    connections.settings[alias] = {
        **connections.settings["default"],
        "ENGINE": "django.db.backends.postgresql",
        "NAME": place["dbname"],
        "USER": place["user"],
        "HOST": place["host"],
        "PORT": place["port"],
        "OPTIONS": options,
    }
    try:
        yield alias
    finally:
        del connections.settings[alias]
