"""The rules of Rota, and the marker that names the rules a test holds."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

RULES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def rule(*numbers: str) -> pytest.MarkDecorator:
    """Mark a test as one that would fail without these rules: `@rule("M30", "M32")`."""
    unknown = [number for number in numbers if number not in RULES]
    if unknown or not numbers:
        raise ValueError(f"no rules: {unknown or 'nothing'}; tests/support/rules.toml lists them")
    return pytest.mark.rule(*numbers)
