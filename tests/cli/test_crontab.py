"""What `rota crontab` prints can be installed as it stands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml
from psycopg.rows import TupleRow

from rota.cli import run
from rota.cli.crontab import (
    STOP_S,
    CronOptions,
    CronUnit,
    compose_files,
    kubernetes,
    systemd_units,
)
from rota.store.migrate import definitions
from tests.support.cli import CommandLine
from tests.support.project import enter, with_private_server
from tests.support.rules import rule

pytestmark = pytest.mark.system

LEFT = """
insert into rota.job (
  job_type, payload, status, locked_by, locked_until, claims, attempts, started_at
) values (
  'send_mail', '{"user_id": 1}', 'running', 'gone', clock_timestamp() - interval '1 hour', 1, 1,
  clock_timestamp() - interval '2 hours'
)
"""


@pytest.fixture
def shop() -> Iterator[Path]:
    """A project with an awkward name."""
    with with_private_server("50% of the shop's") as project:
        (project / "pyproject.toml").write_text('[tool.rota]\napp = "shop:app"\n')
        yield project


def as_cron_does(crontab: str) -> subprocess.CompletedProcess[str]:
    """Run the crontab's one line: what is after five fields, `\\%` for `%`, with next to no
    environment and no terminal."""
    [line] = [line for line in crontab.splitlines() if line[:1] in "*0123456789"]
    environment = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "nobody"}
    if "PYTHONPATH" in os.environ:  # where rota itself is not installed
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return subprocess.run(
        ["/bin/sh", "-c", line.split(maxsplit=5)[5].replace(r"\%", "%")],
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=60,
        check=False,
    )


@rule("M33", "M80")
def test_the_line_works_in_cron_s_environment_and_recovers_first_what_a_dead_worker_left(
    database: str, shop: Path
) -> None:
    (shop / "rota.env").write_text(f"ROTA_DATABASE_URL='{database}'\n")
    printed = CommandLine(shop, ROTA_DATABASE_URL=database).ok("crontab", "--log", "said.log").out
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(LEFT)
        done = as_cron_does(printed)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
        said = (shop / "said.log").read_text()
        assert said.endswith("\nclaimed 1, succeeded 1, failed 0, dead 0, oldest due: none\n")
        assert connection.execute("select status from rota.jobs").fetchall() == [("succeeded",)]


@rule("M3", "M80")
def test_the_line_needs_no_file_where_the_private_server_is_meant(shop: Path) -> None:
    assert "rota.env" not in CommandLine(shop).ok("crontab", "--log", "said.log").out


@rule("M33", "M80")
def test_a_server_that_stops_with_its_users_counts_as_long_up(
    connection: psycopg.Connection[TupleRow],
) -> None:
    """Else a drain each minute, which starts it, would leave what a dead worker left to that."""
    [text] = [definition.text for definition in definitions() if definition.name == "uptime"]
    connection.execute(text.format(schema="rota").encode())
    counted = "select rota.uptime() = interval '1 day', rota.uptime() = now() - "
    query = f"{counted} pg_postmaster_start_time()".encode()
    assert connection.execute(query).fetchone() == (False, True)
    connection.execute("set private_server.stops_with_its_users = on")
    assert connection.execute(query).fetchone() == (True, False)


@pytest.mark.nightly
@rule("M2", "M80")
def test_a_line_that_cannot_begin_says_so_to_cron_and_a_run_that_fails_to_its_log(
    database: str, shop: Path
) -> None:
    rota = CommandLine(shop, ROTA_DATABASE_URL=database)
    printed, to_syslog = rota.ok("crontab", "--log", "said.log").out, rota.ok("crontab").out
    done = as_cron_does(printed)
    assert done.returncode != 0 and "rota.env" in done.stderr
    assert not (shop / "said.log").exists()
    (shop / "rota.env").write_text(f"ROTA_DATABASE_URL='{database}'\nPATH=\"{shop}:$PATH\"\n")
    (shop / "shop.py").write_text("import no_such_library\n")
    done = as_cron_does(printed)
    assert (done.stdout, done.stderr) == ("rota: exit status 3\n", "") and done.returncode
    said = (shop / "said.log").read_text()
    assert re.match(r"\d{4}-\d\d-\d\d \S+ ERROR ", said) and said.count("\n") == 1
    assert "ModuleNotFoundError: No module named 'no_such_library'" in said
    (shop / "logger").write_text("#!/bin/sh\ncat > syslog\n")
    (shop / "logger").chmod(0o755)
    done = as_cron_does(to_syslog)
    assert (done.stdout, done.stderr) == ("rota: exit status 3\n", "")
    assert "ModuleNotFoundError" in (shop / "syslog").read_text()


@rule("M45")
def test_no_secret_is_printed(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enter(shop, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", "postgresql://shop:hunter2@db.example/shop")
    for options in ([], ["--systemd"], ["--k8s"], ["--json"]):
        assert run(["crontab", *options]) == 0
        said = capsys.readouterr()
        assert "hunter2" not in said.out + said.err and "db.example" not in said.out
        assert "ROTA_DATABASE_URL" in said.out
        assert "rota.env" in said.out or "--k8s" in options


def a_plan(
    directory: str = '/srv/50% of the "shop\'s" $HOME\\', every: int = 1, user: str = "shop"
) -> CronUnit:
    return CronUnit(
        app="shop:app",
        directory=Path(directory),
        every=every,
        env_file=Path(directory) / "rota.env",
        variables={"ROTA_SCHEMA": "jobs2"},
        asked=CronOptions(
            worker=not every,
            every=every,
            for_="50s",
            env_file=None,
            log=None,
            mailto="ops@example.com",
            user=user,
            image="registry.example/shop:7",
        ),
    )


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="NO systemd-analyze: units for systemd were not verified",
)
@rule("M80")
@pytest.mark.parametrize("every", [0, 5, 60])
def test_systemd_takes_the_units(tmp_path: Path, every: int) -> None:
    (tmp_path / "50% of the shop's").mkdir()
    files = systemd_units(a_plan(str(tmp_path / "50% of the shop's"), every, user="root"))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in files)],
        capture_output=True,
        text=True,
        check=False,
    )
    about = [
        line
        for line in verified.stderr.splitlines()
        if str(tmp_path) in line or line.startswith("rota.")
    ]
    assert (verified.returncode, about) == (0, []), verified.stderr


@rule("M80", "M81")
def test_runs_of_a_cron_job_may_overlap_and_a_worker_starts_after_the_migration(
    tmp_path: Path,
) -> None:
    """The pages of docs/operate show these files, and are compared with what is printed."""
    [text] = kubernetes(a_plan(every=5)).values()
    spec = yaml.safe_load(text)["spec"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("*/5 * * * *", "Allow")
    once = spec["jobTemplate"]["spec"]
    assert once["backoffLimit"] == 0 and once["activeDeadlineSeconds"] > 5 * 60
    [container] = once["template"]["spec"]["containers"]
    assert container["command"] == ["rota", "work", "--app", "shop:app", "--drain", "--for", "50s"]

    (tmp_path / "requirements.txt").touch()
    files = compose_files(a_plan(str(tmp_path), every=0))
    worker = yaml.safe_load(files["compose.yaml"])["services"]["worker"]
    assert worker["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert worker["stop_grace_period"] == f"{STOP_S}s"
    assert "RUN pip install --no-cache-dir -r requirements.txt\n" in files["Dockerfile"]

    manifests = map(yaml.safe_load, kubernetes(a_plan(every=0)).values())
    pods = [manifest["spec"]["template"]["spec"] for manifest in manifests]
    for environment in (container["env"], *(pod["containers"][0]["env"] for pod in pods)):
        assert {"name": "ROTA_SCHEMA", "value": "jobs2"} in environment
    assert worker["environment"]["ROTA_SCHEMA"] == "jobs2"


@rule("M81")
def test_the_files_are_written_into_a_directory_and_replace_none(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enter(shop, monkeypatch)
    typed = ["crontab", "--k8s", "--worker", "--image", "shop:7"]
    assert run([*typed, "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert run([*typed, "--out", "k8s"]) == 0
    assert capsys.readouterr().out.split() == ["k8s/rota-migrate.yaml", "k8s/rota-worker.yaml"]
    assert {file.name: file.read_text() for file in (shop / "k8s").iterdir()} == files

    (shop / "k8s" / "rota-migrate.yaml").unlink()
    (shop / "k8s" / "rota-worker.yaml").write_text("edited")
    assert run([*typed, "--out", "k8s"]) == 2
    assert "k8s/rota-worker.yaml exists already" in capsys.readouterr().err
    assert [file.read_text() for file in (shop / "k8s").iterdir()] == ["edited"]
    assert run([*typed, "--out", "shop.py"]) == 2
    assert "--out: cannot write into shop.py" in capsys.readouterr().err


@rule("M80")
def test_what_is_printed_follows_a_link_from_release_to_release(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    current = tmp_path / "current"
    current.symlink_to(shop)
    enter(current, monkeypatch)
    # A PWD that names another directory was inherited.
    for named, printed in (
        (current, current),
        (tmp_path, shop.resolve()),
    ):
        monkeypatch.setenv("PWD", str(named))
        assert run(["crontab"]) == 0
        assert (
            " cd " + shlex.quote(str(printed)).replace("%", r"\%") + " && "
            in capsys.readouterr().out
        )


@rule("M80")
def test_a_run_finds_the_schema_and_the_file_that_were_set_where_its_line_was_printed(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enter(shop, monkeypatch)
    monkeypatch.setenv("ROTA_SCHEMA", "jobs2")
    python = shlex.quote(sys.executable)
    for options, sets in (
        (["--log", "../said.log"], f" && ROTA_SCHEMA=jobs2 {python} -m rota"),
        (["--systemd"], "\nEnvironment=ROTA_SCHEMA=jobs2\n"),
    ):
        assert run(["crontab", *options, "--env-file", "../rota.env"]) == 0
        said = capsys.readouterr().out
        assert sets in said
        # systemd ignores such an EnvironmentFile, and a drain would start a private server.
        assert "/../" not in said
    monkeypatch.setenv("ROTA_SCHEMA", "a b")
    assert run(["crontab"]) == 3


@rule("M3")
def test_what_cannot_be_printed_is_refused(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enter(shop, monkeypatch)
    for options, says in (
        (["--every", "7"], "--every must divide an hour evenly"),
        (["--systemd", "--k8s"], "give --systemd or --k8s, not both"),
        (["--worker"], "--worker does not apply here"),
        (["--systemd", "--worker", "--every", "5"], "--every and --for are for drains"),
        (["--image", "shop:7"], "--image does not apply here: it is for `rota crontab --k8s`"),
        (["--for", "50"], "--for"),
        (["--user", "shop shop"], "--user takes one word"),
        (["--env-file", "a\nb"], "a line of such a file cannot hold"),
        (["--app", "shop:nothing"], "no attribute 'nothing'"),
    ):
        assert run(["crontab", *options]) in (2, 3)
        said = capsys.readouterr()
        assert says in said.err and said.out == "", options
