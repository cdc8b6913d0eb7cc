"""A shop with jobs of every kind, and its dashboard, under a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import fastapi
import httpx
import pytest

import rota
from rota.dashboard import Access, Dashboard, dashboard
from rota.dashboard.serving import WebClient
from tests.support.asgi import serving_asgi

PREFIX = "/admin/jobs"
HOSTILE = '<script>alert("x")</script>\u202e&amp;\x1b[31m'
HERE = {"sec-fetch-site": "same-origin"}

Serve = Callable[..., "Site"]


@dataclass
class Site:
    """A dashboard that is served, and a client of it."""

    client: httpx.Client
    url: str

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(self.url + path, **options)

    def post(self, path: str, **fields: Any) -> httpx.Response:
        return self.client.post(self.url + path, data=fields, headers=HERE)


@pytest.fixture
def app(database: str) -> Iterator[rota.App]:
    app = rota.App(database, release="shop-1")

    @app.job(max_attempts=1, unique=lambda user_id: f"user:{user_id}")
    def greet(user_id: int, name: str) -> str:
        if name == "dies":
            raise ValueError(f"cannot greet {HOSTILE}")
        return name

    app.schedule("nightly", "0 2 * * *", greet.new(0, "nightly"))
    app.sync()
    yield app
    app.close()


@pytest.fixture
def serve(app: rota.App) -> Iterator[Serve]:
    """Opens a dashboard of the App, called as a WSGI server does, or behind a server of ASGI:
    `serve("asgi", authorize=…)`."""
    with ExitStack() as stack:

        def serve(gateway: str = "wsgi", **options: Any) -> Site:
            options.setdefault("authorize", lambda scope: Access("ann"))
            made = dashboard(app, **options)
            transport, url = None, "http://127.0.0.1:8000"
            if gateway == "wsgi":
                transport = httpx.WSGITransport(app=_mount(made))
            else:
                url = stack.enter_context(_run_asgi(made))
            client = stack.enter_context(httpx.Client(transport=transport, timeout=20))
            return Site(client, url + PREFIX)

        yield serve


@contextmanager
def _run_asgi(made: Dashboard) -> Iterator[str]:
    api = fastapi.FastAPI()
    api.mount(PREFIX, made.asgi)
    with serving_asgi(api, http=WebClient) as port:
        yield f"http://127.0.0.1:{port}"


def _mount(made: Dashboard) -> Any:
    def mounted(environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        assert path.startswith(PREFIX), path
        return made.wsgi(
            environ | {"SCRIPT_NAME": PREFIX, "PATH_INFO": path.removeprefix(PREFIX)},
            start_response,
        )

    return mounted
