"""An application that reads with Django's ORM: `python -m tests.worker.django_shop OPTIONS` is its
worker, which checks Django's connections around each attempt."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

import rota
from rota.integrations.django import check_connections

app = rota.App(middleware=[check_connections])
all_threads = threading.Barrier(3)


@app.job("meet")
def meet() -> None:
    """Read in each of the three threads; the fourth slot is for urgent jobs."""
    read.func()
    all_threads.wait(60)


@app.job("read", retry=rota.Fixed("1s", jitter=0))
def read() -> int:
    """Read by way of Django."""
    with connection.cursor() as cursor:
        cursor.execute("select 7")
        [seven] = cursor.fetchone()
    return int(seven)


@app.job("aread", retry=rota.Fixed("1s", jitter=0))
async def aread() -> int:
    """Read as async code does."""
    return await sync_to_async(read.func)()


if __name__ == "__main__":
    place = conninfo_to_dict(os.environ["ROTA_DATABASE_URL"])
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": place["dbname"],
        "USER": place["user"],
        "HOST": place["host"],
        "PORT": place["port"],
        # With an age Django keeps a connection between requests, here between jobs.
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
    }
    settings.configure(DATABASES={"default": database})
    django.setup()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    app.run(**json.loads(sys.argv[1]))
