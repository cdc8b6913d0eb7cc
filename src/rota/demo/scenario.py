"""The scenario of the demo: its steps, in order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg

from rota import embedded
from rota.declare.url import find_url
from rota.demo import jobs, stage
from rota.demo.checks import Facts, PromiseResult, check, promises
from rota.demo.partner import TROUBLE, partner_server
from rota.demo.process import WorkerProcess
from rota.errors import RotaError
from rota.model.retry import DEFAULT_MAX_ATTEMPTS, DEFAULT_RETRY
from rota.store.db import Database

SIGN_UPS = 20
REPORT = "report:2026-01-14"
PAGE_OF_THE_KILL = 4

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scene:
    """The database and the directory of a demo."""

    url: str
    files: Path
    watch: psycopg.Connection
    """An autocommit connection for SELECTs."""
    say: Say

    def count(self, query: str) -> int:
        """Return the number that a SELECT returns."""
        row = self.watch.execute(query.encode()).fetchone()
        return 0 if row is None else int(row[0])


def run(say: Say) -> list[PromiseResult]:
    """Run the demo and return its promises with their results.

    Raises:
        SchemaError: the schemas hold tables that are not the demo's, or cannot be created.
        RotaError: the demo failed half-way; it says where. No process is left behind.
    """
    url = find_url(None) or embedded.start()
    with ExitStack() as stack:
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-demo-")))
        watch = stack.enter_context(Database(url, jobs.SCHEMA).open_connection("demo"))
        stage.set_up(watch, url, files)
        stack.callback(jobs.app.close)
        jobs.app.sync()
        scene = Scene(url, files, watch, say)
        _introduce(scene)
        partner = stack.enter_context(partner_server())
        rolled_back = _sign_up(scene)
        first = stack.enter_context(WorkerProcess(url, files, "first"))
        partner_job, poisoned_job = _work(scene, first, partner)
        report_job, second = _kill_and_recover(scene, stack, first)
        facts = Facts(
            signed_up=SIGN_UPS,
            rolled_back=rolled_back,
            users=stage.USERS + SIGN_UPS,
            partner_job=partner_job,
            poisoned_job=poisoned_job,
            report=REPORT,
            report_job=report_job,
            killed=_name(scene, first),
            took_over=_name(scene, second),
        )
        if status := second.stop():
            raise RotaError(
                "the worker that took over was asked to stop, "
                f"and exited with status {status} instead of 0"
            )
        say("the second worker was asked to stop, finished its jobs, and exited with status 0")
        _compare_files(files)
        return check(watch, promises(facts))


def _introduce(scene: Scene) -> None:
    say = scene.say
    say(
        f"new schemas rota_demo and rota_demo_app: {stage.USERS:,} users, "
        f"{stage.SESSIONS:,} sessions, {stage.FILES} temporary files"
    )
    say(
        "retries are shortened: "
        f"the default is {DEFAULT_RETRY.in_words(DEFAULT_MAX_ATTEMPTS)}; here"
    )
    for name in ("tell_partner", "import_contacts", "build_report"):
        settings = jobs.jobs.types[name]._declaration.options
        lease = (
            "" if settings.lease_s is None else f"; its lease is {settings.lease_s:g} s, not 2 min"
        )
        say(f"  {name}: {settings.retry.in_words(settings.max_attempts)}{lease}")


def _sign_up(scene: Scene) -> int:
    """Sign users up, and one more in a transaction that is rolled back; return the latter's id."""
    with psycopg.connect(scene.url) as connection:
        for number in range(SIGN_UPS):
            sign_up(connection, f"new{number}@shop.example")
            connection.commit()
        rolled_back = sign_up(connection, "regrets@shop.example")
        connection.rollback()
    scene.say(
        f"{SIGN_UPS} users signed up, each with a mail enqueued in the same transaction; "
        f"one more, {rolled_back}, was rolled back"
    )
    return rolled_back


def sign_up(connection: psycopg.Connection, email: str) -> int:
    """Insert a user and, in the same transaction, the job that welcomes them; return the user's
    id."""
    row = connection.execute(
        "insert into rota_demo_app.app_user (email) values (%s) returning id", [email]
    ).fetchone()
    assert row is not None
    user_id = int(row[0])
    jobs.send_welcome_email.using(
        connection=connection, key=f"welcome_email:user:{user_id}"
    ).enqueue(user_id=user_id)
    return user_id


def _work(scene: Scene, worker: WorkerProcess, partner: str) -> tuple[int, int]:
    """Let the first worker run everything it can; return the ids of the flaky and the poisoned
    job."""
    jobs.clean_up.enqueue()
    partner_job = jobs.tell_partner.enqueue(url=f"{partner}/users", user_id=stage.USERS + 1)
    poisoned_job = jobs.import_contacts.enqueue(file="contacts.csv")
    scene.say(
        f"worker 1, process {worker.pid}: mails, a clean-up, a partner that fails {TROUBLE} times, "
        "a file that cannot be read"
    )
    worker.wait_until(
        lambda: not scene.count("select count(*) from rota_demo.job where status <> 'dead'"),
        "every job was over or dead",
    )
    return partner_job.id, poisoned_job.id


def _kill_and_recover(
    scene: Scene, stack: ExitStack, first: WorkerProcess
) -> tuple[int, WorkerProcess]:
    """Kill the first worker in the middle of a report; return the report's id and its second
    worker."""
    with psycopg.connect(scene.url) as slow:
        # Another transaction holds a lock on one user, so the report cannot get past that user's
        # page, however fast the machine is.
        user_id = (PAGE_OF_THE_KILL - 1) * -(-_ids() // jobs.PAGES) + 1
        slow.execute("select from rota_demo_app.app_user where id = %s for update", [user_id])
        report = jobs.build_report.using(key=REPORT).enqueue(report=REPORT, users=_ids())
        again = jobs.build_report.using(key=REPORT).enqueue(report=REPORT, users=_ids())
        if again.created or again.id != report.id:
            raise RotaError(
                f"a second request for the report made job {again.id} beside job {report.id}"
            )
        scene.say(f"a report requested twice is job {report.id} both times")
        pages = f"select count(*) from rota_demo_app.app_report_page where report = '{REPORT}'"
        first.wait_until(
            lambda: scene.count(pages) == PAGE_OF_THE_KILL - 1, "the report was in the middle"
        )
        first.kill()
        scene.say(
            f"worker 1, process {first.pid}, was killed with SIGKILL "
            f"after page {PAGE_OF_THE_KILL - 1} of {jobs.PAGES}"
        )
    second = stack.enter_context(WorkerProcess(scene.url, scene.files, "second"))
    scene.say(f"worker 2, process {second.pid}: waits for the lease to expire, then continues")
    second.wait_until(
        lambda: scene.count(f"select count(*) from rota_demo.job_history where id = {report.id}"),
        "the lost report was finished",
    )
    return report.id, second


def _ids() -> int:
    """Return the highest user id: the sign-up that was rolled back used one too."""
    return stage.USERS + SIGN_UPS + 1


def _name(scene: Scene, worker: WorkerProcess) -> str:
    row = scene.watch.execute(
        "select name from rota_demo.worker where pid = %s", [worker.pid]
    ).fetchone()
    return "" if row is None else str(row[0])


def _compare_files(files: Path) -> None:
    """Compare what the clean-up reports with the directory itself, which PostgreSQL cannot read."""
    left, mails = (
        sum(1 for _ in (files / "tmp").iterdir()),
        sum(1 for _ in (files / "outbox").glob("*.eml")),
    )
    if (left, mails) != (stage.FILES - stage.STALE_FILES, SIGN_UPS):
        raise RotaError(
            f"the directory has {left} temporary files and {mails} mails, "
            "which are not the expected numbers"
        )
