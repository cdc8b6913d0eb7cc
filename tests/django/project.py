"""The project of this directory as people run it: commands of `manage.py` in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg.conninfo
import pytest

from tests.support import forked

ROOT = Path(__file__).parents[2]
RUN_S = 280
COMMANDS = """
import json, sys, warnings
warnings.simplefilter("error")
from django.core.management import execute_from_command_line
for arguments in json.loads(sys.argv[1]):
    status = 0
    try:
        execute_from_command_line(["manage.py", *arguments])
    except SystemExit as ended:
        status = ended.code or 0
    print(f"\\0{status}\\0", end="", flush=True)
"""
"""Runs commands one after the other; behind what each prints stands its exit status."""


@dataclass(frozen=True)
class Project:
    """The shop, on a database, with a Python and its Django."""

    url: str
    python: str = sys.executable
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its processes."""
        found = psycopg.conninfo.conninfo_to_dict(self.url)
        names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
        place = {names[key]: str(value) for key, value in found.items() if key in names}
        settings = {"DJANGO_SETTINGS_MODULE": "tests.django.settings", "COLUMNS": "200"}
        paths = {}
        if self.python != sys.executable:  # the Rota of this tree, be it a copy of another one
            paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        return {**os.environ, **paths, **settings, **place, **self.more}

    def run_all(self, *commands: str) -> list[tuple[int, str]]:
        """Run commands of manage.py, written with spaces, in one process; return of each its exit
        status and what it printed."""
        given = [command.split(" ") for command in commands]
        command = ["-c", COMMANDS, json.dumps(given)]
        if self.python == sys.executable:
            done = forked.run(
                command, env=self.environment, cwd=ROOT, stderr=subprocess.STDOUT, timeout=RUN_S
            )
        else:
            done = self._run(*command, place=ROOT)
        parts = done.stdout.split("\0")
        assert len(parts) == 2 * len(commands) + 1, done.stdout
        return [(int(parts[at + 1]), parts[at]) for at in range(0, 2 * len(commands), 2)]

    def run(self, command: str, status: int = 0) -> str:
        """Run a command of manage.py; return what it printed."""
        [(found, printed)] = self.run_all(command)
        assert found == status, printed
        return printed

    def run_pytest(self, place: Path) -> str:
        """Run pytest in a directory; return what it printed."""
        done = self._run("-m", "pytest", "-q", place=place)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def _run(self, *command: str, place: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-W", "error", *command],
            env=self.environment,
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    @contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command of manage.py; one that still runs when the block ends is killed."""
        process = subprocess.Popen(
            [self.python, "-W", "error", "-m", "django", *arguments],
            env=self.environment,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()


def find_environment(name: str) -> Path:
    """Return an environment that scripts/environments.py makes. Skips the test without it."""
    place = ROOT / ".venvs" / name
    if not (place / "stamp").exists():
        pytest.skip(f"NOT TRIED: `python scripts/environments.py` has made no .venvs/{name}")
    return place


def find_python(name: str) -> str:
    """Return the Python of such an environment."""
    return str(find_environment(name) / "bin" / "python")
