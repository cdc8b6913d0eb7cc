"""A process that runs handlers, seen from its worker."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from types import MappingProxyType
from typing import Any

from rota.declare.program import describe_exit
from rota.errors import MemoryExceeded, ProcessDied
from rota.runtime.child_process import ChildProcess
from rota.runtime.procfs import GroupMemory
from rota.worker.processes import messages

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rota.worker.processes.handler_process import main; main(int(sys.argv[2]))"
)
MEMORY_CHECK_S = 0.5
_memory = GroupMemory()


class HandlerChild(ChildProcess):
    """Runs the handlers of one job type, one job after another. It dies with the worker, and so do
    its own children. The thread of the current attempt sets all fields."""

    def __init__(
        self,
        setup: messages.Setup,
        memory_bytes_max: int | None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        # What a handler prints must not mix with the worker's output.
        arguments = ["-c", _BOOT, json.dumps(sys.path)]
        super().__init__(
            arguments, stdout=sys.__stderr__, dies_with_parent=True, environment=environment
        )
        self.is_up = False
        """Whether its interpreter is up: from then on only the application can fail."""
        self.is_ready = False
        self.jobs = 0
        self._memory_bytes_max = memory_bytes_max
        self._memory_check_at = 0.0
        self.send(setup)

    def send(self, message: messages.ToProcess) -> None:
        """Send a message. If the process has ended, `receive` says so after its last messages."""
        with suppress(EOFError):
            self.channel.send(message)

    def receive(self, timeout_s: float) -> Any:
        """Return its next message; None: none arrives in time. Raises ProcessDied if it has ended
        and all messages were received, MemoryExceeded if it must be killed."""
        self._check_memory()
        # Read before the channel: a copy that the handler forked may keep the channel open.
        has_exited = self.has_exited
        message: Any = None
        try:
            message = self.channel.receive(timeout_s)
        except EOFError:
            self.wait_for_exit()  # a kill now would hide its exit status
            has_exited = True
        if message is None and has_exited:
            raise ProcessDied(describe_exit(self.end()))
        if isinstance(message, messages.Importing):
            self.is_up = True
            return self.receive(timeout_s)
        return message

    def _check_memory(self) -> None:
        most, now = self._memory_bytes_max, monotonic()
        if most is not None and now >= self._memory_check_at:
            self._memory_check_at = now + MEMORY_CHECK_S
            used_bytes = _memory.resident_bytes(self.pid)
            if used_bytes > most:
                raise MemoryExceeded(most, used_bytes)
