"""Processes of the story: workers that are started, killed and stopped, and what is outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from story.stage import StoryError

HERE = Path(__file__).resolve().parent.parent
STOPS_S = 30.0
WORK = ["work", "--app", "shop.jobs:app"]


class Worker:
    """A `rota work` in a process of its own. It also ends with the story, however that ends: it
    holds the reading end of a pipe that nobody else can write to."""

    def __init__(self, log: Path, *options: str) -> None:
        self._log = log
        self._reader, self._writer = os.pipe()
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "story.processes", str(self._reader), *WORK, *options],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                pass_fds=[self._reader],
                cwd=HERE,
                start_new_session=True,  # Ctrl-C is for the story
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()
        os.close(self._reader)
        os.close(self._writer)

    def kill(self) -> None:
        """Send SIGKILL; return when the process has ended."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Send SIGTERM, as a deploy does, and wait for exit status 0."""
        self.process.send_signal(signal.SIGTERM)
        self.wait()

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        try:
            status = self.process.wait(STOPS_S)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {STOPS_S:g} s") from None
        if status:
            raise self.failure(f"ended with status {status}")

    def check(self) -> None:
        """Raise an error if it has ended, which it should not yet."""
        if self.process.poll() is not None:
            raise self.failure(f"ended too early, with status {self.process.returncode}")

    def failure(self, how: str) -> StoryError:
        last = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        return StoryError(f"worker {self.pid} {how}; the end of its log:\n{last}")


class Outside:
    """The process of `story.outside`; it ends when its input does."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "story.outside", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
            start_new_session=True,
        )
        assert self._process.stdout
        said = self._process.stdout.readline().split()
        if len(said) != 2:
            raise StoryError("the mail server and the CRM of the story did not start")
        self.smtp_url = f"smtp://127.0.0.1:{said[0]}"
        self.url = f"http://127.0.0.1:{said[1]}"

    def __enter__(self) -> Outside:
        return self

    def __exit__(self, *raised: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _end_with(reader: int) -> None:
    os.read(reader, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=[int(sys.argv[1])], daemon=True).start()
    del sys.argv[1]
    from rota.cli import main

    main()
