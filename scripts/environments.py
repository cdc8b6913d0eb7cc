"""Makes the environments of `.venvs/`: `lowest`, with the oldest versions that Rota and its extras
allow, for the part `lowest` of `make nightly`; and those in which it runs tests/django with Django
6, for the Django of .venv is the newest one for Python 3.11.

Each environment has Rota, editable, with what it needs, and `django-6.1` also Django's own tests of
tasks. Without a Python of 3.12 or newer, or without a package index, this says NOT TRIED and
succeeds, and those tests are skipped with the same words. An environment that is there is left as
it is until what it needs changes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from itertools import chain
from os import environ
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venvs"
NEEDED = {"django-6.0": "django>=6.0,<6.1", "django-6.1": "django>=6.1,<6.2"}
WITH_ITS_TESTS = "django-6.1"
MORE = ("pytest>=9", "pytest-django")
LOWEST = PLACE / "lowest"
LOWEST_MORE = (
    "aiosmtpd",
    "httpx",
    "hypothesis",
    "moto[server]",
    "openpyxl",
    "opentelemetry-sdk",
    "psutil",
    "pydantic",
    "pytest>=9",
    "pytest-asyncio",
    "pytest-randomly",
    "pytest-xdist",
    "pyyaml",
    "standardwebhooks",
)
"""What the tests need that run there, in any version."""
INSTALL_S = 600


class NotTried(Exception):
    """This machine cannot have the environment; the message is one line with the reason."""


def main(python: str | None = None) -> int:
    """Make what is missing, with this Python or with one that is found."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["dashboard"]]
    rota = ["--editable", f"{ROOT}[dashboard]"]
    for name, django in NEEDED.items():
        wanted = [django, *MORE, *rota]
        make(PLACE / name, wanted, needed, python, django if name == WITH_ITS_TESTS else None)
    lowest = list_lowest([*project["dependencies"], *chain.from_iterable(extras.values())])
    make(LOWEST, [*lowest, *LOWEST_MORE, "--editable", str(ROOT)], [], sys.executable)
    return 0


def list_lowest(requirements: Iterable[str]) -> list[str]:
    """Return each requirement with the lowest version that it allows, and only that one."""
    pinned = (
        re.sub(r">=([^,;]+)[^;]*", r"==\1", requirement)
        for requirement in requirements
        if not requirement.startswith("rota[")
    )
    return [*dict.fromkeys(pinned)]


def make(
    place: Path,
    wanted: list[str],
    needed: list[str],
    python: str | None,
    tests_of: str | None = None,
) -> None:
    """Make one environment, unless it is there, or say why this machine cannot have it.

    Args:
        wanted: the arguments of `pip install`.
        needed: what those need, so that a change of it is noticed.
        tests_of: the release of Django whose own tests of tasks it has.
    """
    stamp, made_of = place / "stamp", "\n".join([*wanted, *needed])
    if stamp.exists() and stamp.read_text() == made_of:
        return
    print(f"environments: making {place.relative_to(ROOT)}", file=sys.stderr)
    try:
        _make(place, wanted, python, tests_of)
    except NotTried as why:
        shutil.rmtree(place, ignore_errors=True)
        print(f"NOT TRIED: {place.name}: {why}", file=sys.stderr)
    else:
        stamp.write_text(made_of)


def _make(place: Path, wanted: list[str], python: str | None, tests_of: str | None) -> None:
    base = python or next(_find_pythons(), None)
    if base is None:
        raise NotTried("there is no Python of 3.12 or newer, of pyenv or in PATH")
    shutil.rmtree(place, ignore_errors=True)
    _run(base, "-m", "venv", str(place))
    pip = [str(place / "bin" / "python"), "-m", "pip"]
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    _run(*pip, "install", *options, *wanted)
    if tests_of is not None:
        with tempfile.TemporaryDirectory(dir=place) as beside:
            source = ["--no-deps", "--no-binary", "django", "--dest", beside, tests_of]
            _run(*pip, "download", *options, *source)
            [sdist] = Path(beside).glob("*.tar.gz")
            _unpack_tests(sdist, place / "tasks")


def _find_pythons() -> Iterator[str]:
    versions = Path(environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = [f"python3.{minor}" for minor in (14, 13, 12)]
    for name in named:
        found = [str(path) for path in sorted(versions.glob(f"*/bin/{name}"))]
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
