"""Handlers with `process=rota.Process(cluster="dask")`: their processes run on a Dask cluster.

A task of the cluster (`serve`) starts the process on the host of a cluster worker, and passes its
messages on through two queues of the scheduler. Rota's worker keeps the lease, the timeout and
progress, and a handler that does not stop is killed where it runs. Each side ends the handler when
it hears nothing from the other side.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec.structs import replace

from rota.errors import ConfigurationError, MemoryExceeded, ProcessDied
from rota.worker.processes import messages
from rota.worker.processes.handler_child import HandlerChild
from rota.worker.processes.process_attempt import (
    CHECK_S,
    START_S,
    HandlerNotStoppedError,
    ProcessNotStartedError,
)

try:
    import dask
    from distributed import Client, Queue, get_client
except ImportError:
    raise ConfigurationError("cluster=\"dask\" needs a library: pip install 'rota[dask]'") from None

if TYPE_CHECKING:
    from rota.worker.attempt import Attempt

logger = logging.getLogger("rota")

ADDRESS_VARIABLE = "ROTA_DASK_SCHEDULER"
CONNECT_S = 10
PING_S = 2.0
"""Seconds between two signs of life of each side."""
SILENT_S = 15.0
"""The attempt is lost after so many seconds without a sign of life."""
ALONE_S = SILENT_S - 3
"""A handler has ended itself after so many seconds alone, even if all else on its host stands
still."""
LEASE_S = 20.0
"""The shortest lease: two thirds of it, which a killed worker may have left, outlast ALONE_S."""
OVER_S = 3.0
"""Longest wait until the cluster confirms that a handler's process is gone."""
FAILED = ("error", "lost", "cancelled")

PLACED, ALIVE, END, OVER = b"placed", b"alive", b"end", b"over"
"""Messages that are not pickled `messages`. PLACED comes once; again, if the scheduler lost the
first cluster worker and gave the task to another worker."""


# In Rota's worker


def find_address() -> str:
    """Return the address of the scheduler. Raises ConfigurationError: neither ROTA_DASK_SCHEDULER
    nor Dask's configuration has it."""
    address = os.environ.get(ADDRESS_VARIABLE) or dask.config.get("scheduler-address", None)
    if not address:
        raise ConfigurationError(
            f'cluster="dask": no scheduler: set {ADDRESS_VARIABLE}, as in tcp://scheduler:8786, or '
            "Dask's own DASK_SCHEDULER_ADDRESS"
        )
    return str(address)


def check_lease(job_type: str, lease_s: float) -> None:
    """Raise ConfigurationError for a lease so short that another worker could take the job of a
    killed worker while its handler still runs."""
    if lease_s < LEASE_S:
        raise ConfigurationError(
            f"job type {job_type!r}: its lease is {lease_s:g} s; a handler on a Dask cluster may "
            f"outlive a killed worker by {ALONE_S:g} s, so set a lease of {LEASE_S:g} s or more"
        )


def start(attempt: Attempt, setup: messages.Setup) -> ClusterChild:
    """Start the process of an attempt on the cluster, and wait until a cluster worker has it.

    Raises:
        ProcessNotStartedError: the scheduler does not answer, or no cluster worker was free.
        HandlerNotStoppedError: the attempt must not begin any more.
    """
    assert attempt.context is not None
    assert attempt.job_type.options.process is not None
    try:
        child = ClusterChild(setup, attempt.job_type.options.process.memory_bytes_max)
    except Exception as error:  # noqa: BLE001 - what Dask and tornado raise is not declared
        why = f"the Dask scheduler does not answer: {type(error).__name__}: {error}"
        raise ProcessNotStartedError(why) from None
    until = monotonic() + START_S
    try:
        while not child.is_placed:
            if attempt.context.cancelled is not None:
                raise HandlerNotStoppedError
            if monotonic() > until:
                why = f"no worker of the Dask cluster was free within {START_S:g} s"
                raise ProcessNotStartedError(why)
            child.receive(CHECK_S)
    except ProcessDied as death:
        child.end()
        raise ProcessNotStartedError(str(death)) from None
    except BaseException:
        child.end()
        raise
    return child


class ClusterChild:
    """A process on the cluster, as Rota's worker knows it; it runs one job."""

    def __init__(self, setup: messages.Setup, memory_bytes_max: int | None) -> None:
        client, name = _connect(find_address()), f"rota-{uuid4().hex}"
        self.is_up = self.is_ready = self.is_placed = False
        self.jobs = 0
        self._up, self._down = (Queue(f"{name}-{way}", client=client) for way in ("up", "down"))
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._over = threading.Event()
        """Whether no further message can come from the process."""
        self._heard_at = monotonic()
        self._future = client.submit(
            serve, name, setup, memory_bytes_max, key=name, pure=False, retries=0
        )
        threading.Thread(target=self._hear, name=name, daemon=True).start()

    def send(self, message: messages.ToProcess) -> None:
        """Send a message. Raises ProcessDied: the scheduler refuses it; not raised for a stop
        request."""
        try:
            self._put(pickle.dumps(message))
        except ProcessDied:  # as `HandlerChild.send`
            if not isinstance(message, messages.Stop):
                raise

    def receive(self, timeout_s: float) -> Any:
        """Return the next message; None: none came in time. Raises ProcessDied, MemoryExceeded."""
        try:
            message = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return self._look()
        self._heard_at = monotonic()
        if message == PLACED and self.is_placed:
            raise ProcessDied("was lost with its worker of the Dask cluster")
        if message == PLACED:
            self.is_placed = True
        elif isinstance(message, messages.Importing):
            self.is_up = True
        elif isinstance(message, Exception):
            raise message
        elif message == OVER:
            self._over.set()
            raise ProcessDied("was ended on the Dask cluster")
        elif message != ALIVE:
            return message
        return None

    def kill(self) -> None:
        """Let the cluster kill the process; do not wait."""
        threading.Thread(target=self._send_end, name="rota-cluster-end", daemon=True).start()

    def end(self) -> None:
        """Let the cluster kill the process, and wait a while until it is gone."""
        self._send_end()
        until = monotonic() + (OVER_S if self.is_placed and not self._over.is_set() else 0)
        while (left_s := until - monotonic()) > 0:
            with suppress(queue.Empty):
                # A process on an unreachable cluster ends by itself.
                if self._inbox.get(timeout=left_s) == OVER:
                    break
        self._over.set()

    def _send_end(self) -> None:
        try:
            for _ in range(3):  # one that waits for a lost cluster worker may take a message
                self._put(END, OVER_S)
            if not self.is_placed:
                self._future.cancel()
        except Exception as error:  # noqa: BLE001 - what Dask raises is not declared
            # The cluster ends the process by itself when it hears nothing more.
            logger.info("the Dask cluster cannot be told to end a handler: %s", error)

    def _put(self, message: bytes, within_s: float = SILENT_S) -> None:
        try:
            self._down.put(message, callback_timeout=within_s)
        except Exception as error:  # noqa: BLE001 - a new scheduler says KeyError: it has no queue
            why = f"cannot be reached on the Dask cluster: {type(error).__name__}: {error}"
            raise ProcessDied(why) from None

    def _look(self) -> None:
        """Find out whether the process is lost."""
        status = self._future.status
        if status in FAILED:
            cause = self._future.exception(timeout=CHECK_S) if status == "error" else None
            raise ProcessDied(f"failed on the Dask cluster: {cause or status}")
        if self.is_placed and (silent_s := monotonic() - self._heard_at) > SILENT_S:
            raise ProcessDied(f"was lost: its Dask cluster has been silent for {silent_s:.0f} s")

    def _hear(self) -> None:
        """Receive messages, and tell the cluster now and then that the attempt is wanted."""
        pinged_at = monotonic()
        try:
            while not self._over.is_set():
                with suppress(TimeoutError):
                    message = self._up.get(timeout=PING_S)
                    own = (PLACED, ALIVE, OVER)
                    self._inbox.put(message if message in own else pickle.loads(message))
                if monotonic() - pinged_at >= PING_S:
                    pinged_at = monotonic()
                    self._put(ALIVE)
        except Exception as error:  # noqa: BLE001 - a closed client, a new scheduler without queues
            why = f"was lost: the Dask scheduler is gone: {type(error).__name__}: {error}"
            self._inbox.put(ProcessDied(why))
        try:
            self._future.release()
            self._up.close()
            self._down.close()
        except Exception as error:  # noqa: BLE001 - what Dask raises is not declared
            logger.info("the queues of a handler on the Dask cluster cannot be closed: %s", error)


def _connect(address: str) -> Client:
    """Return the client of this process. A fork, and a new address, gets a new client."""
    key = address, os.getpid()
    with _connecting:
        if key not in _clients or _clients[key].status == "closed":
            _clients[key] = Client(
                address, name=f"rota-{key[1]}", timeout=CONNECT_S, set_as_default=False
            )
        return _clients[key]


_connecting = threading.Lock()
_clients: dict[tuple[str, int], Client] = {}


# In a worker of the cluster


def serve(name: str, setup: messages.Setup, memory_bytes_max: int | None) -> None:
    """Run a handler's process on this host, until it ends or Rota's worker no longer wants it."""
    client = get_client()
    up, down = (Queue(f"{name}-{way}", client=client) for way in ("up", "down"))
    up.put(PLACED)
    setup = replace(setup, silent_s=ALONE_S)
    environment = {"ROTA_DATABASE_URL": setup.url, "ROTA_SCHEMA": setup.schema}
    child = HandlerChild(setup, memory_bytes_max, environment)
    over = threading.Event()
    threading.Thread(target=_pass_down, args=(down, child, over), daemon=True).start()
    try:
        _pass_up(up, child, over)
    finally:
        over.set()
        child.end()
        up.put(OVER)
        for each in (up, down):  # the scheduler forgets a queue when both sides have closed it
            each.close()


def _pass_down(down: Queue, child: HandlerChild, over: threading.Event) -> None:
    try:
        # Silence, or no scheduler: Rota's worker is gone.
        with suppress(TimeoutError, OSError):
            while not over.is_set() and (message := down.get(timeout=SILENT_S)) != END:
                child.send(messages.Alive() if message == ALIVE else pickle.loads(message))
    finally:
        over.set()
        child.kill()


def _pass_up(up: Queue, child: HandlerChild, over: threading.Event) -> None:
    told_up, told_at = False, monotonic()
    message: Any = None
    while not over.is_set() and not isinstance(message, messages.Ended | Exception):
        try:
            message = child.receive(CHECK_S)
        except (ProcessDied, MemoryExceeded) as end:
            message = end
        if child.is_up and not told_up:
            told_up = True
            up.put(pickle.dumps(messages.Importing()))
        if message is not None or monotonic() - told_at >= PING_S:
            told_at = monotonic()
            up.put(ALIVE if message is None else pickle.dumps(message))
