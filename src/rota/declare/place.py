"""The place of a declaration, and whether it ran before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class CodePlace(NamedTuple):
    file: str
    line: int
    module: str
    spec: object
    """The import spec of its module; a reload makes a new spec."""

    @classmethod
    def of(cls, code: Any, line: int, names: Mapping[str, Any]) -> CodePlace:
        """Return the place of a line of code in a module with these global names."""
        return cls(code.co_filename, line, str(names.get("__name__")), names.get("__spec__"))

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def is_again(self, before: CodePlace) -> bool:
        """Whether this is the declaration `before`, run once more: in a reloaded module, or by a
        notebook's cell, which is a new file each time. Two lines of one file are two
        declarations."""
        return self.module == before.module and (
            self.file != before.file or self.line == before.line or self.spec is not before.spec
        )
