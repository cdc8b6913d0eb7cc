"""The keys of sealed values: the keys in use, and the rotation to a new first key."""

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
"""Rows that one transaction reads and writes."""
NAMED_MAX = 10
"""Most rows that a rotation names."""
_ID, _TEXT = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}", r"[A-Za-z0-9+/]{38,}={0,2}"
_SEALED = re.compile(rf'{{"key": "({_ID})", "sealed": "({_TEXT})"}}')
"""A sealed value anywhere in a document, as PostgreSQL writes jsonb."""


class KeyUse(Record, frozen=True):
    """A key of secrets, and what is sealed under it."""

    key: str
    """The id."""
    seals: bool
    """Whether the key seals here: it is this environment's first."""
    here: bool
    """Whether the values can be opened here, with the key and the package cryptography."""
    jobs: int
    """Rows of unfinished and dead jobs that are sealed under the key."""
    history: int
    """Rows of finished jobs that are sealed under the key."""
    schedules: int
    """Rows of schedules that are sealed under the key."""
    batches: int
    """Rows of batches with a `then` that are sealed under the key."""
    packages: int
    """Rows in tables of packages that are sealed under the key, such as webhook endpoints."""


class Rotated(Record, frozen=True):
    """The result of a rotation."""

    key: str
    """The key under which all values are sealed that this process could open."""
    written: int
    """Rows that were sealed anew."""
    left: dict[str, int]
    """Rows that are still sealed under other keys, by the key's id."""
    unused: list[str]
    """Keys of this environment under which nothing is sealed any more."""
    missing: list[str]
    """Keys that this environment lacks, and that still seal rows."""
    unopened: int
    """Rows with a value that its key does not open: changed, or sealed under another key of this
    id. Their other values are sealed anew."""
    unopened_rows: list[str]
    """At most 10 of `unopened`: the place, and the id or name."""


def list_keys() -> Operation[list[KeyUse]]:
    """List the keys that are in use or in this environment. Reads every job, also of history."""
    used = yield from _count_all()
    keys = list(read_keys())
    usable = keys if find_keys_problem() is None else []
    order = [*keys, *sorted({key for some in used.values() for key in some} - {*keys})]
    return [
        KeyUse(key, key in usable[:1], key in usable, *(some[key] for some in used.values()))
        for key in order
    ]


def rotate() -> Operation[Rotated]:
    """Seal all values under the first key, in portions that are committed one by one: a second run
    continues. A value that cannot be opened is counted, and stays. Raises ConfigurationError
    without a key, or without the package cryptography."""
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
    """Return the number of sealed rows by place and key."""
    counts = {place: Counter[str]() for place in ops.SEALED_PLACES}
    for place, counted in counts.items():
        after = 0
        while rows := (yield from ops.read_sealed(place, after, PORTION)):
            after = rows[-1].at
            for row in rows:
                counted.update({key for key, _ in _SEALED.findall(row.document or "")})
    return counts


def _reseal(document: str, keys: list[str]) -> tuple[str, bool]:
    """Return a document sealed anew, and whether each value with a known key could be opened."""
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
