"""Decides where a request may go: to public addresses, never into a private network."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from concurrent.futures import Future
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address

_LOOKUP_S = 10.0
_EVERYBODY = ip_network("2000::/3")
"""The part of IPv6 that is allocated at all."""
_REFUSED = tuple(
    map(
        ip_network,
        (
            "192.0.0.0/24",  # special purposes, some of which Python calls global
            "192.88.99.0/24",  # relays of 6to4
            "100.64.0.0/10",  # behind a provider's NAT; Alibaba's metadata
            "168.63.129.16/32",  # Azure's host: a public address that is not public
            "2001::/23",  # Teredo, and others of special purposes
            "2002::/16",  # 6to4: an IPv4 address, whichever it is
            "3fff::/20",  # of documents
        ),
    )
)
"""Networks that `is_global` accepts in some or all releases of Python."""


class AddressRefused(Exception):
    """The host of an endpoint is in a private network, or the URL is not valid. The job is dead:
    another attempt would go there too."""


def is_public(address: Address) -> bool:
    """Whether an address is public, so that a request to it reveals nothing of a private
    network."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address not in _EVERYBODY:
            return False
    return (
        address.is_global
        and not address.is_multicast
        and not any(address in net for net in _REFUSED if net.version == address.version)
    )


async def resolve(host: str, port: int, *, allow_private: bool = False) -> list[str]:
    """Return the addresses of a host to connect to. Nobody must resolve the name again: it may have
    another address then.

    Raises:
            AddressRefused: an address is not public.
            TimeoutError: the resolver does not respond.
            OSError: the name is unknown.
    """
    addresses = await _look_up(host, port)
    if not allow_private:
        for text in addresses:
            # A zone, as in fe80::1%eth0, is only part of private addresses.
            if not is_public(ip_address(text.partition("%")[0])):
                where = host if host == text else f"{host} ({text})"
                raise AddressRefused(
                    f"{where} is in a private or special network; allow_private=True "
                    "(--allow-private) permits that for an endpoint"
                )
    return addresses


async def _look_up(host: str, port: int) -> list[str]:
    """Look a name up in its own thread: one silent resolver would hold all threads of the loop."""
    with contextlib.suppress(ValueError):
        return [str(ip_address(host))]
    found: Future[list[str]] = Future()
    found.set_running_or_notify_cancel()  # whoever gives up does not disturb the thread

    def ask() -> None:
        kind, protocol = socket.SOCK_STREAM, socket.IPPROTO_TCP
        try:
            answers = socket.getaddrinfo(host, port, type=kind, proto=protocol)
            found.set_result(list(dict.fromkeys(str(answer[4][0]) for answer in answers)))
        except OSError as error:
            found.set_exception(error)
        except UnicodeError as error:
            found.set_exception(OSError(str(error)))

    threading.Thread(target=ask, daemon=True).start()
    async with asyncio.timeout(_LOOKUP_S):
        return await asyncio.wrap_future(found)
