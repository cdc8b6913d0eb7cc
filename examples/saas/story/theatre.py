"""What the scenes use: the database, the site, the workers, and a clock that is moved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import time as time_of_day
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import httpx2
import psycopg
import uvicorn

from rota.testing import Harness
from story import stage
from story.processes import HERE, Outside, Worker
from story.stage import StoryError

WAIT_S = 120.0
LOOK_S = 0.01
Say = Callable[[str], None]

IDLE = """
select not exists (
  select from rota.jobs
  where status = 'running'
    or status in ('queued', 'failed') and run_at <= rota.clock() and waits_for is null
)
"""
NEXT = """
select min(at) from (
  select run_at from rota.jobs
  where status in ('queued', 'failed') and waits_for is null and job_type <> 'refresh_front_page'
  union all select open_until from rota.breakers where state = 'open'
  union all select next_run_at from rota.schedule where name = any (%s)
) soon (at)
where at > rota.clock()
"""
FOLLOWED = ["clean-up", "invoice-reminders", "activity-report"]
"""Schedules at whose times the clock stops. Of the others, a run that nobody could do in time is
skipped and recorded, as it is while workers are down."""


class Theatre:
    """One performance.

    Args:
        url: the database, empty.
        files: an empty directory.
        outside: the mail server, the CRM and the partner.
        say: prints a line.
        cron: whether cron runs the jobs, not workers.
    """

    def __init__(self, url: str, files: Path, outside: Outside, say: Say, *, cron: bool) -> None:
        # Not at the top: it reads its environment when it is imported.
        from shop import database, jobs, queue  # noqa: F401, PLC0415

        self.url, self.files, self.outside, self.cron = url, files, outside, cron
        self._print, self._stack = say, ExitStack()
        self._workers: list[Worker] = []
        self._run: Worker | None = None
        self.app = queue.app
        self.app.migrate()
        database.create_tables(url)

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        self._stack.callback(self.app.close)
        self.watch = enter(psycopg.connect(self.url, autocommit=True))
        self._clock = enter(Harness(self.app))
        self.now = self._clock.freeze(stage.last_sunday(stage.real_now()))
        stage.fill(self.watch, self.files, self.now)
        self.site = enter(_serving())
        self._client = enter(httpx2.Client(timeout=40))
        return self

    def __exit__(self, *raised: object) -> None:
        for worker in self._workers:
            worker.__exit__()
        self._stack.close()

    # Telling

    def say(self, line: str) -> None:
        self._print(f"{self.now:%a %H:%M}  {line}")

    def show(self, *command: str) -> None:
        """Run a command of Rota, and show it with what it prints."""
        said = " ".join(f"'{word}'" if " " in word else word for word in command)
        self._print(f"\n  $ rota {said}")
        ran = subprocess.run(
            [sys.executable, "-m", "rota", *command],
            cwd=HERE, env={**os.environ, "COLUMNS": "78", "ROTA_APP": "shop.jobs:app"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode:
            raise StoryError(f"rota {said}: {ran.stderr}")
        for line in ran.stdout.rstrip().splitlines():
            self._print(f"  {line}".rstrip())
        self._print("")

    def value(self, query: str, *params: Any) -> Any:
        """Return what a SELECT finds first."""
        row = self.watch.execute(query.encode(), params).fetchone()
        return None if row is None else row[0]

    # Workers

    def hire(self) -> None:
        """Start a worker, as systemd would; in cron mode there is none."""
        if not self.cron:
            self._workers.append(Worker(self.files / f"worker-{len(self._workers)}.log"))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """In a block, somebody does what is due: in cron mode, one run after the other."""
        if self.cron:
            self._run = self._drain()
        try:
            yield
        finally:
            self._end_run()

    def work(self) -> None:
        """Return when nothing is due any more."""
        if self.cron:
            with self._drain() as drain:
                drain.wait()
        self.wait(lambda: self.value(IDLE), "nothing is due")

    def kill(self, name: str) -> int:
        """Kill a worker, or a run of cron's; return the process id."""
        pid = int(self.value("select pid from rota.worker where name = %s", name))
        os.kill(pid, signal.SIGKILL)
        for worker in [each for each in self._workers if each.pid == pid]:
            self._workers.remove(worker)
            worker.__exit__()
        return pid

    def recover(self, name: str) -> None:
        """Let the lease of a killed worker end, and start another one."""
        busy = "select count(*) = 0 from rota.jobs where status = 'running' and locked_by <> %s"
        self.wait(lambda: self.value(busy, name), "the others have nothing to do")
        self.now = self._clock.advance("3m")
        self.hire()

    def _end_run(self) -> None:
        if self._run is not None:
            self._run.__exit__()
            self._run = None

    def _drain(self) -> Worker:
        return Worker(self.files / "drain.log", "--drain")

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Look until it holds: it happens in other processes, which send no event."""
        until = time.monotonic() + WAIT_S
        while not condition():
            for worker in self._workers:
                worker.check()
            if self._run is not None and self._run.process.poll() is not None:
                self._end_run()  # for a moment nothing was due
                self._run = self._drain()
            if time.monotonic() > until:
                raise StoryError(f"after {WAIT_S:g} s it was still not so that {what}")
            time.sleep(LOOK_S)

    # Time

    def go_to(self, hour: str) -> None:
        """Let the time pass until an hour; each job runs when it is due."""
        clock = time_of_day.fromisoformat(hour)
        until = self.now.replace(hour=clock.hour, minute=clock.minute, second=0)
        until += timedelta(days=until <= self.now)
        while self.now < until:
            at = self.value(NEXT, FOLLOWED)
            at = until if at is None else min(at, until)
            self.now = self._clock.advance(at - self.now)
            self.work()

    # The site, and what is outside

    def post(self, path: str, form: dict[str, Any] | None = None) -> httpx2.Response:
        """Send a form to the site, and note how long it took."""
        began = time.perf_counter()
        answer = self._client.post(self.site + path, json=form)
        ms = 1e3 * (time.perf_counter() - began)
        if answer.is_error:
            raise StoryError(f"POST {path}: {answer.text}")
        self.watch.execute("insert into outside.call values (%s, %s)", [f"POST {path}", ms])
        return answer

    def get(self, path: str) -> httpx2.Response:
        return self._client.get(self.site + path).raise_for_status()

    def tell(self, **behaviour: Any) -> None:
        """Say how those outside behave from now on."""
        self._client.put(self.outside.url, json=behaviour).raise_for_status()

    def wait_for_held_mail(self) -> None:
        self.wait(
            lambda: self._client.get(self.outside.url).is_success, "the mail server holds a mail"
        )


@contextmanager
def _serving() -> Iterator[str]:
    """Run the site in this process, on a port of its own."""
    from shop.web import web  # noqa: PLC0415

    config = uvicorn.Config(web, host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
