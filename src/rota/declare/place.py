"""Where a declaration is written, and whether it is one that ran before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class CodePlace(NamedTuple):
    """Where a declaration is written."""

    file: str
    line: int
    module: str
    spec: object
    """What its module was loaded by; a reload makes a new one."""

    @classmethod
    def of(cls, code: Any, line: int, names: Mapping[str, Any]) -> CodePlace:
        """Return a line of this code, whose module has these global names."""
        return cls(code.co_filename, line, str(names.get("__name__")), names.get("__spec__"))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def is_again(self, before: CodePlace) -> bool:
        """Whether this is the declaration of the place `before`, run once more: by a notebook's
        cell, which is a file of its own each time, or in a module that was reloaded. Two lines of
        one file are two declarations."""
        return self.module == before.module and (
            self.file != before.file or self.line == before.line or self.spec is not before.spec
        )
