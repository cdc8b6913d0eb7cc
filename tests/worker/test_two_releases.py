"""A deploy that is under way: workers of two releases of the application, or of Rota itself, and
producers of both."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import rota
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartWorker
from tests.worker.process import WorkerProcess
from tests.worker.table import Connection, connected, over, put_many, rows, value

pytestmark = pytest.mark.system

MADE_BY: dict[str, dict[str, dict[str, Any]]] = {
    "old": {"greet": {"user": 1}, "bill": {"order": 2}, "draw": {"size": 3}}
}
MADE_BY["new"] = {
    "greet": {"user": 1, "language": "de"},
    "invoice": {"order": 2},
    "draw": {"width": 3, "height": 4},
    "thank": {"user": 5},
}
ALL = len(MADE_BY["old"]) + len(MADE_BY["new"])
THIRTY_SECONDS_PASS = (
    "update rota.job set run_at = rota.clock() where status = 'queued' "
    "and mismatched_releases is not null and run_at > rota.clock()"
)


@pytest.fixture
def deploy(database: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Enqueue a job of each type of each release, as its producers would."""
    monkeypatch.setenv("ROTA_DATABASE_URL", database)

    def enqueue() -> None:
        for release, payloads in MADE_BY.items():
            app: rota.App = runpy.run_path(str(Path(__file__).with_name(f"release_{release}.py")))[
                "app"
            ]
            for name, payload in payloads.items():
                app.types[name].enqueue(**payload)
            app.close()

    return enqueue


@rule("M12", "M13")
def test_of_two_releases_each_runs_what_it_can_and_nothing_is_dead(
    start_worker: StartWorker, database: str, connection: Connection, deploy: Callable[[], None]
) -> None:
    old = start_worker(database, module="tests.worker.release_old")
    new = start_worker(database, module="tests.worker.release_new")

    freeze_between_two_claims(connection, new)  # the old one alone, while the new one is known
    deploy()
    eventually(
        lambda: (
            over(connection) == 4
            and value(
                connection, "select count(*) from rota.job where mismatched_releases is not null"
            )
            == 1
        )
    )
    assert _done(connection) == {
        # Its own job and the new release's, whose additional field it ignores.
        ("greet", "hello 1", "old"),
        ("bill", 2, "old"),
        ("draw", (3, 3), "old"),
    }
    assert rows(
        connection,
        "select job_type, status, attempts, claims > 0, mismatched_releases from rota.job "
        "order by id",
    ) == [
        ("invoice", "queued", 0, False, None),  # never claimed: the old release knows neither name
        ("draw", "queued", 0, True, ["old"]),
        ("thank", "queued", 0, False, None),
    ]

    freeze_between_two_claims(connection, old)  # the new one alone
    new.signal(signal.SIGCONT)
    connection.execute(THIRTY_SECONDS_PASS)
    connection.execute("truncate rota.job_history")
    deploy()
    eventually(lambda: over(connection) == 3 + ALL)
    assert _done(connection) == {
        ("greet", "hello 1 in en", "new"),
        ("greet", "hello 1 in de", "new"),
        ("bill", 2, "new"),
        ("invoice", 2, "new"),
        ("draw", (3, 3), "new"),
        ("draw", (3, 4), "new"),
        ("thank", "thanks 5", "new"),
    }

    assert rows(connection, "select distinct status, attempts from rota.job_history") == [
        ("succeeded", 1)
    ]
    assert set(
        rows(connection, "select distinct outcome, error_type, release from rota.attempt")
    ) == {("queued", "rota.errors.PayloadError", "old")}
    old.signal(signal.SIGCONT)
    for worker in (old, new):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log


def freeze_between_two_claims(connection: Connection, worker: WorkerProcess) -> None:
    """With a claim under way it would be given jobs that come later, and keep them for a lease."""
    at_rest = (
        "select count(*) = 2 from pg_stat_activity where pid = any (%s) and state = 'idle' "
        "and clock_timestamp() - state_change > interval '0.2 s'"
    )
    eventually(lambda: value(connection, at_rest, connected(connection, "claim")))
    worker.freeze()


def _done(connection: Connection) -> set[tuple[Any, ...]]:
    found = rows(connection, "select job_type, result, release from rota.job_history")
    return {
        (kind, tuple(result) if isinstance(result, list) else result, release)
        for kind, result, release in found
    }


HERE = Path(rota.__file__).parent
SCHEMA = Path("store", "schema")


PRODUCER = """
import sys, threading
import rota
app = rota.App()
quick = app.job("quick")(lambda: None)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
while not stop.is_set():
    made = [quick.enqueue().id] + [job.id for job in app.enqueue_many([quick.new()] * 5)]
    print(*made, sep="\\n", flush=True)  # they are committed
"""


@pytest.fixture
def next_release(tmp_path: Path) -> Path:
    """The directory of a Rota 0.2.0: `job` has a column more, its finish is another function, and
    its renewal has another text."""
    place = tmp_path / "next"
    package = place / "rota"
    shutil.copytree(HERE, package, ignore=shutil.ignore_patterns("__pycache__"))
    _edit(package / "declare" / "release.py", 'VERSION = "0.1.0"', 'VERSION = "0.2.0"')
    (package / SCHEMA / "migrations" / "0002_tint.sql").write_text(
        "-- Oldest release that can live with this: 0.1.0\nalter table job add column tint text;\n",
        encoding="utf-8",
    )
    functions = package / SCHEMA / "functions"
    finish = functions / "finish" / "job_finish_2.sql"
    shutil.copy(functions / "finish" / "job_finish.sql", finish)
    _edit(finish, "function {schema}.job_finish(", "function {schema}.job_finish_2(")
    for file in (package / "store" / "ops").glob("*.py"):
        file.write_text(
            file.read_text(encoding="utf-8").replace('"job_finish"', '"job_finish_2"'),
            encoding="utf-8",
        )
    _edit(functions / "lease" / "job_renew.sql", "begin\n", "begin\n  -- of 0.2.0\n")
    return place


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, file
    file.write_text(text.replace(old, new), encoding="utf-8")


@dataclass
class Deploy:
    """A deploy of the next release, step by step, and the ids that its producers got."""

    url: str
    place: Path
    next_release: Path
    start_worker: StartWorker
    producers: list[subprocess.Popen[str]] = field(default_factory=list)

    def migrate(self, release: Path) -> str:
        """Call `rota migrate` of a release; return what it says."""
        command = [sys.executable, "-m", "rota", "migrate", "--url", self.url]
        environment = {**os.environ, "PYTHONPATH": str(release)}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    def web(self, release: Path) -> None:
        """Start a producer of a release."""
        with (self.place / f"ids-{len(self.producers)}").open("wb") as ids:
            self.producers.append(
                subprocess.Popen(
                    [sys.executable, "-c", PRODUCER],
                    env={
                        **os.environ,
                        "PYTHONPATH": str(release),
                        "ROTA_DATABASE_URL": self.url,
                    },
                    stdin=subprocess.PIPE,
                    stdout=ids,
                    text=True,
                )
            )

    def worker(self, release: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerProcess:
        """Start a worker of a release."""
        with monkeypatch.context() as environment:
            environment.setenv("PYTHONPATH", str(release))
            return self.start_worker(self.url)

    def enqueued(self) -> list[int]:
        """Stop the producers; return the ids of all that they enqueued."""
        for producer in self.producers:
            producer.communicate()
            assert producer.returncode == 0
        files = sorted(self.place.glob("ids-*"))
        return sorted(int(line) for file in files for line in file.read_text().split())


@pytest.fixture
def rollout(
    tmp_path: Path, database: str, next_release: Path, start_worker: StartWorker
) -> Iterator[Deploy]:
    """A deploy under way; producers that still run are killed after the test."""
    deploy = Deploy(database, tmp_path, next_release, start_worker)
    yield deploy
    for producer in deploy.producers:
        producer.kill()
        producer.communicate()


@pytest.mark.nightly
@rule("M2", "M3")
@pytest.mark.parametrize(
    "order", ["migrate worker web", "migrate web worker", "web worker migrate"]
)
def test_a_deploy_in_any_order_under_load_runs_each_job_once(
    rollout: Deploy, order: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = rollout.start_worker(rollout.url)
    rollout.web(HERE.parent)
    workers = [old]

    def more_are_over() -> None:
        reached = over(connection)
        eventually(lambda: over(connection) >= reached + 200)

    more_are_over()
    for step in order.split():
        if step == "migrate":
            rollout.migrate(rollout.next_release)
        elif step == "web":
            rollout.web(rollout.next_release)
        elif "migrate" in order.partition("worker")[0]:
            workers.append(rollout.worker(rollout.next_release, monkeypatch))
        else:  # it refuses a schema that lacks what it calls
            with pytest.raises(AssertionError, match=r"0002_tint: run `rota migrate`"):
                rollout.worker(rollout.next_release, monkeypatch)
        more_are_over()
    if len(workers) == 1:
        workers.append(rollout.worker(rollout.next_release, monkeypatch))
    more_are_over()
    enqueued = rollout.enqueued()
    eventually(lambda: value(connection, "select count(*) = 0 from rota.job"), 120)
    for worker in workers:
        freeze_between_two_claims(connection, worker)  # now the other alone
        put_many(connection, "quick", 20)
        eventually(lambda: value(connection, "select count(*) = 0 from rota.job"))
        worker.signal(signal.SIGCONT)
    # A roll-back runs the older migrate once more: it says what it leaves alone.
    assert "kept job_renew of the newer release 0.2.0" in rollout.migrate(HERE.parent)

    ran = [int(note.split()[1]) for worker in workers for note in worker.notes()]
    assert len(ran) == len(set(ran)) == len(enqueued) + 40
    assert set(enqueued) < set(ran)
    assert rows(connection, "select distinct status, attempts from rota.job_history") == [
        ("succeeded", 1)
    ]
    assert value(
        connection, "select prosrc like '%of 0.2.0%' from pg_proc where proname = 'job_renew'"
    )
