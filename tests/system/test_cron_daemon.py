"""Cron mode for real: Debian's cron runs what `rota crontab` prints, for minutes.

That cron sees none of this machine's crontabs. It is the first process of a mount and a pid
namespace of its own: when it ends, so does all that it started.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from rota.store.migrate import migrate
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.supervisor import gone

pytestmark = [pytest.mark.nightly, pytest.mark.system]

MINUTES = 2
WAIT_S = 60 * (MINUTES + 3)
LOGS = ("one.log", "two.log")
REPORT = re.compile(
    r"^claimed (\d+), succeeded (\d+), failed (\d+), dead (\d+), oldest due: .+$", re.MULTILINE
)

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

JOBS = """
insert into rota.job (job_type, priority) values ('nap', 7), ('long', 0), ('stumble', 0);
insert into rota.job (job_type, run_at)
  select 'nap', clock_timestamp() + make_interval(secs => 4 * n) from generate_series(0, 25) n;
insert into rota.job (job_type, run_at)
  select 'feed', clock_timestamp() + make_interval(secs => 50 * n) from generate_series(0, 2) n;
insert into rota.job (job_type, status, locked_by, locked_until, claims, attempts, started_at)
  select 'nap', 'running', 'gone', clock_timestamp() - interval '1 second', 1, 1,
    clock_timestamp() - interval '1 minute'
  from generate_series(1, 3);
"""
"""What is due at once, in each of the minutes, and what a worker left that died in the middle."""
COUNT = 3 + 26 + 3 + 15 + 3
"""Without those of the schedule, of which there is one each minute."""

ALONE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec"]
SCRIPT = """
mount -t tmpfs none /run
mount -t tmpfs none /var/spool/cron
mkdir -m 700 /var/spool/cron/crontabs
mount --bind "$1" /etc/cron.d
mount --bind /dev/null /etc/crontab
exec "$0" -f -L 15
"""


@pytest.fixture
def cron() -> str:
    """The program; Debian puts it where only root looks."""
    program = shutil.which("cron", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None:
        pytest.skip("CRON IS NOT INSTALLED: no drain was woken by cron itself")
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: no drain was woken by cron itself")
    tried = subprocess.run([*ALONE, "mount -t tmpfs none /run"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip("NO NAMESPACES: cron would read this machine's crontabs, so none was started")
    return program


@pytest.fixture
def shop(tmp_path: Path, own_server: PostgresServer) -> tuple[Path, str]:
    """The directory of a project, and the two lines of its crontab."""
    migrate(own_server.url())
    directory = tmp_path / "the shop"
    directory.mkdir()
    (directory / "shop.py").write_text(SHOP)
    environment = {"ROTA_DATABASE_URL": own_server.url()}
    if "PYTHONPATH" in os.environ:  # where rota is not installed
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in environment.items()]
    (directory / "rota.env").write_text("".join(lines))
    (directory / "rota.env").chmod(0o600)

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "rota", *arguments, "--app", "shop:app"],
            cwd=directory,
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    run("sync")
    return directory, "".join(run("crontab", "--user", "root", "--log", name) for name in LOGS)


@contextmanager
def start(cron: str, crontab: str, place: Path) -> Iterator[psutil.Process]:
    """Let this cron read this crontab and no other."""
    crontabs = place / "cron.d"
    crontabs.mkdir(mode=0o755)
    (crontabs / "rota").write_text(crontab)
    (crontabs / "rota").chmod(0o644)
    bare: dict[str, Any] = {
        "env": {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        "stdin": subprocess.DEVNULL,
        "cwd": "/",
    }
    with subprocess.Popen([*ALONE, SCRIPT, cron, str(crontabs)], **bare) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()


def rest(alone: psutil.Process) -> None:
    """Stop cron from starting anything, and wait until what it has started ends."""
    [cron] = alone.children()
    cron.suspend()
    eventually(
        lambda: all(gone(process) for process in cron.children(recursive=True)),
        120,
        what="the drains that cron has started are done",
    )


@rule("M2", "M3", "M33", "M80", "M82")
def test_two_lines_of_a_crontab_do_every_job_once_in_the_night_of_a_server_without_a_daemon(
    cron: str, shop: tuple[Path, str], own_server: PostgresServer, tmp_path: Path
) -> None:
    directory, crontab = shop

    def read(log: str) -> str:
        path = directory / log
        return path.read_text() if path.exists() else ""

    def find_reports(log: str) -> list[tuple[int, ...]]:
        return [tuple(map(int, figures)) for figures in REPORT.findall(read(log))]

    def is_over() -> bool:
        return (
            all(len(find_reports(log)) > MINUTES for log in LOGS)
            and not connection.execute("select from rota.job limit 1").fetchone()
        )

    with psycopg.connect(own_server.url(), autocommit=True) as connection:
        connection.execute(JOBS.encode())
        with start(cron, crontab, tmp_path) as alone:
            eventually(is_over, WAIT_S, what="the logs have enough reports and no job is left")
            rest(alone)  # a minute may just have begun
        ended = connection.execute(
            "select id, job_type, status, result, priority from rota.job_history"
        ).fetchall()
        ticks = [
            row[0]
            for row in connection.execute(
                "select scheduled_for from rota.runs where schedule = 'minutely' order by job"
            )
        ]
        lost = connection.execute(
            "select error_type, count(*) from rota.attempt group by 1 order by 1"
        ).fetchall()

    assert len(ticks) >= MINUTES
    assert ticks == [ticks[0] + n * timedelta(minutes=1) for n in range(len(ticks))], (
        "each tick is one job over both lines"
    )
    assert len(ended) == COUNT + len(ticks) and {row[2] for row in ended} == {"succeeded"}
    notes = Counter((directory / "notes.txt").read_text().splitlines())
    for job, job_type, _, result, priority in ended:
        assert notes[f"end {job}"] == 1, "each job ends exactly once"
        assert notes[f"start {job}"] == (2 if job_type == "stumble" else 1)
        if job_type == "nap":
            assert result["terminals"] == []
        if priority:
            environment = result["environment"]
            assert environment["PATH"] == "/usr/bin:/bin"
            assert not {"TERM", "LANG", "LC_ALL"} & set(environment)
    assert lost == [("LeaseExpired", 3), ("OSError", 1)]
    done = [report for log in LOGS for report in find_reports(log)]
    assert sum(succeeded for _, succeeded, _, _ in done) == COUNT + len(ticks), (
        "no report of a drain is lost"
    )
    assert sum(failed for _, _, failed, _ in done) == 1 and sum(dead for *_, dead in done) == 0
    for log in LOGS:
        assert read(log).count(" started, release ") == len(find_reports(log))
        assert "Traceback" not in read(log)
