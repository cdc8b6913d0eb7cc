"""What a page supposes, and what is true after it: functions of the reader, by the name of the
page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from tests.docs.reader import Reader

Follow = Callable[[Reader], None]

FOLLOWED: dict[str, Follow] = {}
NIGHTLY: set[str] = set()


def follows(*pages: str, is_nightly: bool = False) -> Callable[[Follow], Follow]:
    """Mark a function that follows these pages, or prepares the reader for them: what it leaves of
    the page is followed after it."""

    def keep(follow: Follow) -> Follow:
        for page in pages:
            assert page not in FOLLOWED, page
            FOLLOWED[page] = follow
            NIGHTLY.update([page] * is_nightly)
        return follow

    return keep


@contextmanager
def make_database(reader: Reader, template: str = "template1") -> Iterator[str]:
    """Make another database on the server of a reader; yield its name."""
    name = f"d_{uuid4().hex[:12]}"
    reader.ask(f"create database {name} template {template}")
    try:
        yield name
    finally:
        reader.ask(f"drop database {name} with (force)")
