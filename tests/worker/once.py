"""As a program: attempts whose handler sends one message under an effect. Each is ended at the next
line, or every STEP-th, that it runs of itself and of Rota's code for effects, until one gets to its
end. Then the next attempts run. It prints where each was ended, and what came of its job:
`python -m tests.worker.once URL FOLDER POLICY HOW STEP`.

It forks, and has one thread only: so a test starts it as a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psycopg

import rota
from rota.client import DirectClient
from rota.declare import effect as declared
from rota.model import effect as model
from rota.store.db import Database
from rota.store.ops import effect as ops
from rota.worker import effects as kept
from rota.worker.effects import EffectKeeper
from tests.worker.table import Connection, expire_leases, rows, value

TRACED = {str(module.__file__) for module in (declared, model, ops, kept)} | {__file__}
END_S = 60


class Injected(Exception):
    """Ends an attempt like any error that proves nothing."""


def main(url: str, folder: str, policy: Any, how: str, step: str) -> None:
    """Print one object for each attempt that was ended; `step` is how many lines lie between."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select rota.worker_declare('sends', lease => '1 s', max_attempts => 9)")
        ended: dict[int, str] = {}
        while True:
            job = int(str(value(connection, "select id from rota.enqueue('sends')")))
            path = Path(folder, str(job))
            path.touch()
            in_child(partial(attempts, url, Path(folder), policy, how, 1 + len(ended) * int(step)))
            if status(connection, job) == "succeeded":
                break
            ended[job] = find_place(connection, job, path)
        while value(connection, "select count(*) from rota.job where status <> 'dead'"):
            expire_leases(connection)
            connection.execute("select rota.job_reap('-infinity', 1000)")
            connection.execute("update rota.job set run_at = now() where status = 'failed'")
            in_child(partial(attempts, url, Path(folder), policy, how, 0))
        for job, where in ended.items():
            end = {
                "where": where,
                "sent": sent(Path(folder, str(job))),
                "status": status(connection, job),
            }
            sys.stdout.write(json.dumps(end) + "\n")


def in_child(run: Callable[[], None]) -> None:
    """Run in a fork, and wait for its end."""
    pid = os.fork()
    if pid == 0:
        run_and_exit(run)
    _, ended = os.waitpid(pid, 0)
    assert ended in (0, signal.SIGKILL), ended


def run_and_exit(run: Callable[[], None]) -> NoReturn:
    signal.alarm(END_S)
    try:
        run()
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)


def status(connection: Connection, job: int) -> str:
    return str(value(connection, "select status from rota.jobs where id = %s", job))


def sent(path: Path) -> int:
    return len(path.read_bytes())


def find_place(connection: Connection, job: int, path: Path) -> str:
    """Where the first attempt ended, in the words of the page."""
    found = rows(connection, "select done_at is not null from rota.effect where job = %s", job)
    if not found:
        return "before the intent is committed"
    if found == [(True,)]:
        return "after the result is committed"
    if sent(path):
        return "after the provider has it, before the result is committed"
    return "after the intent, before the provider has it"


def attempts(url: str, folder: Path, policy: Any, how: str, line: int) -> None:
    """Claim what is due and call the handler; end the first attempt at a line, if that is not 0."""
    database = Database(url)
    client, keeper = DirectClient(database), EffectKeeper(database)
    with psycopg.connect(url, autocommit=True) as connection:
        claimed = rows(
            connection,
            "select id, claims from rota.claim('default', '{sends}', %s, 1000)",
            str(os.getpid()),
        )
        for id_, claims in claimed:
            job = client.get(id_)
            assert job is not None
            context = rota.Context(job, "once", effects=keeper)
            path = folder / str(id_)
            try:
                if line:
                    sys.settrace(Tracer(line, how).trace)
                if how.startswith("async"):
                    asyncio.run(asend(context, path, policy))
                else:
                    send(context, path, policy)
                sys.settrace(None)
                connection.execute("select rota.succeed(%s, %s)", [id_, claims])
            except (Injected, rota.Dead) as error:
                sys.settrace(None)
                fatal = isinstance(error, rota.Dead)
                connection.execute(
                    "select rota.fail(%s, %s, 'Error', fatal => %s, retry_after => '1 hour')",
                    [id_, claims, fatal],
                )


def send(context: rota.Context, path: Path, policy: Any) -> None:
    """The handler: the provider is a file, which has the message once this returns."""
    with context.effect(path.name, if_uncertain=policy) as effect:
        if not effect.done:
            deliver(path)
            effect.result = "m-1"


async def asend(context: rota.Context, path: Path, policy: Any) -> None:
    """The same on a loop."""
    async with context.effect(path.name, if_uncertain=policy) as effect:
        if not effect.done:
            deliver(path)
            effect.result = "m-1"


def deliver(path: Path) -> None:
    with path.open("ab", buffering=0) as mailbox:
        mailbox.write(b"*")


class Tracer:
    """Ends this process, or its handler, at the n-th line of the traced files."""

    def __init__(self, line: int, how: str) -> None:
        self._left = line
        self._kills = how.endswith("kill")

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in TRACED or frame.f_code.co_name == "attempts":
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                if self._kills:
                    os.kill(os.getpid(), signal.SIGKILL)
                sys.settrace(None)
                raise Injected
        return self.trace


if __name__ == "__main__":
    main(*sys.argv[1:])
