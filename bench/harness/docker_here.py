"""What the harness asks of `docker`, done without containers.

PostgreSQL runs as a process on the harness's port, an image is a virtual environment, and a
container is the adapter's process itself: a SIGKILL of the harness reaches it. `run.py` puts this
on the PATH, under the name `docker`, with the place of its files in the environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psycopg

from tests.support.guard import starting_lock
from tests.support.server import PostgresServer

PLACE = "ROTA_HARNESS_PLACE"
POSTGRES = "ROTA_HARNESS_POSTGRES"
PYTHON = "ROTA_HARNESS_PYTHON"
PORT = 15555
USER = "bench"


class HarnessServer(PostgresServer):
    """A server with the settings and the databases of the harness, on its port."""

    def __init__(self, place: Path, installed: Path, harness: Path) -> None:
        super().__init__(place, "server", place / "postgresql.log", installed)
        self._harness = harness
        starting_lock(place).touch()

    def start(self) -> None:
        """Start it; make it first, if it is not there."""
        if self.is_running:
            return
        is_new = not self.data.exists()
        if is_new:
            self._initialise()
            self._port_file.write_text(str(PORT))
        super().start()
        if is_new:
            with psycopg.connect(self.url(), autocommit=True) as admin:
                admin.execute(f"create role {USER} superuser login password '{USER}'")
            self._run_sql(self._harness / "init-databases.sql")

    def remove(self) -> None:
        """Stop it, and delete what it had, as `down -v` does."""
        if self.is_running:
            self.stop("immediate")
        shutil.rmtree(self.socket_dir, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        command = [str(self.program("pg_isready")), "-h", "127.0.0.1", "-p", str(PORT), "-q"]
        return subprocess.run(command, check=False).returncode == 0

    def _initialise(self) -> None:
        super()._initialise()
        shutil.copyfile(self._harness / "postgres.conf", self.data / "postgresql.conf")

    def _run_sql(self, file: Path) -> None:
        address = ["-h", "127.0.0.1", "-p", str(PORT), "-U", USER, "-d", "postgres"]
        psql = [str(self.program("psql")), "-X", "-q", "-v", "ON_ERROR_STOP=1", *address]
        subprocess.run([*psql, "-f", str(file)], check=True, stdin=subprocess.DEVNULL)


def main(arguments: list[str]) -> int:
    """Do it; return docker's exit status."""
    place = Path(os.environ[PLACE])
    server = HarnessServer(place, Path(os.environ[POSTGRES]), place / "harness")
    match arguments:
        case ["compose", "up", *_] | ["compose", "start", "postgres"]:
            server.start()
        case ["compose", "exec", "-T", "postgres", "pg_isready", *_]:
            return 0 if server.is_ready else 2
        case ["compose", "stop", "postgres"]:
            server.stop("fast")  # SIGINT, as the image's STOPSIGNAL
        case ["compose", "down", *_]:
            server.remove()
        case ["build", "-f", file, "-t", tag, "."]:
            build(Path(file).parent, place / "images" / tag)
        case ["run", *options, image]:
            execute(options, image, place)
        case _:
            print(f"docker {' '.join(arguments)}: not known here", file=sys.stderr)
            return 125
    return 0


def build(adapter: Path, image: Path) -> None:
    """Install what an adapter in Python, or in JavaScript, depends on; once."""
    if image.exists():
        return
    making = image.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    if (adapter / "package.json").exists():
        making.mkdir(parents=True)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=adapter, check=True)
        command = ["node", "main.js"]
    else:
        subprocess.run([os.environ[PYTHON], "-m", "venv", making], check=True)
        project = tomllib.loads((adapter / "pyproject.toml").read_text())["project"]
        wheels = map(str, (adapter / "wheels").glob("*.whl"))
        pip = [str(making / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *wheels, *project["dependencies"]], check=True)
        command = [str(image / "bin" / "python"), "main.py"]
    (making / "image.json").write_text(json.dumps({"command": command, "cwd": str(adapter)}))
    making.rename(image)


def execute(options: list[str], image: str, place: Path) -> None:
    """Become the process of the container."""
    made = json.loads((place / "images" / image / "image.json").read_text())
    environment = {"PATH": os.defpath + os.pathsep + os.environ["PATH"], "HOME": str(place)}
    mounts: dict[str, str] = {}
    for option, value in pairwise(options):
        if option == "-v":
            inside, outside = value.split(":")[1], value.split(":")[0]
            mounts[inside] = outside
        elif option == "-e":
            name, _, content = value.partition("=")
            environment[name] = content
    for name, content in environment.items():
        for inside, outside in mounts.items():
            if content.startswith(inside + "/"):
                environment[name] = outside + content.removeprefix(inside)
    os.chdir(made["cwd"])
    os.execvpe(made["command"][0], made["command"], environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
