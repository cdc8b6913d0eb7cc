"""Whose form it is, by the headers of browsers and of proxies."""

from __future__ import annotations

import pytest

from rota.dashboard.access import is_from_here
from tests.support.rules import rule


@rule("M87")
@pytest.mark.parametrize(
    ("origin", "own", "others"),
    [
        ("http://jobs.example", "jobs.example jobs.example:80", "jobs.example:81 jobs.example:x"),
        # What a proxy that ends TLS speaks itself is HTTP.
        ("https://jobs.example", "Jobs.example:443 jobs.example:80", "a.example evil.example:443"),
        ("http://jobs.example:81", "jobs.example:81", "jobs.example jobs.example:80"),
        ("http://[::1]", "[::1]:80", "[::2]:80 :80"),
        ("http://", "", ":80"),
        ("null", "", "null"),
    ],
)
def test_the_port_of_a_scheme_is_no_difference_between_origin_and_host(
    origin: str, own: str, others: str
) -> None:
    for host in own.split():
        assert is_from_here({"origin": origin, "host": host})
        assert not is_from_here({"origin": origin, "host": host, "sec-fetch-site": "cross-site"})
    for host in ("", *others.split()):
        assert not is_from_here({"origin": origin, "host": host})
