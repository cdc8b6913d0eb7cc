"""`python bench/harness/run.py --harness DIRECTORY [--postgres …] [--python …] -- run --systems …`.

Copies a checkout of the harness, registers the adapters, and runs its `bench.py` with the arguments
after `--`. Without `--docker` the containers are processes of this machine: see docker_here.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
ADAPTERS = ("rota-bench", "rota-chunk-bench")
STOP_S = 60
NEEDS = ("psycopg[binary]>=3.2", "matplotlib>=3.9", "pandas>=2.2", "numpy>=2.0", "pydantic>=2")
"""As the harness's pyproject.toml."""


def main() -> int:
    asked = _parse()
    place: Path = asked.place.resolve()
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o755)  # PostgreSQL runs as another user where this one is root
    harness = place / "harness"
    if not harness.exists():
        prepare(asked.harness, harness, asked.python)
    python = make_environment(place / "python", asked.python)
    environment = {**os.environ, "MPLBACKEND": "agg"}
    if not asked.docker:
        environment.update(put_docker_on_path(place, asked.postgres, asked.python))
    command = [str(python), "bench.py", *asked.arguments]
    # The harness cleans up after Ctrl-C only; a shell's background jobs ignore that by default.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with subprocess.Popen(command, cwd=harness, env=environment) as process:
        try:
            return process.wait(asked.within_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.send_signal(signal.SIGINT)
            process.wait(STOP_S)
            return 1
        finally:
            process.kill()
            if not asked.docker:
                down = [sys.executable, str(HERE / "docker_here.py"), "compose", "down", "-v"]
                subprocess.run(down, env=environment, check=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--harness", type=Path, required=True, help="a checkout of it")
    parser.add_argument("--place", type=Path, default=REPOSITORY / ".harness")
    parser.add_argument(
        "--postgres",
        type=Path,
        default=Path("/usr/lib/postgresql/15"),
        help="a PostgreSQL with pgstattuple, which the harness needs",
    )
    parser.add_argument("--python", default="python3.12", help="3.12 or newer, for the harness")
    parser.add_argument("--docker", action="store_true", help="with containers, as the harness is")
    parser.add_argument("--within-s", type=float, default=3600)
    parser.add_argument("arguments", nargs="+", help="of the harness, after --")
    return parser.parse_args()


def prepare(source: Path, harness: Path, python: str) -> None:
    """Copy the harness, and register Rota in the copy."""
    making = harness.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(source, making, ignore=shutil.ignore_patterns("results", ".git"))
    for adapter in ADAPTERS:
        shutil.copytree(HERE / adapter, making / adapter)
    patch = ["git", "apply", "--unsafe-paths", f"--directory={making}"]
    subprocess.run([*patch, str(HERE / "register.patch")], check=True, cwd="/")
    wheels = making / "rota-bench" / "wheels"
    build = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels)]
    subprocess.run([*build, str(REPOSITORY)], check=True)
    making.rename(harness)


def make_environment(place: Path, python: str) -> Path:
    """Return a Python that has what the harness needs."""
    if not place.exists():
        making = place.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        subprocess.run([python, "-m", "venv", making], check=True)
        subprocess.run(
            [making / "bin" / "python", "-m", "pip", "install", "--quiet", *NEEDS], check=True
        )
        making.rename(place)
    return place / "bin" / "python"


def put_docker_on_path(place: Path, postgres: Path, python: str) -> dict[str, str]:
    """Return the environment in which `docker` is docker_here.py."""
    programs = place / "bin"
    programs.mkdir(exist_ok=True)
    docker = programs / "docker"
    docker.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "docker_here.py"}" "$@"\n')
    docker.chmod(0o755)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "ROTA_HARNESS_PLACE": str(place),
        "ROTA_HARNESS_POSTGRES": str(postgres.resolve()),
        "ROTA_HARNESS_PYTHON": shutil.which(python) or python,
    }


if __name__ == "__main__":
    sys.exit(main())
