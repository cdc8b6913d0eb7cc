"""The demo's App: the background work of a small web shop.

Its worker is `rota work --app rota.demo.jobs:app`.
"""

from __future__ import annotations

import asyncio
import csv
import http.client
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg_pool import ConnectionPool

from rota.app import App
from rota.declare.context import Context
from rota.declare.files import write_file
from rota.declare.jobs import Jobs
from rota.model.retry import Fixed

SCHEMA = "rota_demo"
FILES = "ROTA_DEMO_FILES"
"""The directory of the shop's files."""
LIFELINE = "ROTA_DEMO_LIFELINE"
"""A pipe that only the demo holds open: however the demo ends, its workers notice and stop."""
FILE_KEPT_S = 86_400.0
PAGES = 10
PARTNER_TIMEOUT_S = 5.0

jobs = Jobs()


@dataclass(frozen=True, slots=True)
class Shop:
    """What the handlers of one worker process share."""

    url: str
    pool: ConnectionPool[psycopg.Connection]
    files: Path


@asynccontextmanager
async def lifespan() -> AsyncIterator[Shop]:
    """Open the shop's database and find its files, once per worker process."""
    url = os.environ["ROTA_DATABASE_URL"]
    if LIFELINE in os.environ:
        asyncio.get_running_loop().add_reader(
            int(os.environ[LIFELINE]), os.kill, os.getpid(), signal.SIGTERM
        )
    with ConnectionPool(url, min_size=1, max_size=4, open=True) as pool:
        yield Shop(url, pool, Path(os.environ[FILES]))


@jobs.job("send_welcome_email", queue="email", timeout="20s", takes_context=True)
def send_welcome_email(ctx: Context, user_id: int) -> dict[str, str]:
    """Write a mail to the outbox and note it in the user's row.

    A second run finds that the file is written, and the note.
    """
    shop: Shop = ctx.state
    with shop.pool.connection() as connection:
        row = connection.execute(
            "select email from rota_demo_app.app_user where id = %s", [user_id]
        ).fetchone()
        if row is None:
            raise LookupError(f"no user {user_id}")
        message_id = f"<{ctx.job.origin_id}@shop.example>"
        mail = shop.files / "outbox" / f"{user_id}.eml"
        with write_file(mail, key=f"welcome_email:user:{user_id}", mode="w") as file:
            if not file.done:
                file.write(
                    f"To: {row[0]}\nMessage-ID: {message_id}\nSubject: Welcome\n\nWelcome!\n"
                )
        connection.execute(
            "update rota_demo_app.app_user set welcomed_at = now() "
            "where id = %s and welcomed_at is null",
            [user_id],
        )
    return {"message_id": message_id}


@jobs.job("clean_up", priority=-10, takes_context=True)
def clean_up(ctx: Context) -> dict[str, int]:
    """Delete expired sessions, and temporary files that were not changed for a day."""
    shop: Shop = ctx.state
    with shop.pool.connection() as connection:
        sessions = connection.execute(
            "delete from rota_demo_app.app_session where expires_at < now()"
        ).rowcount
    kept_from = time.time() - FILE_KEPT_S
    stale = [file for file in (shop.files / "tmp").iterdir() if file.stat().st_mtime < kept_from]
    for file in stale:
        file.unlink(missing_ok=True)
    return {
        "sessions": sessions,
        "files": len(stale),
        "files_left": sum(1 for _ in (shop.files / "tmp").iterdir()),
    }


class PartnerError(Exception):
    """The partner's server refused the request."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"the partner answered {status_code}")
        self.status_code = status_code


@jobs.job(
    "tell_partner",
    queue="webhook",
    max_attempts=5,
    retry=Fixed("1s", jitter=0),
    timeout="10s",
    takes_context=True,
)
def tell_partner(ctx: Context, url: str, user_id: int) -> dict[str, int]:
    """POST a new user to the partner's server, once. The status code decides whether a retry
    helps; the partner knows the key, so what is uncertain is sent again."""
    key = f"tell_partner:user:{user_id}"
    status = ctx.effect(key, if_uncertain="repeat").call(_post, url, user_id, key)
    return {"status_code": status}


def _post(url: str, user_id: int, key: str) -> int:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(
        address.hostname or "", address.port, timeout=PARTNER_TIMEOUT_S
    )
    try:
        connection.request(
            "POST",
            address.path,
            body=f'{{"user_id": {user_id}}}',
            headers={"Content-Type": "application/json", "Idempotency-Key": key},
        )
        status_code = connection.getresponse().status
    finally:
        connection.close()
    if status_code >= 300:
        raise PartnerError(status_code)
    return status_code


@jobs.job("import_contacts", max_attempts=3, retry=Fixed("1s", jitter=0), takes_context=True)
def import_contacts(ctx: Context, file: str) -> None:
    """Create a user for each line of a CSV file: all of them or none, together with the success of
    the job."""
    shop: Shop = ctx.state
    with ctx.transaction() as connection, (shop.files / file).open(newline="") as lines:
        for number, line in enumerate(csv.DictReader(lines), start=2):
            if "@" not in line["email"]:
                raise ValueError(f"{file}, line {number}: {line['email']!r} is no address")
            connection.execute(
                "insert into rota_demo_app.app_user (email) values (%s)", [line["email"]]
            )


@jobs.job(
    "build_report", queue="report", lease="2s", retry=Fixed("1s", jitter=0), takes_context=True
)
async def build_report(ctx: Context, report: str, users: int) -> dict[str, int]:
    """Count the users page by page.

    A second attempt continues where the first one stopped: a page is complete, or absent.
    """
    shop: Shop = ctx.state
    size = -(-users // PAGES)
    async with await psycopg.AsyncConnection.connect(shop.url, autocommit=True) as connection:
        for page in range(1, PAGES + 1):
            await connection.execute(
                """insert into rota_demo_app.app_report_page (report, page, users, worker)
                   select %(report)s, %(page)s, count(*), %(worker)s
                   from (
                     select from rota_demo_app.app_user
                     where id > %(after)s and id <= %(to)s
                     for share
                   ) counted
                   where not exists (
                     select from rota_demo_app.app_report_page
                     where report = %(report)s and page = %(page)s
                   )
                   on conflict do nothing""",
                {
                    "report": report,
                    "page": page,
                    "after": (page - 1) * size,
                    "to": page * size,
                    "worker": ctx.worker,
                },
            )
    return {"pages": PAGES}


app = App(schema=SCHEMA, jobs=[jobs], lifespan=lifespan)
