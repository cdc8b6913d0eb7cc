"""The keys of sealed values: which are in use, and how all is sealed under the first one again."""

from __future__ import annotations

import json
import re
from collections import Counter

from rota.declare.secret import find_keys_problem, read_keys, seal_anew
from rota.errors import ConfigurationError, SecretKeyMissing
from rota.model.record import Record
from rota.store import ops
from rota.store.driver import Operation

PORTION = 1_000
"""Rows of a portion: each is read and written in a transaction of its own."""
NAMED_MAX = 10
"""Rows that a rotation names."""
_ID, _TEXT = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}", r"[A-Za-z0-9+/]{38,}={0,2}"
_SEALED = re.compile(rf'{{"key": "({_ID})", "sealed": "({_TEXT})"}}')
"""A sealed value anywhere in a document, as PostgreSQL writes jsonb."""


class KeyUse(Record, frozen=True):
    """A key of secrets, and what is sealed under it."""

    key: str
    """The id of the key."""
    seals: bool
    """Whether this environment seals with it: it is the first."""
    here: bool
    """Whether this environment can open what is sealed under it: it has the key, and the package
    cryptography."""
    jobs: int
    """Rows of unfinished and dead jobs, …"""
    history: int
    """… of finished jobs, …"""
    schedules: int
    """… of schedules, …"""
    batches: int
    """… of batches with a job that follows them, …"""
    packages: int
    """… and of the tables of packages, such as webhook endpoints."""


class Rotated(Record, frozen=True):
    """What a rotation did."""

    key: str
    """The key under which all is sealed now that this process could open."""
    written: int
    """Rows that were sealed anew."""
    left: dict[str, int]
    """Rows that are still sealed under other keys, by their ids."""
    unused: list[str]
    """Keys of this environment under which nothing is sealed any more."""
    missing: list[str]
    """Keys under which rows are still sealed, and which this environment lacks."""
    unopened: int
    """Rows with a value that cannot be opened although its key is here: it was changed, or is
    sealed under another key of this id. All else was sealed anew."""
    unopened_rows: list[str]
    """At most 10 of them: the place, and the id or name."""


def list_keys() -> Operation[list[KeyUse]]:
    """List the keys that are in use or in this environment. It reads every job, also of history."""
    used = yield from _count_all()
    keys = list(read_keys())
    usable = keys if find_keys_problem() is None else []
    order = [*keys, *sorted({key for some in used.values() for key in some} - {*keys})]
    return [
        KeyUse(key, key in usable[:1], key in usable, *(some[key] for some in used.values()))
        for key in order
    ]


def rotate() -> Operation[Rotated]:
    """Seal all values again that are not sealed under the first key, in portions that are committed
    one by one: run again, it goes on. What cannot be opened is left as it is, and counted.

    Raises:
        ConfigurationError: there is no key, or the package cryptography is missing.
    """
    keys = list(read_keys())
    if not keys:
        raise ConfigurationError("ROTA_SECRET_KEYS is not set: there is no key to seal with")
    written, unopened = 0, list[str]()
    for place in ops.SEALED_PLACES:
        after = 0
        while rows := (yield from ops.read_sealed(place, after, PORTION)):
            after = rows[-1].at
            changes = list[tuple[str, str, str]]()
            for row in rows:
                new, is_whole = _reseal(row.document or "", keys)
                unopened += [] if is_whole else [f"{place} {row.ref}"]
                if row.document is not None and new != row.document:
                    changes.append((row.ref, row.document, new))
            if changes:
                written += yield from ops.write_sealed(place, changes)
    used: Counter[str] = sum((yield from _count_all()).values(), Counter())
    left = {key: count for key, count in used.items() if key != keys[0]}
    return Rotated(
        keys[0],
        written,
        left,
        unused=[key for key in keys[1:] if key not in used],
        missing=[key for key in left if key not in keys],
        unopened=len(unopened),
        unopened_rows=unopened[:NAMED_MAX],
    )


def _count_all() -> Operation[dict[str, Counter[str]]]:
    """Return how many rows of each place are sealed under each key."""
    counts = {place: Counter[str]() for place in ops.SEALED_PLACES}
    for place, counted in counts.items():
        after = 0
        while rows := (yield from ops.read_sealed(place, after, PORTION)):
            after = rows[-1].at
            for row in rows:
                counted.update({key for key, _ in _SEALED.findall(row.document or "")})
    return counts


def _reseal(document: str, keys: list[str]) -> tuple[str, bool]:
    """Return a document in which what can be opened is sealed under the first of these keys, and
    whether all could be opened whose key is here. All else in it stays as it is."""
    is_whole = True

    def again(found: re.Match[str]) -> str:
        nonlocal is_whole
        if found[1] == keys[0]:
            return found[0]
        try:
            return json.dumps(seal_anew({"key": found[1], "sealed": found[2]}))
        except SecretKeyMissing:
            is_whole = is_whole and found[1] not in keys
            return found[0]

    return _SEALED.sub(again, document), is_whole
