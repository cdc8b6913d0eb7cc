"""`rota work --processes`: a parent keeps its workers up, passes orders on, takes them with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

import msgspec
import psutil
import pytest
from psycopg.conninfo import make_conninfo

from rota.cli import run
from rota.runtime.supervised import ORPHAN_S
from rota.runtime.supervisor import ENDS_MAX
from rota.worker.executor import STOP_NOW_S
from tests.support import forked
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually
from tests.worker.conftest import StartSupervisor
from tests.worker.supervisor import NO_TIMES, Times, gone, rota
from tests.worker.table import Connection, connected, over, put, put_many, rows, status

pytestmark = [
    pytest.mark.waits,
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="--processes is for Linux"),
]

SOON = {"BACK_OFF_S": (0.05, 0.2)}
TWO = SOON | {"ENDS_MAX": 2}
"""Each end costs the start of a process."""
"""A process that has ended is replaced at once."""
UNCHARGED = "select id, status, attempts from rota.job order by id"


@rule("M2", "M83")
def test_each_process_is_a_worker_and_all_finish_what_runs_when_the_parent_stops(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    supervisor = start_supervisor(database, 2, "--concurrency=1")
    supervisor.until_working(2)
    jobs = [put(connection, job_type, until=str(tmp_path / "go")) for job_type in ("hold", "block")]
    pids = {supervisor.until_noted(f"start {job}") for job in jobs}
    assert pids == {child.pid for child in supervisor.children()}

    supervisor.signal(signal.SIGTERM)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimers' connections are closed"
    )
    left = put(connection, "quick")
    (tmp_path / "go").touch()

    assert supervisor.wait() == (0, ""), supervisor.log
    assert [status(connection, job) for job in (*jobs, left)] == [
        "succeeded",
        "succeeded",
        "queued",
    ]
    names = [
        name
        for (name,) in rows(connection, "select name from rota.worker where stopped_at is not null")
    ]
    assert len({*names}) == 2
    for pid in pids:
        assert (
            supervisor.log.count(f"worker process {pid} started")
            == supervisor.log.count(f"worker process {pid} exited with status 0")
            == 1
        )


@rule("M33")
def test_a_process_that_ends_unasked_is_replaced_and_the_others_go_on(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    supervisor = start_supervisor(database, 2, "--concurrency=1")
    supervisor.until_working(2)
    held = put(connection, "hold", until=str(tmp_path / "go"))
    holder, gone = supervisor.until_noted(f"start {held}"), set()
    # The last signal has no name.
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGRTMIN + 3):
        [other] = [child for child in supervisor.children() if child.pid != holder]
        gone.add(other.pid)
        other.send_signal(how)
        supervisor.until_working(2 + len(gone))
        assert len(supervisor.children()) == 2
        assert f"worker process {other.pid} " in supervisor.log
        assert supervisor.log.count("another starts in") == len(gone)
        started = supervisor.until_noted(f"start {put(connection, 'quick')}")
        assert started not in {holder, *gone}
    (tmp_path / "go").touch()
    supervisor.signal(signal.SIGINT)
    assert supervisor.wait() == (0, ""), supervisor.log
    assert rows(connection, "select attempts from rota.job_history where id = %s", held) == [(1,)]


def test_five_ends_within_a_minute_end_the_parent_after_the_others_have_finished_what_runs(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    supervisor = start_supervisor(database, 2, "--concurrency=1", times=SOON)
    supervisor.until_working(2)
    held = put(connection, "hold", until=str(tmp_path / "go"))
    holder = supervisor.until_noted(f"start {held}")
    spared = {holder}
    # Each is killed at once: all have to end within a minute, even if a start takes ten seconds.
    for _ in range(ENDS_MAX):
        [other] = eventually(
            lambda: [child for child in supervisor.children() if child.pid not in spared], 30
        )
        other.kill()
        spared.add(other.pid)
    eventually(lambda: "stopping 1 worker process" in supervisor.log)
    assert supervisor.process.poll() is None
    (tmp_path / "go").touch()

    assert supervisor.wait() == (4, ""), supervisor.log
    assert supervisor.log.splitlines()[-1].startswith(
        f"rota: {ENDS_MAX} worker processes ended within 60 s; the last: worker process"
    )
    assert status(connection, held) == "succeeded"


@pytest.mark.slow
def test_a_database_that_is_away_does_not_end_the_processes_that_wait_for_it(
    start_supervisor: StartSupervisor, own_server: PostgresServer, tmp_path: Path
) -> None:
    from rota.store.migrate import migrate

    migrate(own_server.url())
    supervisor = start_supervisor(own_server.url(), 2, times=TWO)
    supervisor.until_working(2)
    first, other = supervisor.children()
    own_server.stop("immediate")
    other.kill()
    eventually(lambda: supervisor.log.count("exited with status 5; another starts") >= 2, 180)
    own_server.start()
    supervisor.until_working(3)
    assert first.is_running() and len(supervisor.children()) == 2
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == (0, ""), supervisor.log


@rule("M2")
def test_a_replacement_that_is_refused_its_login_does_not_end_the_others(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    role = f"{rows(connection, 'select current_database()')[0][0]}_away"
    connection.execute(f"create role {role} superuser login".encode())
    try:
        supervisor = start_supervisor(make_conninfo(database, user=role), 2, "--concurrency=1")
        supervisor.until_working(2)
        held = put(connection, "hold", until=str(tmp_path / "go"))
        holder = supervisor.until_noted(f"start {held}")
        [other] = [child for child in supervisor.children() if child.pid != holder]
        connection.execute(f"alter role {role} nologin".encode())
        other.kill()
        eventually(lambda: "exited with status 3; another starts in" in supervisor.log)
        connection.execute(f"alter role {role} login".encode())
        supervisor.until_working(3)
        assert len(supervisor.children()) == 2
        (tmp_path / "go").touch()
        eventually(lambda: status(connection, held) == "succeeded")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == (0, ""), supervisor.log
    finally:
        supervisor.end()
        # After midnight the role also owns the partitions of one more day.
        connection.execute(f"drop owned by {role} cascade".encode())
        connection.execute(f"drop role {role}".encode())


def _app(place: Path, text: str) -> Path:
    (place / "mine.py").write_text(
        "import rota, os, sys, time, contextlib\napp = rota.App()\n@app.job('a')\n"
        f"def a(): ...\n{text}\n"
    )
    return place


def _rota(
    place: Path, url: str, *arguments: str, times: Times = NO_TIMES
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ROTA_DATABASE_URL": url}
    return forked.run([*rota(times), *arguments], cwd=place, env=environment, timeout=180)


def test_a_process_that_cannot_be_configured_is_not_tried_again_and_says_why_once(
    tmp_path: Path, database: str, empty_database: str
) -> None:
    place = _app(tmp_path, "")
    for url, options, exit_status, why in (
        (database, ("--app", "nowhere:app"), 3, "no module 'nowhere'"),
        (empty_database, ("--app", "mine:app"), 3, "run `rota migrate`"),
        (database, ("--app", "mine:app", "--grace", "soon"), 2, "'soon'"),
    ):
        ran = _rota(place, url, "work", "--processes", "3", *options)
        assert (ran.returncode, ran.stdout) == (exit_status, ""), ran
        # The parent may log later that it has started a process.
        [said] = [line for line in ran.stderr.splitlines() if " ERROR " in line]
        assert why in said
        assert ran.stderr.count(" started") == 1 and "rota: " not in ran.stderr, ran.stderr
    ran = _rota(place, database, "work", "--processes", "3", "--app", "nowhere:app", "--json")
    [said] = [line for line in ran.stderr.splitlines() if line.startswith("{")]
    assert msgspec.json.decode(said)["error"]["type"] == "ConfigurationError"


def test_an_app_that_ends_its_process_again_and_again_ends_the_parent_with_status_4(
    tmp_path: Path, database: str
) -> None:
    ran = _rota(
        _app(tmp_path, "os._exit(7)"),
        database,
        "work",
        "--processes",
        "2",
        "--app",
        "mine:app",
        "--json",
        times=TWO,
    )
    assert ran.returncode == 4 and ran.stdout == ""
    error = msgspec.json.decode(ran.stderr.splitlines()[-1])["error"]
    assert error["type"] == "ProcessesFailed" and error["message"].endswith("exited with status 7")
    assert ran.stderr.count("another starts in") == 1


@rule("M83")
def test_a_second_signal_to_the_parent_ends_the_grace_period_of_its_children(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    supervisor = start_supervisor(database, 1, "--grace=10m")
    supervisor.until_working(1)
    job = put(connection, "hold", until=str(tmp_path / "never"))
    supervisor.until_noted(f"start {job}")
    supervisor.signal(signal.SIGTERM)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimer's connection is closed"
    )
    supervisor.signal(signal.SIGTERM)

    assert supervisor.wait() == (0, ""), supervisor.log
    assert supervisor.until_noted(f"cancelled {job}")
    assert rows(connection, UNCHARGED) == [(job, "queued", 0)]


@rule("M83")
def test_a_signal_to_parent_and_children_alike_does_not_skip_their_grace_period(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    supervisor = start_supervisor(database, 1)
    supervisor.until_working(1)
    first, job = (put(connection, "hold", until=str(tmp_path / file)) for file in ("first", "go"))
    for one in (first, job):
        supervisor.until_noted(f"start {one}")
    [child] = supervisor.children()
    supervisor.signal(signal.SIGTERM)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimer's connection is closed"
    )
    for _ in range(2):
        child.send_signal(signal.SIGTERM)
    (tmp_path / "first").touch()
    supervisor.until_noted(f"end {first}")  # so its loop has turned since
    (tmp_path / "go").touch()

    assert supervisor.wait() == (0, ""), supervisor.log
    assert status(connection, job) == "succeeded"


@rule("M83")
def test_a_terminal_that_closes_stops_the_parent_and_never_skips_the_grace_period(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    supervisor = start_supervisor(database, 1)
    supervisor.until_working(1)
    job = put(connection, "hold", until=str(tmp_path / "go"))
    supervisor.until_noted(f"start {job}")
    [child] = supervisor.children()
    supervisor.signal(signal.SIGHUP)
    eventually(
        lambda: not connected(connection, "claim"), what="the claimer's connection is closed"
    )
    for process in (supervisor.process, child):
        process.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()

    assert supervisor.wait() == (0, ""), supervisor.log
    assert supervisor.log.count("stopping 1 worker process") == 1
    assert status(connection, job) == "succeeded"


@rule("M83")
def test_a_parent_under_nohup_outlives_its_terminal(
    start_supervisor: StartSupervisor, database: str, connection: Connection
) -> None:
    supervisor = start_supervisor(database, 1, around=("nohup",))
    supervisor.until_working(1)
    [child] = supervisor.children()
    for pid in (supervisor.pid, child.pid):
        os.kill(pid, signal.SIGHUP)
    supervisor.until_noted(f"start {put(connection, 'quick')}")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == (0, ""), supervisor.log


@rule("M83")
def test_a_terminals_ctrl_c_reaches_the_parent_alone(
    start_supervisor: StartSupervisor, database: str
) -> None:
    supervisor = start_supervisor(database, 2, around=("setsid",))
    supervisor.until_working(2)
    group = os.getpgid(supervisor.pid)
    assert group == supervisor.pid and all(
        os.getpgid(child.pid) != group for child in supervisor.children()
    )
    os.killpg(group, signal.SIGINT)
    assert supervisor.wait() == (0, ""), supervisor.log


def test_a_process_told_to_stop_while_it_still_imports_the_app_does_so_and_starts_no_work(
    start_supervisor: StartSupervisor,
    database: str,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _app(
        tmp_path,
        f"open({str(tmp_path / 'importing')!r}, 'w')\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.02)",
    )
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    )
    job = put(connection, "a")
    supervisor = start_supervisor(database, 2, app="mine:app")
    eventually((tmp_path / "importing").exists)
    supervisor.signal(signal.SIGTERM)
    eventually(lambda: "stopping 1 worker process" in supervisor.log)
    (tmp_path / "go").touch()
    assert supervisor.wait() == (0, ""), supervisor.log
    assert rows(connection, UNCHARGED) == [(job, "queued", 0)]


@rule("M31", "M83")
@pytest.mark.parametrize("handler", ["hold", "block", "wedge"])
def test_children_are_gone_within_a_second_of_their_parents_death_and_hand_back_what_they_can(
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
    supervisor = start_supervisor(database, 2, "--concurrency=1", "--grace=10m")
    supervisor.until_working(2)
    jobs = [put(connection, handler, until=str(tmp_path / "never")) for _ in range(2)]
    for job in jobs:
        supervisor.until_noted(f"start {job}")
    children = supervisor.children()

    supervisor.process.kill()
    killed_at = monotonic()
    eventually(lambda: all(map(gone, children)))
    gone_after_s = monotonic() - killed_at
    assert gone_after_s < 15, "a second, and as much as a loaded machine may need"
    # A blocked loop hands nothing back: the job's lease must expire.
    expected = "running" if handler == "wedge" else "queued"
    assert rows(connection, "select distinct status from rota.job") == [(expected,)]


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
    assert (
        Path(f"/proc/{parent.pid}/status")
        .read_text()
        .split("NSpid:")[1]
        .splitlines()[0]
        .split()[-1]
        == "1"
    )
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
def test_a_worker_that_is_pid_1_hears_sigterm_also_before_it_is_up(
    database: str, tmp_path: Path
) -> None:
    if not _may_unshare():
        pytest.skip("pid namespaces are not allowed here: an early SIGTERM to pid 1 was not tested")
    place = _app(tmp_path, f"open({str(tmp_path / 'importing')!r}, 'w')\ntime.sleep(600)")
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        sys.executable,
        "-m",
        "rota",
        "work",
        "--app=mine:app",
    ]
    with subprocess.Popen(
        command, cwd=place, env={**os.environ, "ROTA_DATABASE_URL": database}
    ) as around:
        try:
            eventually((tmp_path / "importing").exists)
            [first] = psutil.Process(around.pid).children()
            first.send_signal(signal.SIGTERM)
            assert around.wait(30) == 128 + signal.SIGTERM
        finally:
            around.kill()


def test_a_drain_in_several_processes_ends_when_all_have_and_reports_what_they_did_together(
    start_supervisor: StartSupervisor, database: str, connection: Connection
) -> None:
    put_many(connection, "quick", 500)
    supervisor = start_supervisor(
        database, 3, "--drain", "--json", "--concurrency=2", "--log-level=warning"
    )
    exit_status, out = supervisor.wait(60)
    assert exit_status == 0, supervisor.log
    report = msgspec.json.decode(out)
    assert report.pop("claimed") >= 500, (
        "one that was held up for a second handed back what it had claimed ahead"
    )
    assert report == {"succeeded": 500, "failed": 0, "dead": 0, "oldest_due": None, "paused": []}
    assert over(connection) == 500
    held_up = re.compile(r"WARNING.*(the event loop|handed back)")  # as a busy machine may
    assert [line for line in supervisor.log.splitlines() if not held_up.search(line)] == []
    [(workers,)] = rows(connection, "select count(*) from rota.worker where stopped_at is not null")
    assert workers == 3


def test_a_drain_replaces_no_process_and_says_by_its_status_that_one_was_killed(
    start_supervisor: StartSupervisor, database: str, connection: Connection, tmp_path: Path
) -> None:
    job = put(connection, "hold", until=str(tmp_path / "go"))
    supervisor = start_supervisor(database, 2, "--drain")
    holder = supervisor.until_noted(f"start {job}")
    eventually(lambda: "exited with status 0" in supervisor.log)
    psutil.Process(holder).kill()
    exit_status, out = supervisor.wait()
    assert exit_status == 1 and out.startswith("claimed 0, succeeded 0"), supervisor.log
    assert supervisor.log.count("worker process") == 4


def test_on_other_systems_several_processes_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert run(["work", "--processes", "2"]) == 3
    assert capsys.readouterr().err == (
        "rota: --processes and --database work on Linux only: start `rota work` several times "
        "instead\n"
    )


def test_processes_are_1_to_64_and_a_drain_has_no_health_port(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for wrong in (
        ["--processes", "0"],
        ["--processes", "65"],
        ["--health-port", "0"],
        ["--drain", "--health-port", "8080"],
    ):
        assert run(["work", *wrong]) == 2
    assert "give --health-port or --drain, not both" in capsys.readouterr().err
