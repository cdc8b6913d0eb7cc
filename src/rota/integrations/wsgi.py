"""An HTTP endpoint that drains, for platforms whose only cron is a URL, as a WSGI application.

It needs no framework: Flask and Django mount it, or call `answer` in a view.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from rota.app import App
from rota.declare.config import SLOTS, Queues
from rota.errors import RotaError, UsageError
from rota.integrations.drain_request import (
    BUSY,
    DrainAnswer,
    DrainRequest,
    explain,
    report,
)
from rota.model.units import Duration
from rota.runtime.loop import is_in_loop, run_alone


def drain_endpoint(
    app: App,
    *,
    secret: str,
    max_time: Duration = "25s",
    grace: Duration = "5s",
    queues: Queues | None = None,
    concurrency: int = SLOTS,
    reserved: int | None = None,
) -> PlainDrainEndpoint:
    """Return a WSGI application that drains `app` on a request. It takes the arguments of
    `rota.integrations.asgi.drain_endpoint`; the server too must permit so long a request."""
    request = DrainRequest.check(secret, max_time, grace, queues, concurrency, reserved)
    return PlainDrainEndpoint(app, request)


class PlainDrainEndpoint:
    """What `drain_endpoint` returns. One drain at a time in this process, in the thread of its
    request, with its own event loop."""

    def __init__(self, app: App, request: DrainRequest) -> None:
        self._app = app
        self._request = request
        self._draining = threading.Lock()

    def __call__(
        self, request: Mapping[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer one WSGI request."""
        method = request["REQUEST_METHOD"]
        answer = self.answer(method, request.get("HTTP_AUTHORIZATION"))
        headers, body = answer.encode(method)
        phrase = HTTPStatus(answer.status).phrase
        start_response(f"{answer.status} {phrase}", list(headers.items()))
        return [body] if body else []

    def answer(self, method: str | None, authorization: str | None) -> DrainAnswer:
        """Drain, if the request may ask for it, and return the answer: `status`, `headers` and
        `body`, for a view of any framework.

        Args:
            method: of the request, as in "POST".
            authorization: its header of that name; None: it has none.

        Raises:
            UsageError: this is called in a running event loop, which the drain would block.
        """
        if is_in_loop():
            raise UsageError(
                "rota.integrations.wsgi drains in its thread, and an event loop runs here: "
                "use rota.integrations.asgi, or call it in a thread"
            )
        given = None if authorization is None else authorization.encode("latin-1", "replace")
        refusal = self._request.refuse(method, given)
        if refusal is not None:
            return refusal
        if not self._draining.acquire(blocking=False):
            return BUSY
        try:
            draining = self._app._drain_by_request(self._request.config)
            return report(run_alone("tick", draining, self._app.aclose))
        except RotaError as error:
            return explain(error)
        finally:
            self._draining.release()
