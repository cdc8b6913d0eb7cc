"""The pages of those who come from another library: both halves of examples/from run, with the same
output, and are what the pages show."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.docs.reader import ROOT, assert_quoted, read_page
from tests.support.server import unused_port
from tests.support.wait import eventually

EXAMPLES = ROOT / "examples" / "from"
PEERS = ["celery", "rq", "apscheduler", "procrastinate"]
WORDS_MAX = 900
PYTHON = sys.executable

MAILS = ["mail to ada", "mail to bob", "mail to eve"]
BEFORE = {
    "celery": (
        "celery -A before worker -P solo -Q celery,mail -l warning",
        ["before.py", "-m celery -A before call digest"],
        [
            *(f"{mail}, attempt" for mail in MAILS),
            "mail to bob, attempt 2",
            "sum 14",
            "digest sent",
        ],
    ),
    "rq": (
        "rq.cli worker mail --with-scheduler",
        ["-c 'import before; before.main()'"],
        [*MAILS, "report of may mailed"],
    ),
    "apscheduler": ("before", [], ["reminded ada"]),
    "procrastinate": (
        "procrastinate --app before.app worker",
        ["before.py"],
        [*MAILS, "synchronized"],
    ),
}
"""What runs the jobs, what enqueues them, and what they print."""
SCHEDULES = {
    "celery": ("digest", "digest sent"),
    "apscheduler": ("clean-up", "cleaned up"),
    "procrastinate": ("clean_up", "cleaned up"),
}
NEEDS_REDIS = {"celery", "rq"}

pytestmark = [pytest.mark.system, pytest.mark.waits]


class Shell:
    """A folder of examples/from, in a copy, with what its programs find in their environment."""

    def __init__(self, place: Path, **environment: str) -> None:
        self.place = place
        path = os.pathsep.join([str(place), str(ROOT / "src")])
        self.environment = {**os.environ, "PYTHONPATH": path, **environment}
        self._stack = ExitStack()

    def run(self, line: str) -> str:
        """Run Python with these arguments; it must succeed."""
        done = subprocess.run(
            f"{PYTHON} {line}", shell=True, cwd=self.place, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}"
        return done.stdout

    def serve(self, command: list[str]) -> Path:
        """Start what stays; return its log."""
        log = self.place / f"{len(list(self.place.glob('*.log')))}.log"
        with log.open("wb") as file:
            process = self._stack.enter_context(
                subprocess.Popen(
                    command, cwd=self.place, env=self.environment, stdout=file, stderr=file
                )
            )
        self._stack.callback(process.wait, 30)
        self._stack.callback(process.terminate)
        return log

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path, empty_database: str) -> Iterator[Shell]:
    """The folder of the test's parameter, with a database and perhaps a Redis of its own."""
    name = request.node.callspec.params["name"]
    place = shutil.copytree(EXAMPLES / name, tmp_path / "shop")
    shell = Shell(
        place,
        ROTA_DATABASE_URL=empty_database,
        DATABASE_URL=empty_database.replace("postgresql:", "postgresql+psycopg:")
        if name == "apscheduler"
        else empty_database,
        ROTA_APP="after:app",
    )
    yield shell
    shell.close()


def assert_said(log: Path, lines: list[str]) -> None:
    """A log has these lines, sooner or later."""

    def missing() -> list[str]:
        text = log.read_text()
        return [line for line in lines if line not in text]

    eventually(lambda: not missing(), 60, what=f"{missing()} in\n{log.read_text()}")


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_the_half_before_runs_as_its_library_runs_it(name: str, shell: Shell) -> None:
    if find_spec(name) is None:
        pytest.skip(f"NO {name}: examples/from/{name}/before.py was not run")
    if name in NEEDS_REDIS:
        if shutil.which("redis-server") is None:
            pytest.skip(f"NO redis-server: examples/from/{name}/before.py was not run")
        port = unused_port()
        redis = shell.serve(
            ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1"]
        )
        assert_said(redis, ["Ready to accept connections"])
        shell.environment |= {"REDIS_URL": f"redis://127.0.0.1:{port}/0"}
        shell.environment |= {"RQ_REDIS_URL": f"redis://127.0.0.1:{port}/0"}
    serving, lines, said = BEFORE[name]
    if name == "procrastinate":
        shell.run("-m procrastinate --app before.app schema --apply")
    log = shell.serve([PYTHON, "-m", *serving.split()])
    if name == "celery":
        beat = shell.serve([PYTHON, "-m", *["celery", "-A", "before", "beat"]])
        assert_said(beat, ["celery beat v"])
    for line in lines:
        shell.run(line)
    assert_said(log, said)


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_the_half_after_says_the_same(name: str, shell: Shell) -> None:
    shell.run("-m rota migrate --app after:app")
    log = shell.serve([PYTHON, "-m", *["rota", "work", "--app", "after:app"]])
    shell.run("after.py")
    said = list(BEFORE[name][2])
    if name in SCHEDULES:
        schedule, line = SCHEDULES[name]
        shell.run(f"-m rota schedules trigger {schedule}")
        said.append(line)
    assert_said(log, said)


@pytest.mark.parametrize("name", ["cron"])
def test_a_crontab_and_the_commands_made_of_it_start_the_same_programs(
    name: str, shell: Shell, empty_database: str
) -> None:
    printed = shell.run("-m rota crontab --import before.crontab")
    assert printed == (shell.place / "after.py").read_text()
    programs = shell.place / "bin"
    programs.mkdir()
    calls = shell.place / "calls"
    for program in ("pg_dump", "import-feed", "mail-report"):
        (programs / program).write_text(f'#!/bin/sh\ncat\necho "{program} $*" >> {calls}\n')
        (programs / program).chmod(0o755)
    shell.environment["PATH"] = f"{programs}:{os.environ['PATH']}"

    def read_calls() -> list[str]:
        found = sorted(calls.read_text().splitlines())
        calls.unlink()
        return found

    crontab = (shell.place / "before.crontab").read_text()
    for line in re.findall(r"^(?:@daily|(?:\S+ ){5}) ?(.*)$", crontab, re.MULTILINE):
        subprocess.run(
            ["/bin/sh", "-c", line.replace("\\%", "%")],
            cwd=shell.place, env=shell.environment, stdin=subprocess.DEVNULL, check=True,
            timeout=30,
        )  # fmt: skip
    before = read_calls()
    shell.run("-m rota migrate --app after:app")
    with psycopg.connect(empty_database, autocommit=True) as connection:
        for schedule in list_schedules(connection):
            # Its next time, which may be now, does not enqueue a second job.
            shell.run(f"-m rota schedules pause {schedule}")
            shell.run(f"-m rota schedules trigger {schedule}")
        shell.run("-m rota work --drain")
        assert connection.execute("select distinct status from rota.jobs").fetchall() == [
            ("succeeded",)
        ]
    assert read_calls() == before and len(before) == 4


def list_schedules(connection: psycopg.Connection[TupleRow]) -> list[str]:
    return [name for (name,) in connection.execute("select name from rota.schedule").fetchall()]


@pytest.mark.parametrize(
    "name",
    [
        "from-celery.md",
        "from-rq.md",
        "from-apscheduler.md",
        "from-procrastinate.md",
        "from-cron.md",
    ],
)
def test_a_page_shows_both_halves_as_they_are_and_is_short(name: str) -> None:
    page = read_page(name)
    assert_quoted(page, name.removesuffix(".md").replace("-", "/"))
    assert (
        len(re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL).split()) <= WORDS_MAX
    )
