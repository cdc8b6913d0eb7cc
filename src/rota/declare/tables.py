"""Tables and functions that come with Jobs: a package's own part of the schema."""

from __future__ import annotations

import re
from importlib.resources.abc import Traversable
from pathlib import Path

from rota.errors import DeclarationError

_NAME = re.compile(r"[a-z][a-z0-9]{0,29}")
_MIGRATION = re.compile(r"[0-9]{4}_[a-z0-9_]+")
_FUNCTION = re.compile(r"[a-z0-9_]+")


class Tables:
    """Tables and functions of a package in Rota's schema. `rota migrate` with the App makes them,
    and a worker refuses to start without them."""

    def __init__(self, name: str, folder: Path | Traversable) -> None:
        """Args:
            name: 1 … 30 of a-z and 0-9. The name of each table, view and function begins with it
                and a `_`.
            folder: has a folder `migrations` of files such as `0001_tables.sql`, each applied once
                with the schema in front of the `search_path`, and a folder `functions`, a function
                or a view in each file, replaced when its text has changed. There `{schema}.` stands
                before each name of the schema. A migrate by an older release of the package puts
                its own texts back.

        `rota doctor` shows the rows of a function `NAME_findings()`, and the alert `packages` sends
        them: subject, message and cure, texts. `rota secrets rotate` seals each `rota.Secret` in a
        column `sealed` (jsonb) again.

        Raises:
            DeclarationError: the name or a file's name is unfit, a number is there twice, or there
                is no such folder.
        """
        if not _NAME.fullmatch(name):
            raise DeclarationError(f"Tables: a name has 1 to 30 of a-z and 0-9, not {name!r}")
        self.name = name
        """The start of the names of its tables, views and functions."""
        self.migrations = self._read(folder, "migrations", _MIGRATION)
        """The texts by name, in order."""
        self.functions = self._read(folder, "functions", _FUNCTION)
        """The texts by name."""
        numbers = [file[:4] for file in self.migrations]
        if len(set(numbers)) < len(numbers):
            raise DeclarationError(f"Tables {name}: two migrations have one number: {numbers}")
        for other in self.functions:
            if not other.startswith(f"{name}_"):
                raise DeclarationError(f"Tables: the name of {other} must begin with {name}_")

    def __repr__(self) -> str:
        return f"<Tables {self.name}>"

    def _read(self, folder: Path | Traversable, part: str, fits: re.Pattern[str]) -> dict[str, str]:
        try:
            files = [file for file in folder.joinpath(part).iterdir() if file.name[-4:] == ".sql"]
        except OSError as error:
            raise DeclarationError(f"Tables {self.name}: {error}") from None
        for file in files:
            if not fits.fullmatch(file.name[:-4]):
                raise DeclarationError(
                    f"Tables {self.name}: no file of {part} is called {file.name}; they are such "
                    "as migrations/0001_tables.sql and functions/shop_put.sql"
                )
        ordered = sorted(files, key=lambda file: file.name)
        return {file.name[:-4]: file.read_text(encoding="utf-8") for file in ordered}
