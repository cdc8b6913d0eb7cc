"""The filters of jobs, as they stand in a URL or in a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.cli.jobs import read_moment, read_part

FILTERS = {
    "status": "Status", "job_type": "Type", "queue": "Queue", "key": "Key", "group_key": "Group",
    "payload": "Argument", "error_type": "Error class", "error": "Error contains",
    "since": "Since",
}  # fmt: skip
"""What a search and an action on many have in common, with their labels."""


def pick(given: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name in FILTERS if (text := given.get(name, "").strip())}


def parse(picked: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of filters. Raises UsageError."""
    values: dict[str, Any] = dict(picked)
    if "since" in picked:
        values["since"] = read_moment(picked["since"], FILTERS["since"])
    if "payload" in picked:
        values["payload"] = read_part([picked["payload"]], FILTERS["payload"])
    return values


def say(picked: Mapping[str, str]) -> str:
    return ", ".join(f"{FILTERS[name].lower()} {text}" for name, text in picked.items())
