"""The dashboard on a server of its own, for `rota web`."""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING, Any

import uvicorn

from rota.client.base import check_by
from rota.dashboard.access import VERBS, Access
from rota.dashboard.site import dashboard

if TYPE_CHECKING:
    from rota.app import App

NAME_MAX = 100


def serve(app: App, host: str, port: int, token: str | None, *, read_only: bool) -> None:
    """Serve until a signal.

    Args:
        token: the password with which one may act, also from elsewhere; None: who comes from this
            machine may look.
        read_only: nobody may act.
    """
    if token is None:
        asgi: Any = dashboard(app).asgi
    else:
        asgi = _Login(app, token, frozenset() if read_only else VERBS)
    uvicorn.run(asgi, host=host, port=port, log_level="warning", lifespan="off")


class _Login:
    """An application of ASGI that asks for name and password."""

    def __init__(self, app: App, token: str, verbs: frozenset[str]) -> None:
        self._token, self._verbs = token, verbs
        self._asgi = dashboard(app, authorize=self._authorize).asgi

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or self._authorize(scope) is not None:
            await self._asgi(scope, receive, send)
            return
        headers = [(b"www-authenticate", b'Basic realm="Rota", charset="UTF-8"')]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _authorize(self, scope: Any) -> Access | None:
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
