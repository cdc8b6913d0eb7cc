"""Cron mode for real: Debian's cron runs what `rota crontab` prints.

That cron sees none of this machine's crontabs. It is the first process of a mount and a pid
namespace of its own: when it ends, so does all that it started.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.support.rules import rule
from tests.support.wait import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.system]

SHOP = """
import os
import sys

import rota

app = rota.App(release="shop-1")


@app.job("look")
def look() -> dict[str, object]:
    terminals = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name).isatty()]
    return {"environment": dict(os.environ), "place": os.getcwd(), "terminals": terminals}
"""
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


@rule("M3", "M80")
def test_the_line_does_a_job_in_the_environment_that_cron_gives_it(
    cron: str, database: str, connection: psycopg.Connection[TupleRow], tmp_path: Path
) -> None:
    shop, crontabs = tmp_path / "the shop", tmp_path / "cron.d"
    shop.mkdir()
    crontabs.mkdir(mode=0o755)
    (shop / "shop.py").write_text(SHOP)
    settings = {"ROTA_DATABASE_URL": database}
    if "PYTHONPATH" in os.environ:  # where rota is not installed
        settings["PYTHONPATH"] = os.environ["PYTHONPATH"]
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in settings.items()]
    (shop / "rota.env").write_text("".join(lines))
    (shop / "rota.env").chmod(0o600)
    options = ["--user=root", "--log=said.log", "--app=shop:app"]
    printed = subprocess.run(
        [sys.executable, "-m", "rota", "crontab", *options],
        cwd=shop, env=os.environ | settings, check=True, capture_output=True, text=True,
    )  # fmt: skip
    (crontabs / "rota").write_text(printed.stdout)
    (crontabs / "rota").chmod(0o644)
    connection.execute("insert into rota.job (job_type) values ('look')")
    said = shop / "said.log"
    bare = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    command = [*ALONE, SCRIPT, cron, str(crontabs)]
    with subprocess.Popen(command, env=bare, stdin=subprocess.DEVNULL, cwd="/") as process:
        try:
            eventually(
                lambda: said.exists() and "claimed 1, succeeded 1" in said.read_text(),
                180,
                what="a drain that cron has started is done",
            )
        finally:
            process.kill()
    [(found,)] = connection.execute("select result from rota.job_history").fetchall()
    assert (found["place"], found["terminals"]) == (str(shop), [])
    assert found["environment"]["PATH"] == "/usr/bin:/bin"
    assert not {"TERM", "LANG", "LC_ALL"} & set(found["environment"])
    assert said.read_text().count(" started, release ") == 1
