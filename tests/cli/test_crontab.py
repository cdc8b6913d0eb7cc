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
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import psycopg
import pytest
import yaml
from psycopg.rows import TupleRow

from rota import embedded
from rota.cli import run
from rota.cli.crontab import (
    EVERY_MINUTES,
    HEALTH_PORT,
    STOP_S,
    CronUnit,
    compose_files,
    crontab_file,
    kubernetes,
    systemd_units,
)
from rota.model.cron import parse
from rota.store.migrate import migrate
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
        assert_it_does_one_job(printed, shop, connection)


@rule("M3", "M33", "M80")
def test_the_line_needs_no_file_where_the_private_server_is_meant_which_only_runs_start(
    shop: Path,
) -> None:
    printed = CommandLine(shop).ok("crontab", "--log", "said.log").out
    assert "rota.env" not in printed
    url = embedded.start(shop / ".rota")
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(LEFT)
        # A private server counts as long up: else the job would be left to its worker, who could
        # not renew its lease meanwhile.
        assert connection.execute("select rota.uptime() = interval '1 day'").fetchone() == (True,)
        assert_it_does_one_job(printed, shop, connection)


def assert_it_does_one_job(
    printed: str, shop: Path, connection: psycopg.Connection[TupleRow]
) -> None:
    done = as_cron_does(printed)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    assert (
        (shop / "said.log")
        .read_text()
        .endswith("\nclaimed 1, succeeded 1, failed 0, dead 0, oldest due: none\n")
    )
    assert connection.execute("select status from rota.jobs").fetchall() == [("succeeded",)]


@rule("M80")
def test_what_keeps_a_line_from_beginning_is_said_to_cron_and_not_to_the_log(
    database: str, shop: Path
) -> None:
    printed = CommandLine(shop, ROTA_DATABASE_URL=database).ok("crontab", "--log", "said.log").out
    done = as_cron_does(printed)
    assert done.returncode != 0 and "rota.env" in done.stderr
    assert not (shop / "said.log").exists()


@rule("M2", "M80")
@pytest.mark.parametrize("options", [["--log", "said.log"], []], ids=["log", "syslog"])
def test_a_run_that_fails_says_its_status_to_cron_and_why_to_the_log_with_the_time(
    options: list[str], database: str, shop: Path
) -> None:
    printed = CommandLine(shop, ROTA_DATABASE_URL=database).ok("crontab", *options).out
    (shop / "rota.env").write_text(f"ROTA_DATABASE_URL='{database}'\nPATH=\"{shop}:$PATH\"\n")
    (shop / "logger").write_text("#!/bin/sh\ncat > said.log\n")
    (shop / "logger").chmod(0o755)
    (shop / "shop.py").write_text("import no_such_library\n")
    done = as_cron_does(printed)
    assert (done.stdout, done.stderr) == ("rota: exit status 3\n", "")
    assert bool(done.returncode) is bool(options)
    said = (shop / "said.log").read_text()
    assert "ModuleNotFoundError: No module named 'no_such_library'" in said
    assert not options or (re.match(r"\d{4}-\d\d-\d\d \S+ ERROR ", said) and said.count("\n") == 1)


@rule("M45")
@pytest.mark.parametrize("options", [[], ["--systemd"], ["--k8s"], ["--json"]])
def test_no_secret_is_printed(
    options: list[str],
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    enter(shop, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", "postgresql://shop:hunter2@db.example/shop")
    assert run(["crontab", *options]) == 0
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err and "db.example" not in said.out
    assert "ROTA_DATABASE_URL" in said.out and ("rota.env" in said.out or "--k8s" in options)


def a_plan(directory: str = '/srv/50% of the "shop\'s" $HOME\\', **changes: object) -> CronUnit:
    settings: dict[str, object] = {
        "app": "shop:app",
        "directory": Path(directory),
        "every": 1,
        "for_": "50s",
        "env_file": Path(directory) / "rota.env",
        "log": None,
        "mailto": "ops@example.com",
        "user": "shop",
        "image": "registry.example/shop:7",
        "variables": {},
    }
    return CronUnit(**{**settings, **changes})  # type: ignore[arg-type]


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="NO systemd-analyze: units for systemd were not verified",
)
@rule("M80")
@pytest.mark.parametrize("every", [0, *EVERY_MINUTES])
def test_systemd_takes_the_units(tmp_path: Path, every: int) -> None:
    (tmp_path / "50% of the shop's").mkdir()
    files = systemd_units(
        a_plan(
            str(tmp_path / "50% of the shop's"),
            every=every,
            user="root",
            variables={"ROTA_SCHEMA": "jobs2"},
        )
    )
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
    if not every:
        return
    when = next(line for line in files["rota.timer"].splitlines() if line.startswith("OnCalendar="))
    times = subprocess.run(
        ["systemd-analyze", "calendar", "--iterations=3", when.removeprefix("OnCalendar=")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Normalized form: *-*-* *:" in times


@rule("M80")
@pytest.mark.parametrize("every", EVERY_MINUTES)
def test_the_manifest_is_a_cron_job_whose_runs_may_overlap(every: int) -> None:
    manifest = yaml.safe_load(
        kubernetes(a_plan(every=every, variables={"ROTA_SCHEMA": "jobs2"}))["rota-cronjob.yaml"]
    )
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "CronJob")
    spec = manifest["spec"]
    assert (spec["concurrencyPolicy"], spec["jobTemplate"]["spec"]["backoffLimit"]) == ("Allow", 0)
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] > every * 60
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["restartPolicy"] == "Never"
    assert container["image"] == "registry.example/shop:7"
    assert container["command"] == ["rota", "work", "--app", "shop:app", "--drain", "--for", "50s"]
    assert container["env"][1] == {"name": "ROTA_SCHEMA", "value": "jobs2"}
    assert container["env"][2]["valueFrom"]["secretKeyRef"] == {
        "name": "rota",
        "key": "ROTA_DATABASE_URL",
    }
    parse(spec["schedule"], "UTC")


@rule("M81")
def test_a_deployment_has_probes_and_its_migration_is_a_job_before_it() -> None:
    files = kubernetes(a_plan(every=0, variables={"ROTA_SCHEMA": "jobs2"}))
    job, worker = (yaml.safe_load(text) for text in files.values())
    assert list(files) == ["rota-migrate.yaml", "rota-worker.yaml"]
    assert (job["kind"], worker["kind"]) == ("Job", "Deployment")
    [migrates], [works] = (one["spec"]["template"]["spec"]["containers"] for one in (job, worker))
    assert migrates["command"] == ["rota", "migrate", "--app", "shop:app"]
    assert works["command"] == ["rota", "work", "--app", "shop:app", "--health-port", "8080"]
    assert works["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 8080}
    assert works["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8080}
    labels = worker["spec"]["template"]["metadata"]["labels"]
    assert worker["spec"]["selector"]["matchLabels"] == labels
    assert migrates["env"] == works["env"] and works["env"][1]["value"] == "jobs2"


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


@rule("M80", "M81")
@pytest.mark.skipif(
    find_spec("kubernetes_validate") is None,
    reason="NO kubernetes-validate: manifests were not held against the schema of Kubernetes",
)
@pytest.mark.parametrize("every", [0, 5])
def test_kubernetes_takes_the_manifests(every: int) -> None:
    schema = import_module("kubernetes_validate")
    for text in kubernetes(a_plan(every=every, variables={"ROTA_SCHEMA": "jobs2"})).values():
        schema.validate(yaml.safe_load(text), "1.32", strict=True)


@rule("M81")
def test_a_compose_file_migrates_before_its_worker_starts_and_gives_it_time_to_stop(
    tmp_path: Path,
) -> None:
    (tmp_path / "requirements.txt").touch()
    files = compose_files(a_plan(str(tmp_path), every=0, variables={"ROTA_SCHEMA": "jobs2"}))
    services = yaml.safe_load(files["compose.yaml"])["services"]
    assert services["migrate"]["command"] == ["rota", "migrate", "--app", "shop:app"]
    worker = services["worker"]
    assert worker["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert worker["stop_grace_period"] == f"{STOP_S}s"
    assert worker["environment"]["ROTA_SCHEMA"] == "jobs2"
    assert worker["environment"]["ROTA_DATABASE_URL"].startswith("${ROTA_DATABASE_URL:?")
    dockerfile = files["Dockerfile"]
    assert "RUN pip install --no-cache-dir -r requirements.txt\n" in dockerfile
    [start] = re.findall(r"^CMD (.*)$", dockerfile, re.MULTILINE)
    assert json.loads(start) == [
        "rota", "work", "--app", "shop:app", "--health-port", str(HEALTH_PORT)
    ]  # fmt: skip
    # The health check runs in the image, against the port of the worker.
    check = worker["healthcheck"]["test"]
    assert check[:3] == ["CMD", "python", "-c"]
    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        Thread(target=server.handle_request).start()
        code = check[3].replace(str(HEALTH_PORT), str(server.server_port))
        subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


class Healthy(BaseHTTPRequestHandler):
    """A worker that is well."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@rule("M80")
def test_the_crontab_names_absolute_paths_and_fires_as_often_as_it_was_asked_to() -> None:
    text = crontab_file(a_plan(every=15, log=Path("/var/log/rota.log")))["crontab"]
    line = text.splitlines()[-1]
    assert line.startswith("*/15 * * * *  shop cd '/srv/50\\% of the ")
    drain = f"{shlex.quote(sys.executable)} -m rota work --app shop:app --drain --for 50s"
    assert f" && {drain} --log-format plain >> /var/log/rota.log 2>&1 || " in line
    assert 'MAILTO="ops@example.com"\n' in text
    assert "| logger -t rota" in crontab_file(a_plan())["crontab"]
    assert [parse(a_plan(every=every).fields, "UTC").text for every in (1, 5, 60)] == [
        "* * * * *",
        "*/5 * * * *",
        "0 * * * *",
    ]


@rule("M80")
@pytest.mark.parametrize(
    ("options", "sets"),
    [
        (["--log", "../said.log"], f" && ROTA_SCHEMA=jobs2 {shlex.quote(sys.executable)} -m rota"),
        (["--systemd"], "\nEnvironment=ROTA_SCHEMA=jobs2\n"),
    ],
    ids=["crontab", "systemd"],
)
def test_a_run_finds_the_schema_and_the_file_that_were_set_where_its_line_was_printed(
    options: list[str],
    sets: str,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    enter(shop, monkeypatch)
    monkeypatch.setenv("ROTA_SCHEMA", "jobs2")
    assert run(["crontab", *options, "--env-file", "../rota.env"]) == 0
    said = capsys.readouterr().out
    assert sets in said
    assert "/../" not in said, (
        "systemd ignores such an EnvironmentFile, and a drain would start a private server"
    )
    monkeypatch.setenv("ROTA_SCHEMA", "a b")
    assert run(["crontab", *options]) == 3


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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--every", "7"], "--every must divide an hour evenly"),
        (["--systemd", "--k8s"], "give --systemd or --k8s, not both"),
        (["--worker"], "--worker does not apply here"),
        (["--compose", "--worker"], "--worker does not apply here"),
        (["--systemd", "--worker", "--every", "5"], "--every and --for are for drains"),
        (["--compose", "--for", "5s"], "--every and --for are for drains"),
        (["--image", "shop:7"], "--image does not apply here: it is for `rota crontab --k8s`"),
        (["--systemd", "--log", "said.log"], "--log does not apply here"),
        (
            ["--k8s", "--user", "shop"],
            "--user does not apply here: it is for `rota crontab` or `rota crontab --systemd`",
        ),
        (["--for", "50"], "--for"),
        (["--user", "shop shop"], "--user takes one word"),
        (["--env-file", "a\nb"], "a line of such a file cannot hold"),
        (["--app", "shop:nothing"], "no attribute 'nothing'"),
    ],
)
@rule("M3")
def test_what_cannot_be_printed_is_refused(
    options: list[str],
    says: str,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    enter(shop, monkeypatch)
    assert run(["crontab", *options]) in (2, 3)
    said = capsys.readouterr()
    assert says in said.err and said.out == ""
