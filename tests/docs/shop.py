"""The application of the README, as a reader who follows it has it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from tests.support import forked
from tests.support.wait import eventually

README = (Path(__file__).parents[2] / "README.md").read_text()
STAYS = "rota work --app shop:app"
WAIT_S = 60


class Shop:
    """The directory of a reader who follows the README: its files, and `rota`, `python` and
    `pytest` as the virtual environment would have them."""

    def __init__(self, place: Path, url: str | None) -> None:
        self.place = place
        for block in re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
            name = block.splitlines()[0].removeprefix("# ")
            (place / name).write_text(block)
        programs = place / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name, command in {"python": "", "pytest": "-m pytest -q"}.items():
            (programs / name).write_text(
                f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {command} "$@"\n'
            )
            (programs / name).chmod(0o755)
        forked.write_rota(programs)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        if url is not None:
            self.environment["ROTA_DATABASE_URL"] = url

    def type(self, line: str) -> str:
        """Run a line as a shell would; return what it printed. Fails when the command does."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.place,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def work_until_stopped(self, command: str = STAYS) -> str:
        """Run a worker that stays, stop it once it has started, and return its log."""
        log = self.place / "worker.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                shlex.split(command), cwd=self.place, env=self.environment, stdout=file, stderr=file
            )
        try:
            eventually(
                lambda: "started, release " in log.read_text() or process.poll() is not None,
                WAIT_S,
                what="the worker starts",
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
        return log.read_text()
