"""A process that runs handlers, as its worker knows it."""

from __future__ import annotations

import json
import sys
from typing import Any

from rota.errors import ProcessDied
from rota.runtime.child_process import ChildProcess, describe_exit
from rota.worker.processes import messages

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from rota.worker.processes.handler_process import main; main(int(sys.argv[2]))"
)


class HandlerChild(ChildProcess):
    """Runs the handlers of one job type, one job after another. It dies with the worker, and with
    it everything that it started.

    The thread that has it sets all fields.
    """

    def __init__(self, setup: messages.Setup) -> None:
        # What a handler prints is no output of the worker's.
        arguments = ["-c", _BOOT, json.dumps(sys.path)]
        super().__init__(arguments, stdout=sys.__stderr__, dies_with_parent=True)
        self.is_up = False
        """Whether its interpreter is up: what happens now is the application's doing."""
        self.is_ready = False
        """Whether it has imported its handler."""
        self.jobs = 0
        """How many it was given."""
        self.tell(setup)

    def tell(self, message: messages.Setup | messages.RunJob | messages.Stop) -> None:
        """Send a message. Raises ProcessDied when it has ended; but an order to stop raises
        nothing, because what it sent before it died is still to be heard."""
        if isinstance(message, messages.RunJob):
            self.jobs += 1
        try:
            self.channel.send(message)
        except EOFError:
            if not isinstance(message, messages.Stop):
                raise ProcessDied(describe_exit(self.end())) from None

    def hear(self, timeout_s: float) -> Any:
        """Return its next message, None if none arrives in time. Raises ProcessDied when it has
        ended and everything was heard."""
        # Asked before the channel: a copy that the handler forked may keep that open.
        has_exited = self.has_exited
        message: Any = None
        try:
            message = self.channel.receive(timeout_s)
        except EOFError:
            self.wait_for_exit()  # a kill now would hide the status with which it ends
            has_exited = True
        if message is None and has_exited:
            raise ProcessDied(describe_exit(self.end()))
        if isinstance(message, messages.Importing):
            self.is_up = True
            return self.hear(timeout_s)
        return message
