"""Workers on four hosts: how much a network's delay costs, and what one that is cut off leaves.

A host is a network namespace of Linux, with its own interface, so root is needed. The delay is that
of a relay between the hosts and the server, since the kernel may have no `netem`; a host is cut off
by taking its interface down, so that packets are lost and no connection is closed.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from bench.app import NAP_S
from bench.figures import Figure, percentile, readable
from bench.pick_up import measure_waits
from bench.process import WorkerProcess
from bench.producer import due_together, wait_until_done
from bench.scale import Scale
from bench.server import DurableServer, value

PART = "hosts"
HOSTS = 4
DELAYS_MS = (0, 10, 80)
"""From a packet of a worker to its answer, without the server's time."""
SLOTS = 50
PICK_UPS, EVERY_S = 200, 0.05
FLOW = 10
"""Naps a second beside the cut."""
CUT_S = 60
AROUND_S = 15
CHUNK_BYTES = 65_536


class Relay:
    """Leads connections to a port of this machine to the server, each packet half of the delay
    later."""

    def __init__(self, target: int, delay_ms: float) -> None:
        self._target = target
        self._half_s = delay_ms / 2_000
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Relay:
        self._thread.start()
        starting = asyncio.start_server(self._lead, "0.0.0.0", 0)  # of the hosts
        server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
        with suppress(OSError, asyncio.CancelledError):  # the relay is closed
            await asyncio.gather(self._pass(reader, to_writer), self._pass(to_reader, writer))
        for one_end in (writer, to_writer):
            one_end.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent: deque[tuple[float, bytes]] = deque()
        news = asyncio.Event()

        async def read() -> None:
            data = b"-"
            while data:
                data = await reader.read(CHUNK_BYTES)
                sent.append((self._loop.time() + self._half_s, data))
                news.set()

        reading = asyncio.create_task(read())
        try:
            while True:
                while not sent:
                    news.clear()
                    await news.wait()
                due_at, data = sent.popleft()
                await asyncio.sleep(max(0.0, due_at - self._loop.time()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        finally:
            reading.cancel()
        writer.write_eof()


class Host:
    """A network namespace with an interface to this machine."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._name = f"rota-bench-{number}"
        self._link = f"rotab{number}"
        self.gateway = f"10.231.{number}.1"
        """This machine, as the host sees it."""
        self.run = ("ip", "netns", "exec", self._name)
        """What a command there begins with."""

    def __enter__(self) -> Host:
        _ip("netns", "add", self._name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._name)
        _ip("address", "add", f"{self.gateway}/24", "dev", self._link)
        _ip("link", "set", self._link, "up")
        inside = ("-n", self._name)
        _ip(*inside, "address", "add", f"10.231.{self._number}.2/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip(*inside, "link", "set", link, "up")
        return self

    def __exit__(self, *_: object) -> None:
        _ip("netns", "delete", self._name)

    def cut(self, *, off: bool) -> None:
        """Take its interface down, or up again."""
        _ip("link", "set", self._link, "down" if off else "up")


def measure(server: DurableServer, _: Path, scale: Scale) -> Iterator[Figure]:
    """Measure throughput and pick-up at each delay, and a cut without one."""
    for delay_ms in DELAYS_MS:
        with server.database() as url, _fleet(server, url, delay_ms):
            yield from _measure_delay(url, delay_ms, scale.jobs // 10)
    cut_s = CUT_S if scale.jobs > 100_000 else CUT_S / 4
    with server.database() as url, _fleet(server, url, DELAYS_MS[1]) as hosts:
        yield from _measure_cut(url, hosts[0], cut_s)


@contextmanager
def _fleet(server: DurableServer, url: str, delay_ms: float) -> Iterator[list[Host]]:
    """A worker on each host, with the hosts."""
    database = urlsplit(url).path
    with ExitStack() as stack:
        relay = stack.enter_context(Relay(server.port, delay_ms))
        hosts = [stack.enter_context(Host(number)) for number in range(1, HOSTS + 1)]
        for host in hosts:
            there = f"postgresql://postgres@{host.gateway}:{relay.port}{database}?sslmode=disable"
            stack.enter_context(WorkerProcess(there, "run", slots=SLOTS, host=host.run))
        yield hosts


def _measure_delay(url: str, delay_ms: float, jobs: int) -> Iterator[Figure]:
    who = f"{HOSTS} hosts, {delay_ms} ms"
    waits = measure_waits(url, PICK_UPS, EVERY_S)
    with psycopg.connect(url, autocommit=True) as connection:
        connections = value(
            connection,
            "select count(*) from pg_stat_activity where left(application_name, 5) = 'rota '",
        )
        due_together(connection, jobs)
        took_s = wait_until_done(connection)
    yield Figure(part=PART, name=f"no-op jobs, {who}", value=jobs / took_s, unit="jobs/s")
    for share in (0.5, 0.99):
        yield Figure(
            part=PART,
            name=f"pick-up p{share * 100:g}, {who}",
            value=percentile(waits, share),
            unit="ms",
            note=f"{PICK_UPS} jobs, longest {readable(max(waits))} ms",
        )
    yield Figure(part=PART, name=f"connections, {who}", value=connections, unit="")


def _measure_cut(url: str, host: Host, cut_s: float) -> Iterator[Figure]:
    """Enqueue naps at a rate while one of the hosts is cut off, and after that."""
    with psycopg.connect(url, autocommit=True) as connection:
        began, count = time.monotonic(), 0
        acts = {AROUND_S: True, AROUND_S + cut_s: False}
        while (passed := time.monotonic() - began) < cut_s + 2 * AROUND_S:
            for at in [at for at in acts if at <= passed]:
                host.cut(off=acts.pop(at))
            connection.execute(
                "insert into rota.job (job_type, payload) values ('nap', %s)", [f'{{"n": {count}}}']
            )
            count += 1
            time.sleep(max(0.0, began + count / FLOW - time.monotonic()))
        wait_until_done(connection)
        [row] = connection.execute(
            "select count(*) filter (where status = 'succeeded'), sum(claims - 1), "
            "max(extract(epoch from finished_at - created_at)) from rota.job_history"
        ).fetchall()
    note = f"{count} jobs of {NAP_S:g} s at {FLOW}/s on {HOSTS} hosts, one cut off for {cut_s:g} s"
    found = (
        ("succeeded", 100 * float(row[0]) / count, "%"),
        ("began again", float(row[1]), "jobs"),
        ("longest from enqueue to success", float(row[2]), "s"),
    )
    for name, figure, unit in found:
        yield Figure(part=PART, name=f"a host cut off: {name}", value=figure, unit=unit, note=note)


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from error
