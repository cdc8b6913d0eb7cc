"""Where a webhook may go: no notation, and no answer of a resolver, leads into our own network."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from rota.kinds import webhook
from rota.kinds.webhook import client as clients
from rota.kinds.webhook.address import is_public, resolve
from tests.kinds.conftest import make_certificate
from tests.support.receiver import receiving
from tests.support.rules import rule

PRIVATE = """
    127.0.0.1 127.1.2.3 0.0.0.0 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254
    169.254.0.1 100.64.0.1 100.100.100.200 192.0.0.192 192.0.0.9 192.0.2.1 198.18.0.1
    198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 192.88.99.1
    168.63.129.16 ::1 :: ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1
    fe80::1 fc00::1 fd00:ec2::254 ff02::1 2001:db8::1 2001::1 2002:7f00:1:: 64:ff9b::7f00:1
    64:ff9b:1::1 fec0::1 100::1 ::ffff:0:127.0.0.1 5f00::1 3fff::1 100:0:0:1::1 1::1
    4000::1 e000::1
"""
PUBLIC = """
    1.1.1.1 8.8.8.8 93.184.215.14 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8
"""
LOCAL = """
    127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 017700000001 localhost
    LOCALHOST 0 0.0.0.0 [::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:0:0:1]
"""
"""This machine, in notations that a resolver takes."""


@rule("M71")
def test_an_address_that_is_not_everybodys_is_not_public() -> None:
    assert [address for address in PRIVATE.split() if is_public(ip_address(address))] == []
    assert [address for address in PUBLIC.split() if not is_public(ip_address(address))] == []


@rule("M71")
def test_no_notation_of_this_machine_is_reached() -> None:
    with receiving() as receiver:
        for host in LOCAL.split():
            sending = post(f"http://{host}:{receiver.port}/", allow_private=False)
            with pytest.raises((webhook.AddressRefused, webhook.NoConnection)):
                asyncio.run(sending)
        assert receiver.requests == []


@rule("M71")
def test_a_host_of_ours_is_reached_if_that_is_allowed() -> None:
    with receiving() as receiver:
        answer = asyncio.run(post(receiver.url("/"), allow_private=True))
        assert (answer.code, answer.excerpt) == (200, "thanks")


@rule("M71")
def test_a_name_is_resolved_once_and_each_of_its_answers_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rebinding: the name is public when it is checked, and ours when it is asked again."""
    answers = [["198.18.0.1", "93.184.215.14"], ["93.184.215.14", "127.0.0.1"]]
    with receiving() as receiver:
        for found in answers:
            asked = patch_resolver(monkeypatch, found)
            with pytest.raises(
                webhook.AddressRefused, match=r"hooks\.example \([\d.]+\) is in a private"
            ):
                asyncio.run(post(f"http://hooks.example:{receiver.port}/", allow_private=False))
            assert asked == ["hooks.example"]
        assert receiver.requests == []


@rule("M71")
def test_the_request_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.kinds.webhook.address.is_public", lambda address: True)
    asked = patch_resolver(monkeypatch, ["127.0.0.1"])
    with receiving() as receiver:
        asyncio.run(post(f"http://hooks.example:{receiver.port}/", allow_private=False))
        assert asked == ["hooks.example"]
        assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"


@rule("M71")
def test_the_certificate_is_checked_for_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    patch_resolver(monkeypatch, ["127.0.0.1"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = make_certificate(tmp_path, "hooks.example", of="DNS")
    server.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=f"{certificate}.cert")
    with receiving(server) as receiver:
        client = webhook.HttpClient(trusting)
        for host in ("hooks.example", "other.example", "127.0.0.1"):
            sending = post(f"https://{host}:{receiver.port}/", client, allow_private=True)
            if host == "hooks.example":
                assert asyncio.run(sending).code == 200
            else:
                with pytest.raises(webhook.NoConnection, match="CERTIFICATE_VERIFY_FAILED"):
                    asyncio.run(sending)
        with pytest.raises(webhook.NoConnection, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(post(f"https://hooks.example:{receiver.port}/", allow_private=True))
        assert len(receiver.requests) == 1


def test_connections_to_a_host_are_kept_and_not_shared_with_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch_resolver(monkeypatch, ["127.0.0.1"])

    async def send() -> None:
        for host in ("a.example", "a.example", "b.example"):
            await client.post(f"http://{host}:{receiver.port}/", b"", {}, allow_private=True)
        await client.aclose()

    with receiving() as receiver:
        client = webhook.HttpClient()
        asyncio.run(send())
        assert receiver.connections == 2


def test_the_next_address_is_tried_also_after_one_of_the_sixth_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for nobody_listens in ("::1", "127.0.0.2"):
        patch_resolver(monkeypatch, [nobody_listens, "127.0.0.1"])
        with receiving() as receiver:
            sending = post(f"http://a.example:{receiver.port}/", allow_private=True)
            assert asyncio.run(sending).code == 200
            assert receiver.requests[0].headers["host"] == f"a.example:{receiver.port}"


def test_an_unknown_name_is_no_connection() -> None:
    with pytest.raises(webhook.NoConnection, match=r"nowhere\.invalid has no address"):
        asyncio.run(post("http://nowhere.invalid/", allow_private=False))


def test_the_environment_s_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver, receiving() as proxy:
        for name in ("http_proxy", "all_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        asyncio.run(post(receiver.url("/"), allow_private=True))
        assert (len(receiver.requests), proxy.requests) == (1, [])


def test_an_address_with_a_zone_is_judged_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_resolver(monkeypatch, ["fe80::1%lo"])
    with pytest.raises(webhook.AddressRefused):
        asyncio.run(resolve("a.example", 443))


async def post(
    url: str, client: webhook.HttpClient | None = None, *, allow_private: bool
) -> webhook.Reply:
    """Send one request, and close what it has opened."""
    client = client or webhook.HttpClient()
    try:
        return await client.post(url, b"{}", {}, allow_private=allow_private)
    finally:
        await client.aclose()


def patch_resolver(
    monkeypatch: pytest.MonkeyPatch, found: list[str], silent: threading.Event | None = None
) -> list[str]:
    """Reply what a DNS server would, for names: only of the test's own. Returns the list of names
    that are asked for."""
    real, asked = socket.getaddrinfo, list[str]()

    def getaddrinfo(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if not str(host).endswith(".example"):
            return real(host, port, *rest, **options)
        asked.append(host)
        if host.startswith("silent"):
            assert silent is not None
            silent.wait(30)
        kinds = {ip: socket.AF_INET6 if ":" in ip else socket.AF_INET for ip in found}
        return [(kind, socket.SOCK_STREAM, 6, "", (ip, port)) for ip, kind in kinds.items()]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


async def test_connections_to_many_hosts_are_closed_and_no_request_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patch_resolver(monkeypatch, ["127.0.0.1"])
    monkeypatch.setattr(clients, "HOSTS_MAX", 3)
    client = webhook.HttpClient()
    with receiving() as receiver:

        async def send(number: int) -> int:
            url = f"http://h{number}.example:{receiver.port}/"
            return (await client.post(url, b"", {}, allow_private=True)).code

        for _ in range(5):
            assert set(await asyncio.gather(*map(send, range(5)))) == {200}
            assert len(client._hosts[asyncio.get_running_loop()]) <= 5
        await client.aclose()


@rule("M71")
async def test_a_resolver_that_is_silent_holds_up_no_other_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = threading.Event()
    patch_resolver(monkeypatch, ["127.0.0.1"], silent=silent)
    monkeypatch.setattr(clients, "TOTAL_S", 5)
    client = webhook.HttpClient()
    with receiving() as receiver:
        stuck = [
            client.post("http://silent.example/", b"", {}, allow_private=True) for _ in range(9)
        ]
        waiting = [asyncio.ensure_future(call) for call in stuck]
        for host in ("a.example", "b.example", "127.0.0.1"):
            url = f"http://{host}:{receiver.port}/"
            assert (await client.post(url, b"", {}, allow_private=True)).code == 200
        for call in waiting:
            with pytest.raises(webhook.NoResponse, match=r"silent\.example did not respond"):
                await call
        silent.set()
        await client.aclose()


async def test_a_name_that_can_be_none_is_refused() -> None:
    client = webhook.HttpClient()
    for url in ("https://a..b/", f"https://{'x' * 64}.example/", "https://.x/"):
        with pytest.raises((webhook.AddressRefused, webhook.NoConnection)):
            await client.post(url, b"", {}, allow_private=False)
    await client.aclose()
