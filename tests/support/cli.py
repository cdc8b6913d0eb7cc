"""The command line as people meet it: a process, what it prints, its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import forked

SHOP = """
from __future__ import annotations

from datetime import date

import rota

app = rota.App(release="shop-1")


@app.job("send_mail", queue="email", priority=5, max_attempts=3, aliases=("mail",))
async def send_mail(user_id: int, template: str = "welcome") -> dict[str, int]:
    return {"user": user_id}


@app.job("report", retry=rota.Exponential("1m", cap="3m"), max_attempts=4)
def report(day: date) -> None:
    raise ValueError(f"no data for {day}")
"""


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as the one JSON object that it must be."""
        return json.loads(self.out)

    @property
    def error(self) -> tuple[int, str]:
        """Its exit status and its one sentence on stderr; that it printed no result is asserted."""
        assert self.out == "", self
        assert self.err.startswith("rota: ") and self.err.count("\n") == 1, self
        return self.status, self.err.removeprefix("rota: ").rstrip("\n")


class CommandLine:
    """`rota` in a directory, with a database in its environment."""

    _begin = staticmethod(forked.start)

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self.environment = environment

    @contextmanager
    def start(self, *arguments: str, hears_ctrl_c: bool = False) -> Iterator[subprocess.Popen[str]]:
        """Start a command; one that still runs when the block ends is killed.

        `hears_ctrl_c`: also if pytest ignores SIGINT, as in the background of a shell, and so what
        it starts.
        """
        begin = _begin_listening if hears_ctrl_c else self._begin
        with begin(
            ["-m", "rota", *arguments],
            cwd=self.directory,
            env={**os.environ, "COLUMNS": "200", **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def __call__(self, *arguments: str) -> Ran:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=forked.RUN_S)
        return Ran(process.returncode, out, err)

    def ok(self, *arguments: str) -> Ran:
        """Run a command that must succeed."""
        ran = self(*arguments)
        assert ran.status == 0, ran
        return ran


class StartedCommandLine(CommandLine):
    """The same from the first line of Python on: for tests of how a command starts."""

    _begin = staticmethod(forked.python)


_LISTENING = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def _begin_listening(command: list[str], **settings: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _LISTENING, *command[1:]], **settings)
