"""The project of this directory as people run it: `manage.py` in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg.conninfo
import pytest

from tests.support.guard import locked

ROOT = Path(__file__).parents[2]
RUN_S = 280
PYTHONS = ("3.12", "3.13")
"""Those for Django 6: the newest Django of Python 3.11 is 5.2."""


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
        paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        settings = {"DJANGO_SETTINGS_MODULE": "tests.django.settings", "COLUMNS": "200"}
        return {**os.environ, **paths, **settings, **place, **self.more}

    def run(self, *arguments: str, status: int = 0) -> str:
        """Run a command of manage.py; return what it printed."""
        return self.run_module("django", *arguments, status=status)

    def run_module(self, *arguments: str, status: int = 0, place: Path = ROOT) -> str:
        """Run a module of Python in a directory; return what it printed."""
        done = subprocess.run(
            [self.python, "-W", "error", "-m", *arguments],
            env=self.environment,
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == status, done.stdout
        return done.stdout

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


def find_python() -> Path | None:
    """Return a Python for Django 6; None: this machine has none."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = (
        python for version in PYTHONS for python in sorted(versions.glob(f"{version}.*/bin/python"))
    )
    return next(found, None)


class NotThere(Exception):
    """This machine has no Python for Django 6, or no package index."""


def make_python(place: Path, *packages: str) -> str:
    """Return the Python of an environment with what Rota needs and these packages; it is made once.
    Raises NotThere."""
    base = find_python()
    if base is None:
        raise NotThere("no Python 3.12 or 3.13 of pyenv, which Django 6 needs")
    python = place / "bin" / "python"
    with locked(place.with_suffix(".lock")):
        if not (place / "done").exists():
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            needed = project["dependencies"] + project["optional-dependencies"]["dashboard"]
            subprocess.run([base, "-m", "venv", place], check=True)
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            done = subprocess.run(
                [*pip, *packages, *needed],
                stderr=subprocess.PIPE,
                text=True,
                timeout=300,
                check=False,
            )
            if done.returncode != 0:
                raise NotThere(f"{packages} cannot be installed: {done.stderr[-500:]}")
            (place / "done").touch()
    return str(python)


def install_django(place: Path) -> str:
    """Return a Python with Django 6 in the place of this run. Skips the test if there is none."""
    try:
        return make_python(place / "django6", "django>=6.1", "pytest", "pytest-django")
    except NotThere as why:
        pytest.skip(f"NOT TRIED: {why}")
