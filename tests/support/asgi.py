"""An ASGI application behind a real server, on a port of the loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def serving_asgi(application: Any, **options: Any) -> Iterator[int]:
    """Serve it by uvicorn, in a thread of its own, for a block; yield the port."""
    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", **options)
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    listening.listen()  # a client that comes before the server waits for it
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
