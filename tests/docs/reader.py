"""A reader who follows a page: writes its files, types its commands, compares what they print.

A block whose first line is `# PATH` is a file; `# PATH, at the end` adds to one, and `# PATH, in
place of NAME` replaces a function or a variable of it, or the imports. A block of `sh` has
commands; after one that fails stands `# fails`. A block of `text` is what the last of them prints;
`…` stands for anything. A sentence that says `press Ctrl-C` ends what stays. A block after a
comment `<!-- not run: why -->` is left out.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg.conninfo

from tests.support import forked
from tests.support.server import PostgresServer, unused_port
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
WAIT_S = 280
PROGRAMS = {"pytest": "-m pytest", "python": "", "uvicorn": "-m uvicorn"}
PROGRAMS |= {"flask": "-m flask", "django-admin": "-m django"}
STRICT = (
    "-W error -p no:cacheprovider -p no:randomly -p no:hypothesispytest "
    "-o asyncio_default_fixture_loop_scope=function "
    "-W 'ignore:Using `httpx` with `starlette.testclient` is deprecated'"
)
"""A warning is an error to this reader, but for those that are not about what the pages say: who
installs no pytest-asyncio has none of it, and Starlette's is about a client that is not there."""
FILE = re.compile(
    r"(?:#|--|\{#) ([\w/.-]+\.\w+)(, at the end)?(?:, in place of ([\w ]+))?(?:\n| #\})"
)
BLOCK = re.compile(
    r"(<!-- not run: .*? -->\n)?^```(\w*)\n(.*?)^```$|[Pp]ress (Ctrl-C)", re.MULTILINE | re.DOTALL
)
SERVES = re.compile(
    r"uvicorn |flask .*run|python manage.py runserver"
    r"|(python manage.py )?rota (work(?!.*--drain)|web\b)"
    r"|python -m aiosmtpd |python receiver.py"
)
PORT = re.compile(r"\b[58]00\d\b")
RELOADED = "Application startup complete"
READS = re.compile(r"(python manage.py )?rota jobs?( |$)|curl -s http")
"""What may be typed again, until a worker is through."""


class Reader:
    """The directory of a reader, whose database and test server are these."""

    def __init__(
        self, place: Path, server: PostgresServer, url: str, *, python: str = sys.executable
    ) -> None:
        self.place = place
        self.ports: dict[str, str] = {}
        """Those of this reader, by those of the page."""
        self._url = url
        self._printed = ""
        self._last = ""
        self._stack = ExitStack()
        self._reloads: Path | None = None
        """The log of a server that reloads itself, and how often it had started before a file."""
        self._started = 0
        programs = place / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name, options in PROGRAMS.items():
            text = f'#!/bin/sh\nexec {shlex.quote(python)} {options} "$@"\n'
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        if python == sys.executable:
            forked.write_rota(programs)
            forked.write_python(programs)
        else:
            (programs / "rota").write_text(f'#!/bin/sh\nexec {python} -m rota "$@"\n')
            (programs / "rota").chmod(0o755)
        (programs / "psql").symlink_to(server.program("psql"))
        found = psycopg.conninfo.conninfo_to_dict(url)
        self.environment = {
            **{name: os.environ[name] for name in os.environ if name != "PYTEST_ADDOPTS"},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "PYTEST_ADDOPTS": STRICT,
            "ROTA_TEST_DATABASE_URL": server.url(),
            "UVICORN_PORT": self._find_port("8000"),
            "FLASK_RUN_PORT": self._find_port("5000"),
            # What libpq, and so Django, takes where a page leaves it out.
            "PGHOST": str(found["host"]),
            "PGPORT": str(found["port"]),
            "PGUSER": str(found["user"]),
            "PGDATABASE": str(found["dbname"]),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def follow(self, text: str) -> None:
        """Do what a page, or a part of one, says from its beginning to its end."""
        for is_left_out, language, block, stops in BLOCK.findall(text):
            file = FILE.match(block)
            if is_left_out:
                continue
            if stops:
                self.stop()
            elif file is not None and file[3] is not None:
                before = (self.place / file[1]).read_text()
                self.write(file[1], replace_part(before, file[3], block[file.end() :]))
            elif file is not None:
                self.write(file[1], block, is_added=file[2] is not None)
            elif language == "sh":
                for line in block.splitlines():
                    command, _, remark = line.partition("  #")
                    self.type(command.strip(), fails=remark.strip() == "fails")
            elif language == "text":
                self.compare(block.strip())
            else:
                raise AssertionError(f"a block that nobody tries:\n{block}")

    def write(self, name: str, text: str, *, is_added: bool = False) -> None:
        """Write a file, or its last lines."""
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() + "\n\n" if is_added else ""
        if self._reloads is not None:
            self._started = self._reloads.read_text().count(RELOADED)
        path.write_text(before + text)

    def type(self, line: str, *, fails: bool = False) -> str:
        """Run a line as a shell would; return what it printed. Fails when the command does, or if
        it does not and should."""
        self._last = line = PORT.sub(lambda found: self._find_port(found[0]), line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.environment[name] = self._url if "://" in value else shlex.split(value)[0]
        elif line.startswith("pip install "):
            for wanted in shlex.split(line)[2:]:
                if wanted in ("-e", "."):  # the project of the page: it is run where it stands
                    continue
                importlib.metadata.distribution(wanted.partition("[")[0])
        elif SERVES.match(line):
            is_web = line == "rota web"
            self._serve(f"{line} --port {self._find_port('8080')}" if is_web else line)
        else:
            if self._reloads is not None and line.startswith("curl"):
                log, before = self._reloads, self._started
                eventually(lambda: log.read_text().count(RELOADED) > before)
            self._printed = self._run(line, fails=fails)
        return self._printed

    def compare(self, shown: str) -> None:
        """Hold what the page shows against what the last command printed."""
        pattern = re.compile(".*?".join(map(re.escape, shown.split("…"))), re.DOTALL)
        deadline = time.monotonic() + WAIT_S
        while not pattern.search(self._printed):
            is_late = time.monotonic() > deadline or not READS.match(self._last)
            assert not is_late, f"{self._last}\nprints\n{self._printed}\nnot\n{shown}"
            self._printed = self._run(self._last)

    def _find_port(self, shown: str) -> str:
        if shown not in self.ports:
            self.ports[shown] = str(unused_port())
        return self.ports[shown]

    def stop(self) -> None:
        """End what stays, as Ctrl-C does."""
        self._stack.close()
        self._reloads = None

    def _run(self, line: str, *, fails: bool = False) -> str:
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
        assert (done.returncode != 0) is fails, f"{line}\n{done.stdout}"
        return done.stdout

    def _serve(self, line: str) -> None:
        """Start what stays, and wait until it serves. It ends with the reader."""
        log = self.place / f"{len(list(self.place.glob('*.log')))}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {line}"],
                cwd=self.place,
                env={**self.environment, "PYTHONUNBUFFERED": "1"},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._stack.callback(_stop, process, log)
        if "--reload" in line:
            self._reloads = log
        serves = RELOADED if "--reload" in line else r"http://127.0.0.1:\d+"
        ready = re.compile(f"started, release|Server is listening|{serves}")
        try:
            eventually(lambda: ready.search(log.read_text()) or process.poll() is not None)
        finally:
            assert ready.search(log.read_text()), f"{line}\n{log.read_text()}"


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    try:
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


def change_files(files: dict[str, str], text: str) -> dict[str, str]:
    """Return files, by their names, as they are after what a page writes, adds and replaces. They
    are without the lines that name them."""
    changed = dict(files)
    for is_left_out, _, block, _ in BLOCK.findall(text):
        file = FILE.match(block)
        if file is None or is_left_out:
            continue
        name, is_added, part = file.groups()
        given = block[file.end() :]
        if part is not None:
            changed[name] = replace_part(changed[name], part, given)
        else:
            changed[name] = f"{changed[name]}\n\n{given}" if is_added else given
    return changed


def replace_part(source: str, what: str, text: str) -> str:
    """Return a module with a text in place of one of its top-level functions or variables, with
    their decorators, or of `the imports`."""
    found = [node for node in ast.parse(source).body if what in _name(node)]
    assert found, f"there is no {what} in\n{source}"
    first = min(one.lineno for one in [found[0], *getattr(found[0], "decorator_list", [])])
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


def assert_quoted(page: str, folder: str) -> None:
    """A page shows the files of a folder of examples/, all of them, as they are."""
    place = ROOT / "examples" / folder
    files = {
        str(file.relative_to(place)): file.read_text(encoding="utf-8")
        for file in sorted(place.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files == dict(sorted(list_files(page).items()))
