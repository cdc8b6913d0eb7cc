"""What the pages of a deploy say to type and to install works: their commands, units, manifests and
the Procfile."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota.cli import run
from rota.declare.config import WorkerConfig
from tests.docs.reader import ROOT, read_page
from tests.docs.shop import Shop
from tests.support.project import enter
from tests.support.rules import rule
from tests.support.server import unused_port
from tests.support.wait import eventually

PAGES = {
    "ini": read_page("deploy-systemd.md"),
    "yaml": read_page("deploy-kubernetes.md"),
    "dockerfile": read_page("deploy-docker-compose.md"),
    "text": read_page("deploy-heroku.md"),
    "sh": read_page("deploy.md"),
}
"""The pages, by the language of the block that makes each."""
SLOTS = read_page("reserved-slots.md")
OPERATE = "".join(file.read_text() for file in sorted((ROOT / "docs" / "operate").glob("*.md")))
GRACE_S = 30

pytestmark = pytest.mark.system


def the_block(language: str) -> str:
    """The one block of a language of the page that shows it."""
    [block] = re.findall(rf"^```{language}\n(.*?)^```$", PAGES[language], re.MULTILINE | re.DOTALL)
    return str(block)


def unit() -> configparser.SectionProxy:
    """The service of the systemd unit."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # its names have capitals
    parser.read_string(the_block("ini"))
    return parser["Service"]


def pod() -> Any:
    """The pod of the Deployment."""
    _, deployment = yaml.safe_load_all(the_block("yaml"))
    return deployment["spec"]["template"]["spec"]


@rule("M81")
@pytest.mark.parametrize("language", ["ini", "yaml", "dockerfile"])
def test_what_the_page_shows_is_what_the_command_prints(
    language: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "shop.py").write_text("import rota\n\napp = rota.App()\n")
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("ROTA_DATABASE_URL", "postgresql://shop:secret@db.internal/shop")
    monkeypatch.setattr(sys, "executable", "/srv/shop/.venv/bin/python")
    [typed] = re.findall(r"^```sh\n(.*)\n```$", PAGES[language], re.MULTILINE)
    assert run(shlex.split(typed)[1:]) == 0
    printed = capsys.readouterr().out.replace(str(tmp_path), "/srv/shop")
    assert re.sub(r"python:3\.\d+-slim", "python:3.11-slim", printed) == the_block(language)


@rule("M3")
def test_the_commands_of_a_deploy_work_in_their_order(empty_database: str, place: Path) -> None:
    shop = Shop(place, empty_database)
    migrate, doctor = [line.split("  #")[0].strip() for line in the_block("sh").splitlines()]
    assert "daily_report, send_welcome_email" in shop.type(migrate)

    def is_bad() -> list[str]:
        ran = subprocess.run(
            shlex.split(doctor),
            cwd=place,
            env=shop.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return [line.split()[1] for line in ran.stdout.splitlines() if line.split()[:1] == ["bad"]]

    # On a busy machine a look may be given up after its two seconds, or a notification be missed.
    eventually(
        lambda: is_bad() == ["vacuum"],
        60,
        what="the tests' server has autovacuum off, and nothing else is wrong",
    )


@rule("M83")
def test_the_unit_and_the_manifest_give_a_worker_more_time_than_it_takes() -> None:
    assert int(unit()["TimeoutStopSec"]) >= GRACE_S + 20
    assert pod()["terminationGracePeriodSeconds"] >= GRACE_S + 20


@rule("M81")
@pytest.mark.slow
def test_what_the_unit_and_the_manifest_start_is_a_worker(database: str, place: Path) -> None:
    shop = Shop(place, database)
    [container] = pod()["containers"]
    port = str(unused_port())
    served = unit()["ExecStart"].removeprefix(unit()["WorkingDirectory"] + "/.venv/bin/")
    contained = shlex.join(container["command"]).replace(
        str(container["livenessProbe"]["httpGet"]["port"]), port
    )
    for command in (served, contained):
        assert "started, release" in shop.work_until_stopped(command)


@rule("M81")
@pytest.mark.slow
def test_the_procfile_migrates_and_starts_a_worker(empty_database: str, place: Path) -> None:
    shop = Shop(place, None)
    shop.environment["DATABASE_URL"] = empty_database
    release, worker = (line.partition(": ")[2] for line in the_block("text").splitlines())
    assert "daily_report, send_welcome_email" in shop.type(release)
    assert f"--grace {GRACE_S - 20}s" in worker  # of the platform's 30 seconds
    assert "started, release" in shop.work_until_stopped(
        f"sh -c {shlex.quote(f'exec env {worker}')}"
    )


@rule("M61")
@pytest.mark.slow
def test_each_worker_of_the_page_says_how_many_slots_it_keeps_for_the_urgent(
    database: str, place: Path
) -> None:
    shop = Shop(place, database)
    lines = re.findall(r"^(rota work .*?)  +# (.*)$", SLOTS, re.MULTILINE)
    assert len(lines) == 5
    [app] = re.findall(r"--app \S+", unit()["ExecStart"])
    for command, comment in lines:
        kept = re.findall(r"(\d+) reserved|(\d+) of mail's and (\d+) of reports'", comment)
        [(one, mail, reports)] = kept or [("none", "", "")]
        said = one or f"mail={mail}, reports={reports}"
        assert f"; {said} for priority above 0" in shop.work_until_stopped(f"{command} {app}")


@rule("M61")
def test_the_table_of_slots_for_the_urgent_is_what_a_worker_does() -> None:
    [(slots, kept)] = re.findall(r"^\| slots \|(.*)\|\n.*\n\| of these .*? \|(.*)\|$", SLOTS, re.M)
    for span, count in zip(slots.split("|"), kept.split("|"), strict=True):
        for one in (int(number) for number in span.split(" to ")):
            assert WorkerConfig().count_urgent_slots(one) == int(count)


@pytest.mark.parametrize(
    "command", sorted({line.split()[1] for line in re.findall(r"`(rota\s[a-z][^`]*)`", OPERATE)})
)
def test_the_commands_that_the_pages_name_exist(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    assert capsys.readouterr().out
