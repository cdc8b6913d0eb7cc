"""Debian's cron, started for real. It takes minutes, so it runs beside the other tests.

The last test reads what it left. `begin` starts this file as a process of its own: a PostgreSQL, a
project with jobs that become due over the minutes, and a cron that sees none of this machine's
crontabs. That cron has a mount and a pid namespace of its own, with which everything it started
ends.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from rota.store.migrate import migrate
from tests.support.guard import locked, until_the_run_ends
from tests.support.server import own_server
from tests.support.wait import eventually
from tests.worker.supervisor import gone

NAME = "test_two_lines_of_a_crontab_do_every_job_once_in_the_night_of_a_server_without_a_daemon"
"""The test that needs it; it comes last, so that it need not wait."""
MINUTES = 3
START_S = 60
LOGS = ("one.log", "two.log")

SHOP = """
from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import rota

app = rota.App(release="shop-1")


def note(what: str, ctx: rota.Context) -> None:
    with Path("notes.txt").open("a") as notes:  # in the directory that the line goes to
        notes.write(f"{what} {ctx.job.id}\\n")


@app.job("nap", takes_context=True)
async def nap(ctx: rota.Context) -> dict[str, object]:
    note("start", ctx)
    note("end", ctx)
    terminals = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name).isatty()]
    return {"environment": dict(os.environ) if ctx.job.priority else {}, "terminals": terminals}


@app.job("feed", takes_context=True)
async def feed(ctx: rota.Context) -> None:
    note("start", ctx)
    for _ in range(5):
        await nap.aenqueue()
    note("end", ctx)


@app.job("stumble", retry=rota.Fixed("20s"), takes_context=True)
async def stumble(ctx: rota.Context) -> None:
    note("start", ctx)
    if ctx.job.attempts == 1:
        raise OSError("not yet")
    note("end", ctx)


@app.schedule("minutely", "* * * * *", catch_up="all", overlap="allow")
@app.job("chime", takes_context=True)
async def chime(ctx: rota.Context) -> None:
    note("start", ctx)
    note("end", ctx)


@app.job("long", takes_context=True)
async def long(ctx: rota.Context) -> None:
    note("start", ctx)
    await asyncio.sleep(75)  # into the minute after the next, beside the drains of that
    note("end", ctx)
"""

# What there is to do: at once, in each of the minutes, and what a worker left that died in the
# middle.
JOBS = """
insert into rota.job (job_type, priority) values ('nap', 7), ('long', 0), ('stumble', 0);
insert into rota.job (job_type, run_at)
  select 'nap', clock_timestamp() + make_interval(secs => 4 * n) from generate_series(0, 40) n;
insert into rota.job (job_type, run_at)
  select 'feed', clock_timestamp() + make_interval(secs => 50 * n) from generate_series(0, 2) n;
insert into rota.job (job_type, status, locked_by, locked_until, claims, attempts, started_at)
  select 'nap', 'running', 'gone', clock_timestamp() - interval '1 second', 1, 1,
    clock_timestamp() - interval '1 minute'
  from generate_series(1, 3);
"""
COUNT = 3 + 41 + 3 + 15 + 3
"""Without those of the schedule, of which there is one each minute."""

# A cron that reads one crontab, which is ours. It is the first process of its namespace: when it
# ends, so does all that it started.
ALONE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec"]
SCRIPT = """
mount -t tmpfs none /run
mount -t tmpfs none /var/spool/cron
mkdir -m 700 /var/spool/cron/crontabs
mount --bind "$1" /etc/cron.d
mount --bind /dev/null /etc/crontab
exec "$0" -f -L 15
"""


@dataclass(frozen=True)
class Night:
    """What is going on, or went on."""

    url: str
    directory: str
    crontab: str
    pid: int
    """Of the process with which everything ends."""

    def log(self, name: str) -> str:
        path = Path(self.directory) / name
        return path.read_text() if path.exists() else ""

    def rest(self) -> None:
        """Stop cron from starting anything, and wait until its jobs have ended."""
        [cron] = psutil.Process(self.pid).children()
        cron.suspend()
        eventually(
            lambda: all(gone(process) for process in cron.children(recursive=True)),
            120,
            what="the drains that cron has started are done",
        )

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def program() -> str | None:
    """Where cron is installed; Debian puts it where only root looks."""
    return shutil.which("cron", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


def missing() -> str | None:
    """Why it cannot be done here."""
    if program() is None:
        return "CRON IS NOT INSTALLED: no drain was woken by cron itself"
    if os.geteuid() != 0:
        return "NOT ROOT: no drain was woken by cron itself"
    if (
        subprocess.run(
            [*ALONE, "mount -t tmpfs none /run"], capture_output=True, check=False
        ).returncode
        != 0
    ):
        return (
            "NO NAMESPACES: no drain was woken by cron itself, as it would read this machine's "
            "crontabs"
        )
    return None


def begin(place: Path) -> None:
    """Begin the night of a test run, unless it has begun; does not wait for anything."""
    with locked(place / "night.lock"):
        if not _home(place).exists():
            _home(place).mkdir()
            with (_home(place) / "night.log").open("wb") as log:
                # A session of its own, for Ctrl-C is for the run; this one ends with it. Nobody's
                # child, for nobody waits for it.
                command = [
                    "setsid",
                    "--fork",
                    sys.executable,
                    "-m",
                    "tests.system.night",
                    str(place),
                ]
                subprocess.run(
                    command,
                    cwd=Path(__file__).parents[2],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=True,
                )


def begun(place: Path) -> Night:
    """Return the night of a test run, once it has begun."""
    begin(place)
    facts, log = _home(place) / "facts.json", _home(place) / "night.log"
    eventually(facts.exists, START_S, what=f"cron starts; see {log.read_text()}")
    return Night(**json.loads(facts.read_text()))


def rota_crontab(directory: Path, environment: dict[str, str], *options: str) -> str:
    """What `rota crontab` prints in a project."""
    command = [sys.executable, "-m", "rota", "crontab", "--app", "shop:app", *options]
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def project(directory: Path, url: str) -> dict[str, str]:
    """Make a project, and the file with its environment; return that."""
    (directory / "shop.py").write_text(SHOP)
    environment = {"ROTA_DATABASE_URL": url}
    if "PYTHONPATH" in os.environ:  # where rota is not installed
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in environment.items()]
    (directory / "rota.env").write_text("".join(lines))
    (directory / "rota.env").chmod(0o600)
    return environment


def _home(place: Path) -> Path:
    return place / "night"


def _go_on(place: Path) -> None:
    home = _home(place)
    server = own_server(place, home / "postgresql.log")
    migrate(server.url())
    directory = home / "the shop"
    directory.mkdir()
    environment = project(directory, server.url())
    printed = [
        rota_crontab(directory, environment, "--user", "root", "--log", name) for name in LOGS
    ]
    crontabs = home / "cron.d"
    crontabs.mkdir(mode=0o755)
    (crontabs / "rota").write_text("".join(printed))
    (crontabs / "rota").chmod(0o644)
    subprocess.run(
        [sys.executable, "-m", "rota", "sync", "--app", "shop:app"],
        cwd=directory,
        env={**os.environ, **environment},
        check=True,
    )
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(JOBS.encode())
    bare: dict[str, Any] = {
        "env": {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        "stdin": subprocess.DEVNULL,
        "cwd": "/",
    }
    with subprocess.Popen([*ALONE, SCRIPT, str(program()), str(crontabs)], **bare) as cron:
        try:
            facts = {
                "url": server.url(),
                "directory": str(directory),
                "crontab": "".join(printed),
                "pid": cron.pid,
            }
            (home / "facts.json.new").write_text(json.dumps(facts))
            (home / "facts.json.new").rename(home / "facts.json")
            until_the_run_ends(place)
        finally:
            cron.kill()


if __name__ == "__main__":
    _go_on(Path(sys.argv[1]))
