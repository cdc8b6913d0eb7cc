"""A project of somebody who tests with the plugin, and real runs of pytest in it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
RUN_S = 180
UNUSED = ("-p", "no:hypothesispytest")
"""A plugin that takes a third of the time of a short run."""

PYTEST = """
[tool.pytest.ini_options]
filterwarnings = ["error"]
asyncio_default_fixture_loop_scope = "function"
"""
APP = """
import rota

app = rota.App(release="shop-1")


@app.job("welcome")
def welcome(user_id: int) -> int:
    return user_id
"""


@dataclass(frozen=True)
class TestRun:
    """A run of pytest that ended."""

    __test__ = False

    status: int
    out: str


class PytestProject:
    """A directory with an application and its tests."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.environment = environment
        self.write("shop.py", APP)
        self.configure('[tool.rota]\napp = "shop:app"\n')

    def configure(self, more: str, options: str = "") -> None:
        """Write pyproject.toml: tables of its own, and options of pytest."""
        self.write("pyproject.toml", f"{more}\n{PYTEST}{options}")

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        (self.directory / name).write_text(text, encoding="utf-8")

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start a run of pytest, with the plugin as its entry point loads it."""
        command = ["-m", "pytest", "-p", "no:cacheprovider", *UNUSED, "-q", *options]
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.directory,
            env={
                **os.environ,
                "PYTHONPATH": str(SOURCE),
                **self.environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def test(self, *options: str) -> TestRun:
        """Run pytest."""
        with self.start(*options) as process:
            try:
                out, _ = process.communicate(timeout=RUN_S)
            finally:
                process.kill()
        return TestRun(process.returncode, out)
