"""`rota work --processes`: a parent keeps its workers up, passes orders on, takes them with it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rota.cli import run
from rota.runtime import supervisor as parents
from rota.runtime.supervised import ORPHAN_S, STOP, STOP_NOW, Vitals
from rota.runtime.supervisor import (
    BACK_OFF_S,
    PING_S,
    QUIET_S,
    REST_S,
    SILENT_S,
    ServedDatabase,
    Supervisor,
    WorkerChild,
)
from rota.worker.executor import STOP_NOW_S
from tests.support.rules import rule
from tests.support.wait import eventually
from tests.worker.conftest import StartSupervisor
from tests.worker.supervisor import gone
from tests.worker.table import Connection, connected, put, rows, status

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="--processes is for Linux"),
]


# What the parent makes of the end of a process, decided without one


class Child(WorkerChild):
    """Stands for a worker process."""

    def __init__(self, pid: int, database: ServedDatabase) -> None:
        self.pid = pid
        self.database = database
        self.vitals = Vitals()
        self.received_at = None
        self.says: list[Vitals] = []
        self.asked: list[str] = []

    def send(self, request: str) -> None:
        """Keep it."""
        self.asked.append(request)

    def receive(self) -> Iterator[Vitals]:
        """What it says."""
        yield from self.says


class Parent(Supervisor):
    """A parent that starts no process, on a clock of the test."""

    def __init__(self, count: int, *names: str, drain: bool = False) -> None:
        databases = [ServedDatabase(name) for name in names]
        super().__init__(["never started"], count, drain=drain, databases=databases)
        self.now = 1_000.0

    def begin(self, database: int = 0, *, is_fit: bool = True) -> Child:
        """Let a process of a database start, and perhaps find it in order."""
        served = self._databases[database]
        child = Child(served.started + 100 * database, served)
        self._children[child.pid] = child
        served.started += 1
        if is_fit:
            served.is_fit = True
        child.vitals = Vitals(is_fit=is_fit)
        return child

    def missing(self) -> list[int]:
        """How many processes of each database it would start."""
        return [self._count_missing(database) for database in self._databases]

    def paused_s(self, database: int = 0) -> float:
        """How long it waits before it starts the next one of a database."""
        return self._databases[database].start_at - self.now


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Parent:
    """Of two processes."""
    parent = Parent(2)
    monkeypatch.setattr(parents, "monotonic", lambda: parent.now)
    return parent


@rule("M33")
def test_ends_without_an_order_lead_to_replacements_however_many_at_growing_pauses(
    parent: Parent,
) -> None:
    other = parent.begin()
    pauses = []
    for exit_status in (-signal.SIGKILL, 1, 0, 3) * 5:  # 3: it had been found in order before
        parent._handle_end(parent.begin(), exit_status)
        pauses.append(parent.paused_s())
        assert parent.missing() == [1]
    first, longest = BACK_OFF_S
    assert pauses == sorted(pauses) and (pauses[0], pauses[-1]) == (first, longest)
    assert other.asked == [], "the others work on"

    parent.now += QUIET_S + 1
    parent._handle_end(parent.begin(), -signal.SIGSEGV)
    assert parent.paused_s() == first, "the ends before are forgotten"


@rule("M83")
def test_a_parent_that_gets_no_room_for_a_process_tries_again_and_a_drain_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none)
    parent = Parent(1)
    parent._start_missing()
    assert "could not be started: [Errno 11] Resource temporarily unavailable" in caplog.text
    assert (parent.missing(), parent._databases[0].back_off.tries) == ([1], 1)
    assert Supervisor(["nothing"], 2, drain=True).run() == 1


def test_a_database_that_is_away_ends_no_process_that_waits_for_it(parent: Parent) -> None:
    other = parent.begin()
    for _ in range(20):
        parent._handle_end(parent.begin(is_fit=False), 5)
        assert parent.missing() == [1]
    assert other.asked == []


@pytest.mark.parametrize("exit_status", [2, 3])
def test_a_process_that_cannot_be_configured_is_alone_and_not_tried_again(
    parent: Parent, exit_status: int
) -> None:
    assert parent.missing() == [1], "so that it says why once"
    parent._handle_end(parent.begin(is_fit=False), exit_status)
    assert (parent.missing(), parent.run()) == ([0], exit_status)


@rule("M2")
def test_of_several_databases_one_that_cannot_be_worked_rests_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parent = Parent(1, "a", "b")
    monkeypatch.setattr(parents, "monotonic", lambda: parent.now)
    parent._handle_end(parent.begin(0, is_fit=False), 3)
    assert f"of a exited with status 3; another starts in {REST_S:.1f} s" in caplog.text
    assert (parent.missing(), parent.paused_s(0)) == ([1, 1], REST_S)

    # One that failed and works again is not counted when the other fails.
    good = parent.begin(0, is_fit=False)
    good.says.append(Vitals(is_fit=True))
    parent._receive(good)
    parent._handle_end(parent.begin(1, is_fit=False), 3)
    assert (parent.missing(), parent.paused_s(1)) == ([0, 1], REST_S)


@rule("M2")
def test_the_command_ends_when_none_of_its_databases_can_be_worked() -> None:
    parent = Parent(1, "a", "b")
    parent._handle_end(parent.begin(0, is_fit=False), 3)
    again = parent.begin(0, is_fit=False)
    parent._handle_end(parent.begin(1, is_fit=False), 2)
    assert (parent.missing(), again.asked) == ([0, 0], [STOP])
    parent._handle_end(again, 3)
    assert parent.run() == 3


@rule("M86")
def test_of_several_processes_one_pings_once_each_database_had_a_good_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = Parent(2, "a", "b")
    pinged: list[str] = []
    monkeypatch.setattr(parents, "monotonic", lambda: parent.now)
    monkeypatch.setattr(parents, "ping", pinged.append)
    parent._ping_url = "http://switch"
    children = [parent.begin(database) for database in (0, 0, 1)]

    def all_pass(*passing: Child) -> int:
        for child in passing:
            child.says[:] = [Vitals(is_fit=True, passes=child.vitals.passes + 1)]
            parent._receive(child)
        for thread in threading.enumerate():
            if thread.name == "rota-ping":
                thread.join()
        return len(pinged)

    assert all_pass(children[0], children[1]) == 0
    assert all_pass(children[2]) == 1
    assert all_pass(*children) == 1, "not for each process"
    parent.now += PING_S
    assert all_pass(*children) == 2


@rule("M86")
def test_several_processes_are_ready_when_all_are_and_well_while_one_is_replaced(
    parent: Parent,
) -> None:
    def say() -> tuple[str | None, str | None]:
        return parent.liveness(), parent.readiness()

    parent._turned_at = parent.now
    assert say() == (None, "0 of 2 worker processes are up")
    first, other = parent.begin(), parent.begin()
    for child in (first, other):
        child.received_at = parent.now
    assert say() == (None, None)
    parent._handle_end(first, -signal.SIGKILL)
    assert say() == (None, "1 of 2 worker processes are up")
    new = parent.begin()
    new.vitals = Vitals(readiness="starting")
    assert say() == (None, f"worker process {new.pid}: starting")

    other.vitals, new.vitals = Vitals(liveness="its loop is blocked"), Vitals()
    assert say() == (f"worker process {other.pid}: its loop is blocked",) * 2
    other.vitals = Vitals()
    parent.now = parent._turned_at = parent.now + SILENT_S + 1  # it is frozen
    assert say() == (f"worker process {other.pid}: silent for 11 s",) * 2
    parent.now += SILENT_S + 1
    assert say()[0] == "the parent process has been stuck for 11 s"
    parent._stop()
    parent._stop()
    assert (other.asked, parent.readiness()) == ([STOP, STOP_NOW], "stopping")


@rule("M2", "M80")
def test_the_exit_status_is_the_worst_of_those_that_were_told_to_end() -> None:
    for drain, is_fit, exit_statuses, exit_status in (
        (False, True, (0, 0), 0),
        (False, True, (0, 4), 4),
        (False, False, (0, 5), 0),  # it still waited for its database
        (False, True, (-signal.SIGTERM, 0), 0),  # it was importing the app
        (False, True, (-signal.SIGKILL, 0), 1),
        (True, True, (0, -signal.SIGKILL), 1),
        (True, True, (0, 5), 5),
    ):
        parent = Parent(2, drain=drain)
        children = [parent.begin(is_fit=is_fit) for _ in exit_statuses]
        if not drain:
            parent._stop()
        for child, ended in zip(children, exit_statuses, strict=True):
            parent._handle_end(child, ended)
        assert parent.missing() == [0], "none is replaced"
        assert parent.run() == exit_status, (drain, exit_statuses)


# With processes


@rule("M2", "M33", "M83")
def test_each_process_is_a_worker_a_dead_one_is_replaced_and_all_finish_what_runs_at_the_end(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    supervisor = start_supervisor(database, 2, "--concurrency=1")
    supervisor.until_working(2)
    held = put(connection, "hold", until=str(tmp_path / "go"))
    holder = supervisor.until_noted(f"start {held}")
    [other] = [child for child in supervisor.children() if child.pid != holder]
    other.kill()
    supervisor.until_working(3)
    assert f"worker process {other.pid} was killed by SIGKILL" in supervisor.log
    assert supervisor.log.count("another starts in") == 1
    blocked = put(connection, "block", until=str(tmp_path / "go"))
    pids = {holder, supervisor.until_noted(f"start {blocked}")}
    assert pids == {child.pid for child in supervisor.children()} and other.pid not in pids

    supervisor.signal(signal.SIGTERM)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimers' connections are closed"
    )
    left = put(connection, "quick")
    (tmp_path / "go").touch()

    assert supervisor.wait() == (0, ""), supervisor.log
    assert [status(connection, job) for job in (held, blocked)] == ["succeeded"] * 2
    assert status(connection, left) == "queued"
    assert rows(connection, "select distinct attempts from rota.job_history") == [(1,)]
    stopped = rows(connection, "select name from rota.worker where stopped_at is not null")
    assert len({*stopped}) == 2
    for pid in pids:
        assert supervisor.log.count(f"worker process {pid} exited with status 0") == 1


def _app(place: Path, text: str) -> Path:
    (place / "mine.py").write_text(
        "import rota, os, sys, time, contextlib\napp = rota.App()\n@app.job('a')\n"
        f"def a(): ...\n{text}\n"
    )
    return place


@pytest.mark.nightly
@rule("M83")
def test_signals_to_parent_and_children_alike_do_not_skip_their_grace_period(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    """As when a service manager stops all processes of a unit, or a terminal closes."""
    supervisor = start_supervisor(database, 1)
    supervisor.until_working(1)
    first, job = (put(connection, "hold", until=str(tmp_path / file)) for file in ("first", "go"))
    for id_ in (first, job):
        supervisor.until_noted(f"start {id_}")
    [child] = supervisor.children()
    supervisor.signal(signal.SIGHUP)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimer's connection is closed"
    )
    supervisor.signal(signal.SIGHUP)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
        child.send_signal(number)
    (tmp_path / "first").touch()
    supervisor.until_noted(f"end {first}")  # so its loop has turned since
    (tmp_path / "go").touch()

    assert supervisor.wait() == (0, ""), supervisor.log
    assert supervisor.log.count("stopping 1 worker process") == 1
    assert status(connection, job) == "succeeded"


@pytest.mark.nightly
@rule("M31", "M83")
@pytest.mark.parametrize("handler", ["hold", "wedge"])
def test_children_are_gone_soon_after_their_parent_and_hand_back_what_they_can(
    start_supervisor: StartSupervisor,
    database: str,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    handler: str,
) -> None:
    assert STOP_NOW_S < ORPHAN_S < 1
    if handler != "wedge":  # what can be handed back is, however little time the machine has for it
        monkeypatch.setenv("WORKER_ORPHAN_S", "20")
    supervisor = start_supervisor(database, 1, "--concurrency=1", "--grace=10m")
    supervisor.until_working(1)
    job = put(connection, handler, until=str(tmp_path / "never"))
    supervisor.until_noted(f"start {job}")
    [child] = supervisor.children()
    supervisor.process.kill()
    eventually(lambda: gone(child), 60)
    # A blocked loop hands nothing back: the job's lease must expire.
    assert status(connection, job) == ("running" if handler == "wedge" else "queued")


@pytest.mark.nightly
def test_children_that_have_not_begun_are_gone_with_their_parent(
    start_supervisor: StartSupervisor,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _app(tmp_path, f"open({str(tmp_path / 'importing')!r}, 'w')\ntime.sleep(600)")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    )
    supervisor = start_supervisor(database, 1, app="mine:app")
    eventually((tmp_path / "importing").exists)
    [child] = supervisor.children()
    supervisor.process.kill()
    eventually(lambda: gone(child))


def _may_unshare() -> bool:
    try:
        return (
            subprocess.run(
                ["unshare", "--pid", "--fork", "--mount-proc", "true"],
                check=False,
                capture_output=True,
            ).returncode
            == 0
        )
    except FileNotFoundError:
        return False


@pytest.mark.nightly
@rule("M83")
def test_as_pid_1_it_reaps_orphans_replaces_its_own_and_stops_in_order(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    if not _may_unshare():
        pytest.skip("pid namespaces are not allowed here: work as pid 1 was not tested")
    supervisor = start_supervisor(
        database, 1, around=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    )
    supervisor.until_working(1)
    [parent] = psutil.Process(supervisor.pid).children()
    [worker] = parent.children()
    facts = Path(f"/proc/{parent.pid}/status").read_text()
    assert facts.split("NSpid:")[1].splitlines()[0].split()[-1] == "1"
    job = put(connection, "leave", until=str(tmp_path / "go"))
    eventually(lambda: status(connection, job) == "succeeded")
    [orphan] = eventually(lambda: [child for child in parent.children() if child.pid != worker.pid])
    (tmp_path / "go").touch()
    eventually(lambda: not psutil.pid_exists(orphan.pid), what="the orphan is reaped")
    assert [child.pid for child in parent.children()] == [worker.pid]

    worker.kill()
    supervisor.until_working(2)
    parent.send_signal(signal.SIGTERM)
    assert supervisor.wait() == (0, ""), supervisor.log


@rule("M83")
def test_a_worker_that_is_pid_1_reaps_orphans_and_hears_sigterm_also_before_it_is_up(
    database: str, tmp_path: Path
) -> None:
    if not _may_unshare():
        pytest.skip("pid namespaces are not allowed here: an early SIGTERM to pid 1 was not tested")
    importing = f"open({str(tmp_path / 'importing')!r}, 'w')"
    place = _app(tmp_path, f"os.system('sleep 600 &')\n{importing}\ntime.sleep(600)")
    around = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = [*around, sys.executable, "-m", "rota", "work", "--app=mine:app"]
    with subprocess.Popen(
        command, cwd=place, env={**os.environ, "ROTA_DATABASE_URL": database}
    ) as unshared:
        try:
            eventually((tmp_path / "importing").exists)
            [first] = psutil.Process(unshared.pid).children()
            [orphan] = [process for process in first.children() if process.name() == "sleep"]
            orphan.kill()
            eventually(lambda: orphan not in first.children(), what="it is reaped")
            first.send_signal(signal.SIGTERM)
            assert unshared.wait(30) == 128 + signal.SIGTERM
        finally:
            unshared.kill()


def test_what_several_processes_cannot_be_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in (
        ["--processes", "0"],
        ["--processes", "65"],
        ["--health-port", "0"],
        ["--drain", "--health-port", "8080"],
    ):
        assert run(["work", *wrong]) == 2
    monkeypatch.setattr(sys, "platform", "darwin")
    assert run(["work", "--processes", "2"]) == 3
    assert "work on Linux only" in capsys.readouterr().err
