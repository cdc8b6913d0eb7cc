"""Sizes of memory, as people write them."""

from __future__ import annotations

import re

from rota.errors import UsageError

Size = str
"""Such as "512MiB": a number and one of KiB, MiB, GiB."""

_UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_FORM = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(KiB|MiB|GiB)", re.ASCII)


def size_bytes(value: object, *, name: str, least: int = 0) -> int:
    """Return a size in bytes. Raises UsageError, which names the option `name`."""
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise UsageError(f'{name} must be a size such as "512MiB" or "2GiB", not {value!r}')
    size = int(float(found[1]) * _UNITS[found[2]])
    if size < least:
        raise UsageError(f"{name} must be at least {least // 1024**2} MiB, not {value!r}")
    return size
