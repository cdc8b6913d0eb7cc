"""`rota mcp`: a server of tools for an agent, over stdin and stdout."""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec

from rota.cli.flags import option
from rota.cli.target import Place
from rota.errors import UsageError


class Allowed(StrEnum):
    """What an agent may do beyond reading."""

    ACT = "act"


def mcp(
    place: Place,
    allow: Allowed | None = option("--allow act", "Also offer the tools that act."),
    by: str | None = option("--by NAME", "Who acts, for the action log. Default: user@host."),
) -> None:
    """Serve tools for an agent on stdin and stdout, by the Model Context Protocol.

    Without --allow act the tools only read.
    """
    if find_spec("mcp") is None:
        raise UsageError("rota mcp needs the package mcp: pip install 'rota[mcp]'")
    for number in (signal.SIGINT, signal.SIGTERM):
        # The thread that reads stdin would keep the process until the next line.
        signal.signal(number, lambda number, _: os._exit(0 if number == signal.SIGINT else 143))
    # Imported by name: the package mcp is an extra, and takes a second to import.
    tools = import_module("rota.cli.mcp_tools")
    server = tools.make_server(tools.Tools(place, by), may_act=allow is Allowed.ACT)
    server.run()
