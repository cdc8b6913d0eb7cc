"""Where the peers are installed: an environment for each under `.peers/`, made once.

One that cannot be installed is said loudly, and left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from bench.peers.store import REDIS
from bench.peers.system import System
from tests.support.guard import locked

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".peers"
PYTHONS = ("3.13", "3.12")
INSTALL_S = 300


class NotInstalled(Exception):
    """The system cannot be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Installed:
    """How programs of a system are started."""

    command: tuple[str, ...]
    environment: dict[str, str]
    version: str
    runtime: str


def install(system: System, place: Path = PLACE) -> Installed:
    """Install a system, unless it is there. Raises NotInstalled."""
    place.mkdir(exist_ok=True)
    if system.kept == "redis" and shutil.which(REDIS) is None:
        raise NotInstalled(f"there is no {REDIS} here")
    return _node(system, place) if system.runtime == "node" else _python(system, place)


def _python(system: System, place: Path) -> Installed:
    base = find_python(system)
    packages = (*system.packages, *(_own_packages() if system.needs_rota else ()))
    venv = place / f"{system.place}-{_digest(str(base), *packages)}"
    python = venv / "bin" / "python"
    with locked(place / f"{system.place}.lock"):
        if not (venv / "done").exists():
            shutil.rmtree(venv, ignore_errors=True)
            _run([str(base), "-m", "venv", str(venv)])
            _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check",
                  *packages])  # fmt: skip
            (venv / "done").touch()
    paths = [str(ROOT), *([str(ROOT / "src")] if system.needs_rota else [])]
    return Installed(
        command=(str(python),),
        environment={"PYTHONPATH": os.pathsep.join(paths)},
        version=_version(python, system),
        runtime="Python " + _ask(python, "import platform; print(platform.python_version())"),
    )


def _own_packages() -> tuple[str, ...]:
    """Return what Rota itself needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return (*project["dependencies"], *project["optional-dependencies"]["dashboard"])


def find_python(system: System) -> Path:
    """Return the newest of the Pythons that are known to work, which all systems share; else this
    one."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in PYTHONS:
        on_path = shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")
        found = sorted(versions.glob(f"{version}.*/bin/python"))
        if found or on_path:
            return found[-1] if found else Path(str(on_path))
    if system.newest_python and sys.version_info < (3, 12):
        raise NotInstalled("it needs Python 3.12, and there is none here")
    return Path(getattr(sys, "_base_executable", sys.executable))


def _version(python: Path, system: System) -> str:
    if not system.package:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        return str(project["version"])
    return _ask(python, f"import importlib.metadata as m; print(m.version({system.package!r}))")


def _ask(python: Path, program: str) -> str:
    done = subprocess.run(
        [str(python), "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def _node(system: System, place: Path) -> Installed:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalled("there is no node or no npm here")
    target = place / f"{system.place}-{_digest(node, *system.packages)}"
    modules = target / "node_modules"
    with locked(place / f"{system.place}.lock"):
        if not (target / "done").exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            options = ["--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]
            _run([npm, "install", *options, "--loglevel=error", f"--prefix={target}",
                  *system.packages])  # fmt: skip
            (target / "done").touch()
    package = json.loads((modules / system.package / "package.json").read_text("utf-8"))
    said = subprocess.run([node, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return Installed(
        command=(node,),
        environment={"NODE_PATH": str(modules), "NODE_ENV": "production"},
        version=package["version"],
        runtime=f"Node {said.stdout.strip().removeprefix('v')}",
    )


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]


def _run(command: list[str]) -> None:
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise NotInstalled(" ".join(str(error.stdout).split())[-500:]) from error
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"not installed after {INSTALL_S} s") from error
