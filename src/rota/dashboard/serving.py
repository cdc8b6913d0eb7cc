"""The dashboard on a server of its own, for `rota web`."""

from __future__ import annotations

import asyncio
import base64
import hmac
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rota.client.base import check_by
from rota.dashboard.access import VERBS, Access
from rota.dashboard.request import Request, Response
from rota.dashboard.site import Dashboard, dashboard

if TYPE_CHECKING:
    from rota.app import App

NAME_MAX = 100
CLIENTS_MAX = 100
LEAVE_S = 3
"""Seconds that requests may keep a server that was told to stop."""


def serve(app: App, host: str, port: int, token: str | None, *, read_only: bool) -> None:
    """Serve until a signal. `token` is the password to act, also from elsewhere; None: people on
    this machine may look. With `read_only` nobody may act."""
    made = dashboard(app)
    if token is not None:
        made = _Login(app, token, frozenset() if read_only else VERBS)
    threading.Thread(target=made.warm, daemon=True).start()
    uvicorn.run(
        made.asgi,
        host=host,
        port=port,
        http=WebClient,
        ws="none",
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=LEAVE_S,
    )


class WebClient(H11Protocol):
    """A connection of a client. At CLIENTS_MAX the oldest is closed: slow clients keep out none."""

    _numbers = count()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        others = [
            client
            for client in self.connections
            if isinstance(client, WebClient) and not client.transport.is_closing()
        ]
        if len(others) >= CLIENTS_MAX:
            min(others, key=lambda client: client.number).transport.abort()
        self.number = next(self._numbers)
        super().connection_made(transport)


class _Login(Dashboard):
    def __init__(self, app: App, token: str, verbs: frozenset[str]) -> None:
        super().__init__(app, self._check)
        self._token, self._verbs = token, verbs

    def _refuse(self, request: Request) -> Response:
        challenge = ("WWW-Authenticate", 'Basic realm="Rota", charset="UTF-8"')
        return Response(401, headers=(challenge,))

    def _check(self, scope: Any) -> Access | None:
        kind, _, text = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        try:
            name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
        except ValueError:
            return None
        if kind.lower() != b"basic" or not hmac.compare_digest(
            password.encode(), self._token.encode()
        ):
            return None
        return Access(check_by(" ".join(name.split())[:NAME_MAX] or "somebody"), self._verbs)
