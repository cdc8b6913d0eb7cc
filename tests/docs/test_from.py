"""The pages of those who come from another library: both halves of examples/from run, with the same
output."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.reader import ROOT, Reader
from tests.support.server import PostgresServer, unused_port
from tests.support.wait import eventually

EXAMPLES = ROOT / "examples" / "from"
MAILS = ["mail to ada", "mail to bob", "mail to eve"]
BEFORE: dict[str, tuple[list[str], list[str], list[str]]] = {
    # from-celery-and-rq.md
    "celery": (
        [
            "-m celery -A before worker -P solo -Q celery,mail -l warning",
            "-m celery -A before beat",
        ],
        ["before.py", "-m celery -A before call digest"],
        [*(f"{mail}, attempt" for mail in MAILS), "mail to bob, attempt 2", "sum 14", "square 9"],
    ),
    # from-celery-and-rq.md, too
    "rq": (
        ["-m rq.cli worker mail --with-scheduler"],
        ["-c 'import before; before.main()'"],
        [*MAILS, "report of may mailed"],
    ),
    # from-apscheduler.md
    "apscheduler": (["-m before"], [], ["reminded ada"]),
    # from-procrastinate.md
    "procrastinate": (
        ["-m procrastinate --app before.app worker"],
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

pytestmark = [pytest.mark.system, pytest.mark.nightly]


@pytest.fixture
def reader(
    request: pytest.FixtureRequest, place: Path, server: PostgresServer, empty_database: str
) -> Iterator[Reader]:
    """A reader in a copy of the folder of the test's parameter."""
    name = request.node.callspec.params["name"]
    shutil.copytree(EXAMPLES / name, place, dirs_exist_ok=True)
    with Reader(place, server, empty_database) as reader:
        reader.set("ROTA_DATABASE_URL", empty_database)
        reader.set("ROTA_APP", "after:app")
        yield reader


def hear(reader: Reader, lines: list[str]) -> None:
    """What stays prints these lines, sooner or later."""

    def missing() -> list[str]:
        said = reader.read_logs()
        return [line for line in lines if line not in said]

    eventually(lambda: not missing(), 60, what=f"{missing()} in\n{reader.read_logs()}")


@pytest.mark.parametrize("name", BEFORE)
def test_the_half_before_runs_as_its_library_runs_it(name: str, reader: Reader) -> None:
    if find_spec(name) is None:
        pytest.skip(f"NO {name}: examples/from/{name}/before.py was not run")
    serving, lines, said = BEFORE[name]
    url = reader.url
    if name in ("celery", "rq"):
        if shutil.which("redis-server") is None:
            pytest.skip(f"NO redis-server: examples/from/{name}/before.py was not run")
        port = unused_port()
        reader.serve(f"redis-server --save '' --bind 127.0.0.1 --port {port}", "Ready to accept")
        for variable in ("REDIS_URL", "RQ_REDIS_URL"):
            reader.set(variable, f"redis://127.0.0.1:{port}/0")
    if name == "apscheduler":
        url = url.replace("postgresql:", "postgresql+psycopg:")
    reader.set("DATABASE_URL", url)
    if name == "procrastinate":
        reader.type("python -m procrastinate --app before.app schema --apply")
    for line in serving:
        reader.serve(f"python {line}", "")
    for line in lines:
        reader.type(f"python {line}")
    hear(reader, said)


@pytest.mark.parametrize("name", BEFORE)
def test_the_half_after_says_the_same(name: str, reader: Reader) -> None:
    reader.type("rota migrate")
    reader.type("rota work")
    reader.type("python after.py")
    said = list(BEFORE[name][2])
    if name in SCHEDULES:
        schedule, line = SCHEDULES[name]
        reader.type(f"rota schedules trigger {schedule}")
        said.append(line)
    hear(reader, said)


@pytest.mark.parametrize("name", ["cron"])
def test_a_crontab_and_the_commands_made_of_it_start_the_same_programs(
    name: str, reader: Reader
) -> None:
    """As from-cron.md says."""
    printed = reader.type("rota crontab --import before.crontab")
    assert printed == (reader.place / "after.py").read_text()
    calls = reader.place / "calls"
    for program in ("pg_dump", "import-feed", "mail-report"):
        file = reader.place / ".venv" / "bin" / program
        file.unlink(missing_ok=True)
        file.write_text(f'#!/bin/sh\ncat\necho "{program} $*" >> {calls}\n')
        file.chmod(0o755)

    def read_calls() -> list[str]:
        found = sorted(calls.read_text().splitlines())
        calls.unlink()
        return found

    crontab = (reader.place / "before.crontab").read_text()
    for line in re.findall(r"^(?:@daily|(?:\S+ ){5}) ?(.*)$", crontab, re.MULTILINE):
        reader.type(f"({line}) </dev/null".replace("\\%", "%"))
    before = read_calls()
    reader.type("rota migrate")
    for (schedule,) in reader.ask("select name from rota.schedule"):
        # Its next time, which may be now, does not enqueue a second job.
        reader.type(f"rota schedules pause {schedule}")
        reader.type(f"rota schedules trigger {schedule}")
    reader.type("rota work --drain")
    assert reader.ask("select distinct status from rota.jobs") == [("succeeded",)]
    assert read_calls() == before and before
