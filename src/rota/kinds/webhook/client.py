"""Sends a request once, to a checked address, bounded in time and size."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import rota
from rota import logs
from rota.kinds.webhook.address import AddressRefused, resolve

if TYPE_CHECKING:
    import httpx2

TOTAL_S = 10.0
"""Longest time of a request: look-up of the name, connection and reading of the response."""
CONNECT_S = 3.0
"""Longest time for the connection to one address."""
BODY_BYTES_MAX = 16 * 1024
ADDRESSES_MAX = 3
"""Most addresses of a host that are tried in turn."""
HOSTS_MAX = 100
"""Most hosts with kept connections."""
_EXCERPT = 300
"""Most characters of a response that are kept."""


class Reply(NamedTuple):
    """What an endpoint responded."""

    code: int
    headers: Mapping[str, str]
    seconds: float
    excerpt: str
    """The beginning of the body, on one line, without what looks like a secret."""


class NotDelivered(Exception):
    """The endpoint did not take the event. `status_code` is None without a response."""

    def __init__(self, text: str, said: str = "", reply: Reply | None = None) -> None:
        super().__init__(text + said)
        self.endpoint_reason = text
        """The reason without the endpoint's words, which may be personal: `rota erase` does not
        look where this is kept."""
        self.status_code = None if reply is None else reply.code
        self.headers = {} if reply is None else reply.headers


class NoConnection(NotDelivered, ConnectionError):
    """No connection, or the connection ended before a response."""


class NoResponse(NotDelivered, TimeoutError):
    """No response in time."""


class WebhookClient(Protocol):
    """Sends one request. A client for another library needs these few lines, and the same care."""

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool
    ) -> Reply:
        """Send the request, follow no redirect, and return the response, whatever its code.

        Raises:
                    NotDelivered: there is no response.
                    AddressRefused: the host is in a private network, or the URL is not valid.
        """

    async def aclose(self) -> None:
        """Close what is open on the running loop."""


@dataclass(slots=True)
class _Host:
    """The connections to one host. Another name at the same address never shares them: nobody has
    checked its certificate."""

    transport: httpx2.AsyncHTTPTransport
    busy: int = 0


class HttpClient:
    """Requests by `httpx2`: no redirects, no cookies, no proxies of the environment."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Args:
            tls: whose certificates are trusted. Defaults to what the system trusts.

        Raises:
            ConfigurationError: the extra is missing.
        """
        try:
            import httpx2  # noqa: PLC0415 - who only verifies needs no client
        except ModuleNotFoundError:
            raise rota.errors.ConfigurationError(
                "webhooks need a client: pip install 'rota[webhook]'"
            ) from None
        self._http = httpx2
        self._tls = tls or httpx2.create_ssl_context(trust_env=False)
        self._hosts: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Host]] = (
            WeakKeyDictionary()
        )

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool
    ) -> Reply:
        """Send the request to an allowed address of the host."""
        began = time.monotonic()
        response: httpx2.Response | None = None
        read = bytearray()
        try:
            asked = self._http.URL(url)
            name = asked.raw_host.decode("ascii").strip("[]").rstrip(".")
            name.encode("idna")
        except (self._http.InvalidURL, ValueError) as error:
            raise AddressRefused(f"the URL of the endpoint cannot be one: {error}") from None
        try:
            async with asyncio.timeout(TOTAL_S):
                addresses = await self._resolve(asked, allow_private=allow_private)
                async with (
                    self._take(asked.netloc.decode()) as kept,
                    self._make_transport() as new,
                ):
                    response = await self._connect(kept, new, asked, addresses, body, headers)
                    try:
                        await _read(response, read)
                    finally:
                        await response.aclose()
        except TimeoutError:
            if response is None:
                raise NoResponse(f"{asked.host} did not respond within {TOTAL_S:.0f} s") from None
        except self._http.TransportError as error:
            if response is None:
                what = f"{asked.host}: {type(error).__name__}"
                raise NoConnection(what, f": {error}"[:_EXCERPT]) from error
        # A response with a code counts, even if its body fails.
        seconds = round(time.monotonic() - began, 3)
        return Reply(response.status_code, response.headers, seconds, _excerpt(response, read))

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        for host in self._hosts.pop(asyncio.get_running_loop(), {}).values():
            await host.transport.aclose()

    async def _resolve(self, url: httpx2.URL, *, allow_private: bool) -> list[str]:
        host, port = url.raw_host.decode(), url.port or (443 if url.scheme == "https" else 80)
        try:
            return await resolve(host, port, allow_private=allow_private)
        except TimeoutError:
            raise NoResponse(f"the name {host} was not resolved in time") from None
        except OSError as error:
            raise NoConnection(f"{host} has no address: {error}"[:_EXCERPT]) from error

    async def _connect(
        self,
        kept: httpx2.AsyncHTTPTransport,
        new: httpx2.AsyncHTTPTransport,
        url: httpx2.URL,
        addresses: list[str],
        body: bytes,
        headers: Mapping[str, str],
    ) -> httpx2.Response:
        """Send the request to the first address that connects. A kept connection may have ended:
        then send it once more on a new connection."""
        is_new = False

        async def trace(event: str, _: object) -> None:
            nonlocal is_new
            is_new = is_new or event.startswith("connection.connect_tcp")

        for place, address in enumerate(addresses[:ADDRESSES_MAX], 1):
            request = self._http.Request(
                "POST",
                url.copy_with(host=address),
                headers={**headers, "host": url.netloc.decode(), "accept-encoding": "identity"},
                content=body,
                extensions={
                    "sni_hostname": url.raw_host.decode().strip("[]").rstrip("."),
                    "timeout": self._http.Timeout(TOTAL_S, connect=CONNECT_S).as_dict(),
                    "trace": trace,
                },
            )
            try:
                try:
                    return await kept.handle_async_request(request)
                except (self._http.NetworkError, self._http.RemoteProtocolError):
                    if is_new:
                        raise
                    return await new.handle_async_request(request)
            except (self._http.ConnectError, self._http.ConnectTimeout):
                if place == min(len(addresses), ADDRESSES_MAX):
                    raise
        raise NoConnection(f"{url.host} has no address")

    def _make_transport(self) -> httpx2.AsyncHTTPTransport:
        limits = self._http.Limits(max_connections=None, keepalive_expiry=20.0)
        return self._http.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=limits)

    @contextlib.asynccontextmanager
    async def _take(self, netloc: str) -> AsyncIterator[httpx2.AsyncHTTPTransport]:
        """Lend the connections to a host. Beyond HOSTS_MAX, close those that were idle longest."""
        hosts = self._hosts.setdefault(asyncio.get_running_loop(), {})
        host = hosts.pop(netloc, None) or _Host(self._make_transport())
        hosts[netloc] = host
        host.busy += 1
        try:
            yield host.transport
        finally:
            host.busy -= 1
            idle = [name for name, one in hosts.items() if not one.busy]
            surplus = [hosts.pop(name) for name in idle[: max(0, len(hosts) - HOSTS_MAX)]]
            for one in surplus:  # nobody finds them any more
                with contextlib.suppress(self._http.TransportError):
                    await one.transport.aclose()


async def _read(response: httpx2.Response, into: bytearray) -> None:
    """Read up to 16 kB of the body, as it comes."""
    async for part in response.aiter_raw():
        into += part[: BODY_BYTES_MAX - len(into)]
        if len(into) >= BODY_BYTES_MAX:
            return


def _excerpt(response: httpx2.Response, body: bytearray) -> str:
    coding = response.headers.get("content-encoding", "identity")
    if coding != "identity":
        return f"({len(body)} bytes of {coding})"[:_EXCERPT]
    text = "".join(char if char.isprintable() else " " for char in body.decode("utf-8", "replace"))
    return logs.scrub(" ".join(text.split()))[:_EXCERPT]
