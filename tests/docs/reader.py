"""A reader who follows a page: writes its files, types its commands, runs its Python and its SQL,
and compares what they print with what the page shows.

A block whose first line is `# PATH` is a file; `# PATH, at the end` adds to one, and `# PATH, in
place of NAME` replaces a function or a variable of it, or the imports. A block of `sh` has
commands; after one that fails stands `# fails`. A block of `text`, `ini`, `yaml` … is what the last
of them prints; `…` stands for anything. Other blocks of `python` are run in this process, in one
module, and those of `sql` on one connection. A sentence that says `press Ctrl-C` ends what stays. A
block after a comment `<!-- not run: why -->` is left out.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout, suppress
from functools import cached_property
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import psycopg
import psycopg.conninfo
import pytest
import yaml
from psycopg.rows import TupleRow

import rota
from tests.support import forked
from tests.support.preloaded import find_start
from tests.support.server import PostgresServer, unused_port
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
WAIT_S = 280
LOOK_EVERY_S = 2
"""Seconds between two looks at what a command prints, while a worker is not through."""
PROGRAMS = {"rota": "-m rota", "pytest": "-m pytest", "uvicorn": "-m uvicorn"}
PROGRAMS |= {"flask": "-m flask", "django-admin": "-m django"}
SCRIPT = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
STRICT = (
    "-W error -p no:cacheprovider -p no:randomly -p no:hypothesispytest "
    "-o asyncio_default_fixture_loop_scope=function "
    "-W 'ignore:Using `httpx` with `starlette.testclient` is deprecated'"
)
"""A warning is an error to this reader, but for those that are not about what the pages say: who
installs no pytest-asyncio has none of it, and Starlette's is about a client that is not there."""
FILE = re.compile(
    r"(?:#|--|\{#) (\w[\w/.-]*\.\w+)(, at the end)?(?:, in place of ([\w ]+))?(?:\n| #\})"
)
"""The first line of a block that is a file of the reader's directory, and of no other."""
BLOCK = re.compile(
    r"(<!-- not run: .*? -->\n)?^```(\w+)\n(.*?)^```$|[Pp]ress (Ctrl-C)", re.MULTILINE | re.DOTALL
)
SERVES = re.compile(
    r"uvicorn |flask .*run|python manage.py runserver"
    r"|(python manage.py |ROTA_DATABASE_URL=\S+ )?rota (work(?!.*--drain)|web\b(?!.*\|))"
    r"|python -m aiosmtpd |python receiver.py"
)
PORT = re.compile(r"(127\.0\.0\.1(?::|\", )|--port |runserver )(\d{4})\b")
READY = r"started, release|Server is listening|http://127.0.0.1:\d+"
READS = re.compile(r"(python manage.py )?rota jobs?( |$)|curl -s http")
"""What may be typed again, until a worker is through."""
NEEDS_A_SHELL = re.compile(r"[$|<>&;*`]")
ANSWER = re.compile(r"claimed \d[\w ,]*\d|job \d+ queued|\d+ passed")
"""What a remark behind a command says that it prints."""
MAY_WARN = re.compile(r"rota (doctor|check)\b")
"""The tests' server has autovacuum off, which these commands say with their status."""
SERVED = "/srv/shop"
"""Where the shop of the pages is deployed."""


class Reader:
    """The directory of a reader, whose database and test server are these."""

    def __init__(
        self, place: Path, server: PostgresServer, url: str, *, python: str = sys.executable
    ) -> None:
        self.place, self.server = place, server
        self.ports: dict[str, str] = {}
        """Those of this reader, by those of the page."""
        self.left = ""
        """The part of the page that is not followed yet."""
        self.languages: dict[str, Callable[[str], object]] = {
            "sh": self._type_all,
            "python": self.run,
            "py": self.run,
            "sql": self.ask,
            "console": self._converse,
            "text": self.compare,
            **dict.fromkeys(("crontab", "dockerfile", "ini"), self._hold),
            "yaml": self._hold_yaml,
            "env": shlex.split,
        }
        """What is done with a block that is no file."""
        self.url = url
        self.printed = ""
        """By the last block or command."""
        self._last = ""
        self._typed = ""
        self._files: list[str] = []
        """Those at the top that Python has not imported, and SQL not run."""
        self._serving = ExitStack()
        self.patch = pytest.MonkeyPatch()
        """Of this process, until the reader is gone."""
        programs = place / ".venv" / "bin"
        programs.mkdir(parents=True)
        _write_programs(programs, python)
        (programs / "psql").symlink_to(server.program("psql"))
        (programs / "pg_dump").symlink_to(server.program("pg_dump"))
        found = psycopg.conninfo.conninfo_to_dict(url)
        self.environment = {
            **{name: os.environ[name] for name in os.environ if name != "PYTEST_ADDOPTS"},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "PYTEST_ADDOPTS": STRICT,
            "UVICORN_PORT": self._find_port("8000"),
            "FLASK_RUN_PORT": self._find_port("5000"),
        }
        self.set("ROTA_TEST_DATABASE_URL", server.url())
        # What libpq, and so Django, takes where a page leaves it out.
        for name, key in (("HOST", "host"), ("PORT", "port"), ("USER", "user")):
            self.set(f"PG{name}", str(found[key]))
        self.set("PGDATABASE", str(found["dbname"]))
        self.patch.chdir(place)
        self.patch.syspath_prepend(str(place))
        self._module = ModuleType("page")  # where annotations are looked up
        self.patch.setitem(sys.modules, "page", self._module)
        self._module.__dict__["rota"] = rota

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._serving.close()
        finally:
            self._forget()
            self.patch.undo()

    @cached_property
    def connection(self) -> psycopg.Connection[TupleRow]:
        """That of the blocks of SQL; it commits each statement."""
        return psycopg.connect(self.url, autocommit=True)

    @property
    def names(self) -> dict[str, Any]:
        """Those of the blocks of Python, and of the files before them."""
        self._use_files()
        return vars(self._module)

    @property
    def app(self) -> rota.App:
        """That of the blocks of Python."""
        app = self.names["app"]
        assert isinstance(app, rota.App)
        return app

    def set(self, name: str, value: str | None) -> None:
        """Set a variable of the environment, or take it away, for commands and for Python."""
        if value is None:
            del self.environment[name]
            self.patch.delenv(name)
        else:
            self.environment[name] = value
            self.patch.setenv(name, value)

    def follow(self, text: str) -> None:
        """Do what a page, or a part of one, says from its beginning to its end."""
        for is_left_out, language, block, stops in BLOCK.findall(text):
            if is_left_out:
                continue
            if stops:
                self.stop()
            elif (file := FILE.match(block)) is None:
                assert language in self.languages, f"a block that nobody tries:\n{block}"
                self.languages[language](block)
            elif file[3] is not None:
                before = (self.place / file[1]).read_text()
                self.write(file[1], replace_part(before, file[3], block[file.end() :]))
            else:
                self.write(file[1], block, is_added=file[2] is not None)

    def follow_to(self, place: str) -> None:
        """Follow what is left of the page, up to the first place with this text."""
        before, found, _ = self.left.partition(place)
        assert found, f"the page does not say {place!r}"
        self.left = self.left[len(before) :]
        self.follow(before)

    def follow_rest(self) -> None:
        """Follow the page to its end. What it shows and does not use works too."""
        rest, self.left = self.left, ""
        self.follow(rest)
        self._use_files()

    def write(self, name: str, text: str, *, is_added: bool = False) -> None:
        """Write a file, or its last lines."""
        path = self.place / name
        assert path.resolve().is_relative_to(self.place.resolve()), name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() + "\n\n" if is_added else ""
        path.write_text(before + PORT.sub(lambda found: found[1] + self._find_port(found[2]), text))
        if not is_added and path.parent == self.place and path.suffix in (".py", ".sql"):
            self._files.append(name)

    def run(self, block: str) -> None:
        """Run a block of Python, after the files before it."""
        with redirect_stdout(io.StringIO()) as out:
            exec(compile(block, "page", "exec", dont_inherit=True), self.names)  # the page is ours
        self._last, self.printed = block, out.getvalue()

    def ask(self, block: str) -> list[tuple[Any, ...]]:
        """Run a block of SQL; return the rows of its last statement."""
        cursor = self.connection.execute(block.encode())
        while cursor.nextset():
            pass
        return [] if cursor.description is None else cursor.fetchall()

    def type(self, line: str, *, fails: bool = False, status: int | None = None) -> str:
        """Run a line as a shell would; return what it printed. Fails when the command does, or if
        it does not and should."""
        line = PORT.sub(lambda found: found[1] + self._find_port(found[2]), line)
        self._last, self._typed = line, f"{self._typed}\n{line}"
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            is_database = value.startswith("postgresql://")
            self.set(name, self.url if is_database else shlex.split(value)[0])
        elif line.startswith("pip install "):
            for wanted in shlex.split(line)[2:]:
                if wanted in ("-e", "."):  # the project of the page: it is run where it stands
                    continue
                importlib.metadata.distribution(wanted.partition("[")[0])
        elif SERVES.match(line):
            is_web = line.startswith("rota web")
            self.serve(f"{line} --port {self._find_port('8080')}" if is_web else line)
        else:
            self.printed = self._run(line, fails=fails, status=status)
        return self.printed

    def serve(self, line: str, ready: str = READY) -> None:
        """Start what stays, and wait until it prints that it serves. It ends with the reader."""
        log = self.place / f"{len(list(self.place.glob('*.log')))}.log"
        is_forked = line.startswith(("rota ", "uvicorn ", "flask "))
        unbuffered = {} if is_forked else {"PYTHONUNBUFFERED": "1"}
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["sh", "-c", re.sub(r"^(\w+=\S+ )?", r"\1exec ", line)],
                cwd=self.place,
                env={**self.environment, **unbuffered},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._serving.callback(_stop, process, log)
        eventually(lambda: re.search(ready, log.read_text()) or process.poll() is not None)
        assert re.search(ready, log.read_text()), f"{line}\n{log.read_text()}"

    def compare(self, shown: str) -> None:
        """Hold what the page shows against what the last block printed."""
        pattern = re.compile(".*?".join(map(re.escape, shown.strip().split("…"))), re.DOTALL)
        looks = WAIT_S if READS.match(self._last) else 0
        while not pattern.search(self._as_deployed(self.printed)):
            assert looks, f"{self._last}\nprints\n{self.printed}\nnot\n{shown}"
            looks -= 1
            time.sleep(LOOK_EVERY_S)
            self.printed = self._run(self._last)

    def stop(self) -> None:
        """End what stays, as Ctrl-C does."""
        self._serving.close()

    def read_logs(self) -> str:
        """Return what was printed by what stays."""
        return "".join(log.read_text() for log in sorted(self.place.glob("*.log")))

    def _type_all(self, block: str) -> None:
        for line in block.splitlines():
            command, _, remark = line.partition("  #")
            status = re.search(r"exit status (\d+)$", remark)
            printed = self.type(
                command.strip(),
                fails=remark.strip() == "fails",
                status=None if status is None else int(status[1]),
            )
            for answer in ANSWER.findall(remark):
                assert answer in printed, f"{line}\nprints\n{printed}"

    def _converse(self, block: str) -> None:
        """Type each line after a `$`; what stands below it is all that it prints."""
        for part in block.split("$ ")[1:]:
            command, _, shown = part.partition("\n")
            printed = self.type(command)
            if shown:
                pattern = ".*?".join(map(re.escape, shown.split("…")))
                assert re.fullmatch(pattern, printed, re.DOTALL), f"{command}\n{printed}"

    def _hold(self, block: str) -> None:
        """It is what `rota crontab` has printed; or cron runs its lines."""
        if self._last.startswith("rota crontab"):
            pattern = ".*?".join(map(re.escape, block.split("…")))
            assert re.fullmatch(pattern, self._as_deployed(self.printed), re.DOTALL), block
            return
        lines = block.replace(SERVED, str(self.place)).replace("\\%", "%")
        for command in re.findall(r"^[*\d]\S* +(?:\S+ +){4}(.*)$", lines, re.MULTILINE):
            self.type(command)

    def _hold_yaml(self, block: str) -> None:
        self._hold(block)
        assert "…\n" in block or [*yaml.safe_load_all(block)]

    def _as_deployed(self, printed: str) -> str:
        """What is printed by the Python of a server that has the page's directory and version."""
        printed = printed.replace(sys.executable, f"{SERVED}/.venv/bin/python")
        printed = printed.replace(str(self.place), SERVED)
        return re.sub(r"python:3\.\d+-slim", "python:3.11-slim", printed)

    def _use_files(self) -> None:
        """Run the SQL, and import the Python, that the page shows and no command has run."""
        files, self._files = self._files, []
        for name in files:
            if re.match("test_|conftest", name) or re.search(rf"(-f|python) {name}", self._typed):
                continue
            if name.endswith(".sql"):
                self.ask((self.place / name).read_text())
            else:
                module = vars(importlib.import_module(name.removesuffix(".py")))
                self._module.__dict__.update(
                    {key: value for key, value in module.items() if key[:2] != "__"}
                )

    def _forget(self) -> None:
        """Close and forget what the page has made in this process."""
        place = str(self.place)
        modules = [*sys.modules.items()]
        loaded = [
            name
            for name, module in modules
            if str(getattr(module, "__file__", 0)).startswith(place)
        ]
        for module in [self._module, *map(sys.modules.pop, loaded)]:
            for app in [value for value in vars(module).values() if isinstance(value, rota.App)]:
                app.close()
        if "connection" in vars(self):
            self.connection.close()

    def _find_port(self, shown: str) -> str:
        if shown not in self.ports:
            self.ports[shown] = str(unused_port())
        return self.ports[shown]

    def _run(self, line: str, *, fails: bool = False, status: int | None = None) -> str:
        done: subprocess.CompletedProcess[str]
        if line.startswith("rota ") and not NEEDS_A_SHELL.search(line):
            theirs = find_start(self.environment)  # what it reads before it can be forked
            others = {name: self.environment[name] for name in self.environment.keys() - theirs}
            done = forked.run(
                ["-m", *shlex.split(line)],
                cwd=self.place,
                env={**others, **find_start(forked.ENVIRONMENT)},
                stderr=subprocess.STDOUT,
                timeout=WAIT_S,
            )
        else:
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=self.place,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
        good = {0, 1} if MAY_WARN.search(line) else {status or 0}
        is_as_said = done.returncode != 0 if fails else done.returncode in good
        assert is_as_said, f"{line}\n{done.returncode}\n{done.stdout}"
        return done.stdout


def _write_programs(folder: Path, python: str) -> None:
    """Write what a virtual environment has. Each start of Python is a fork, if it is this one."""
    run = forked.ask() if python == sys.executable else shlex.quote(python)
    texts = {name: f'exec {run} {options} "$@"' for name, options in PROGRAMS.items()}
    texts["python"] = f"""case "$1" in
*.py) exec {run} -c {shlex.quote(SCRIPT)} "$@" ;;
*) exec {run} "$@" ;;
esac"""
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        # A web server may say with its status which signal it was.
        assert process.wait(WAIT_S) in (0, -signal.SIGTERM), log.read_text()
    finally:
        process.kill()
        process.wait()


def read_page(name: str, section: str | None = None) -> str:
    """Return a page of docs/, in whatever part it is, or a section of it with its subsections."""
    [path] = (ROOT / "docs").rglob(name)
    text = path.read_text(encoding="utf-8")
    if section is None:
        return text
    found = re.search(rf"^## {re.escape(section)}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, section
    return found[0]


def replace_part(source: str, what: str, text: str) -> str:
    """Return a module with a text in place of one of its top-level functions or variables, with
    their decorators, or of `the imports`."""
    found = [node for node in ast.parse(source).body if what in _name(node)]
    assert found, f"there is no {what} in\n{source}"
    first = min(node.lineno for node in [found[0], *getattr(found[0], "decorator_list", [])])
    lines = source.splitlines(keepends=True)
    return "".join([*lines[: first - 1], text, *lines[found[-1].end_lineno :]])


def _name(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return ["the imports"]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.name] if isinstance(node, ast.FunctionDef) else []


def list_files(text: str) -> dict[str, str]:
    """Return the files that a page shows, by their names, without the line that names them."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found = [(FILE.match(block), block) for block in blocks]
    return {name[1]: block[name.end() :] for name, block in found if name is not None}
