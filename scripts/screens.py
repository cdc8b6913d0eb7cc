"""Records what commands print, for the pictures of terminals: `make pictures`.

    python scripts/screens.py

`rota top` and `rota job` are run beside real rows and a clock that stands still, so they print the
same each time. `rota demo` is run as it is, which takes a minute. All of it comes to
`scripts/screens/`; `scripts/drawings.py` draws it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

import rota
from rota import embedded

ROOT = Path(__file__).resolve().parent.parent
SCREENS = ROOT / "scripts" / "screens"
NIGHT = "2026-11-30 02:00:00+00"
COMMANDS = {"top": (69, "top", "--once"), "job": (62, "job", "1")}
"""The screens of the shop, each with the width of its terminal, which a telephone can show."""


class Night:
    """A night of a shop, whose workers speak SQL: so each time and name is as it is here."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        # For the reaper the server has been up for long, as a private one always is.
        self.run("set private_server.stops_with_its_users = 'on'")
        self.go_to(0)

    def go_to(self, seconds: float) -> None:
        """Let the clock of the database stand so long after the beginning."""
        self._connection.execute(
            "create or replace function rota.clock() returns timestamptz language sql stable "
            "parallel safe as "
            f"$$ select timestamptz '{NIGHT}' + interval '{seconds} seconds' $$".encode()
        )

    def claim(self, job_type: str, worker: str, *, queue: str = "default") -> list[Any]:
        """Claim a job; return its id and the number of the claim."""
        query = "select id, claims from rota.claim(%s, %s, %s, release => 'shop-42')"
        row = self._connection.execute(query, [queue, [job_type], worker]).fetchone()
        assert row is not None
        return [*row]

    def fail(self, claimed: list[Any], error_type: str, message: str, retry_after: str) -> None:
        """End an attempt with an error."""
        query = "select rota.fail(%s, %s, %s, %s, retry_after => %s)"
        self.run(query, *claimed, error_type, message, retry_after)

    def run(self, query: str, *values: object) -> None:
        """Run a statement."""
        self._connection.execute(query.encode(), values)


def play(url: str) -> None:
    """Fill a migrated database with the rows that the screens show."""
    with closing(rota.App(url, release="shop-42")) as app, psycopg.connect(url) as connection:
        connection.autocommit = True

        @app.job("webhook", timeout="20s", lease="1m", max_attempts=8)
        def webhook(endpoint: str, event: str) -> None: ...

        @app.job("mail", queue="mail")
        def mail(user: int) -> None: ...

        @app.job("export", lease="1h", timeout="1h")
        def export(name: str) -> None: ...

        @app.job("invoice", queue="invoices")
        def invoice(order: int) -> None: ...

        night = Night(connection)
        app.sync()
        night.go_to(-3_000)
        night.run("select rota.partitions_ensure(1)")  # that night is over
        app.enqueue(webhook.using(key="order:1042").new("crm", "order.paid"))  # job 1
        lose_and_fail(night)
        night.go_to(-410)
        app.enqueue(export.new("orders"))
        app.enqueue(mail.new(0))
        begin_export_and_fail_mail(night)
        night.go_to(-12)
        app.enqueue_many([mail.new(user) for user in range(1, 38)])
        app.enqueue_many([invoice.new(order) for order in range(1, 13)])
        app.queues.pause("invoices", why="the tax service moves", by="ann")
        night.go_to(-2)
        night.claim("mail", "web-1:311", queue="mail")
        night.claim("mail", "web-3:322", queue="mail")
        night.go_to(0)
        write_as_python(night)


def lose_and_fail(night: Night) -> None:
    """Let a worker die with the webhook, and another one get an error for it."""
    night.go_to(-2_686)
    night.claim("webhook", "web-2:318")
    night.go_to(-2_620)
    night.run("select rota.job_reap('-infinity', 10)")
    night.go_to(-2_619)
    begun = night.claim("webhook", "web-1:311")
    night.go_to(-2_618)
    night.fail(begun, "HTTPStatusError", "503 Service Unavailable", "50 min")


def begin_export_and_fail_mail(night: Night) -> None:
    """Let an export run for minutes, and a mail fail."""
    night.go_to(-400)
    begun = night.claim("export", "web-3:322")
    night.run("select rota.worker_progress(%s, %s, 31, 41, 'pages')", *begun)
    night.go_to(-46)
    begun = night.claim("mail", "web-1:311", queue="mail")
    night.go_to(-44)
    night.fail(begun, "SMTPError", "451 try again later", "5 min")


def write_as_python(night: Night) -> None:
    """Write what workers of Python write with their heartbeats, and of an error."""
    for name, counts in (("web-1:311", (8_412, 37, 1, 2.8)), ("web-3:322", (6_120, 21, 0, 2.1))):
        night.run(
            "update rota.worker set version = '0.1.0', slots = 4, heartbeat_at = rota.clock() - "
            "interval '3 seconds', started_at = rota.clock() - interval '50 min', succeeded = %s, "
            "failed = %s, dead = %s, finished_per_s = %s where name = %s", *counts, name,
        )  # fmt: skip
    night.run("update rota.attempt set verdict_rule = 'status 503' where error_type like 'HTTP%%'")


def main() -> int:
    """Record all screens."""
    SCREENS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        url = embedded.start(Path(place) / "postgres")
        rota.App(url).migrate()
        play(url)
        for name in COMMANDS:
            (SCREENS / f"{name}.txt").write_text(show(url, name), encoding="utf-8")
    (SCREENS / "demo.txt").write_text(record_demo(), encoding="utf-8")
    return 0


def show(url: str, name: str) -> str:
    """Return what a command prints."""
    width, *command = COMMANDS[name]
    environment = {
        **os.environ,
        "ROTA_DATABASE_URL": url,
        "COLUMNS": str(width),
        "TZ": "UTC",
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        [sys.executable, "-m", "rota", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def record_demo() -> str:
    """Run the demo; return what it prints, each line after the seconds since the beginning."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "rota", "demo"],
            cwd=place,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        said = [(time.monotonic() - began, line.rstrip()) for line in process.stdout]
        if process.wait() != 0:
            sys.exit("screens: the demo failed")
    return "".join(f"{at_s:5.1f} {line}".rstrip() + "\n" for at_s, line in shorten(said))


def shorten(said: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out the page of one job, which is a picture of its own, and the text of each SELECT."""
    kept: list[tuple[float, str]] = []
    is_job = False
    for at_s, line in said:
        if line.startswith(("  $ ", "Mon")):
            is_job = line.startswith("  $ rota job ")
        is_select = line.startswith(" " * 11)
        is_second_blank = not line and bool(kept) and not kept[-1][1]
        if not (is_job or is_select or is_second_blank):
            kept.append((at_s, line))
    return kept


if __name__ == "__main__":
    sys.exit(main())
