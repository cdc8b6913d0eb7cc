"""Makes the environments of `.venvs/`, in which `make nightly` runs tests/django with Django 6.

The Django of .venv is the newest one for Python 3.11. Each environment has Rota, editable, with
what it needs, and `django-6.1` also Django's own tests of tasks. Without a Python of 3.12 or newer,
or without a package index, this says NOT TRIED and succeeds, and those tests are skipped with the
same words. An environment that is there is left as it is until what it needs changes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from os import environ
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venvs"
NEEDED = {"django-6.0": "django>=6.0,<6.1", "django-6.1": "django>=6.1,<6.2"}
WITH_ITS_TESTS = "django-6.1"
MORE = ("pytest>=9", "pytest-django")
INSTALL_S = 600


class NotTried(Exception):
    """This machine cannot have the environment; the message is one line with the reason."""


def main(python: str | None = None) -> int:
    """Make what is missing, with this Python or with one that is found."""
    for name, django in NEEDED.items():
        try:
            make(PLACE / name, django, python, with_its_tests=name == WITH_ITS_TESTS)
        except NotTried as why:
            print(f"NOT TRIED: tests/django with {name}: {why}", file=sys.stderr)
    return 0


def make(place: Path, django: str, python: str | None, *, with_its_tests: bool) -> None:
    """Make one environment, unless it is there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["dashboard"]]
    stamp, made_of = place / "stamp", "\n".join([str(ROOT), django, *MORE, *needed])
    if stamp.exists() and stamp.read_text() == made_of:
        return
    print(f"environments: making {place.relative_to(ROOT)}", file=sys.stderr)
    base = python or next(_find_pythons(), None)
    if base is None:
        raise NotTried("there is no Python of 3.12 or newer, of pyenv or in PATH")
    shutil.rmtree(place, ignore_errors=True)
    _run(base, "-m", "venv", str(place))
    pip = [str(place / "bin" / "python"), "-m", "pip"]
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    _run(*pip, "install", *options, django, *MORE, "--editable", f"{ROOT}[dashboard]")
    if with_its_tests:
        with tempfile.TemporaryDirectory(dir=place) as beside:
            source = ["--no-deps", "--no-binary", "django", "--dest", beside, django]
            _run(*pip, "download", *options, *source)
            [sdist] = Path(beside).glob("*.tar.gz")
            _unpack_tests(sdist, place / "tasks")
    stamp.write_text(made_of)


def _find_pythons() -> Iterator[str]:
    versions = Path(environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = [f"python3.{minor}" for minor in (14, 13, 12)]
    for name in named:
        found = [str(one) for one in sorted(versions.glob(f"*/bin/{name}"))]
        for python in (*found, shutil.which(name)):
            # That in PATH may be a shim of pyenv's, which has no such Python.
            if python is not None and _succeeds(python, "-c", "import ensurepip, venv"):
                yield python


def _unpack_tests(sdist: Path, place: Path) -> None:
    place.mkdir()
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            path = Path(member.name)
            if path.parts[1:3] == ("tests", "tasks") and len(path.parts) == 4:
                file = archive.extractfile(member)
                if file is not None:
                    (place / path.name).write_bytes(file.read())


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotTried(str(error)) from None
    if done.returncode != 0:
        raise NotTried((done.stderr or done.stdout).strip().rpartition("\n")[2])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
