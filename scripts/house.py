"""Counts what a reader of the house has to hold, and fails where a budget is broken: part of `make check`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "rota"
SCHEMA = PACKAGE / "store" / "schema"

WIDTH_MAX = 100
COLUMN_FILES_MAX = 6
SHARE = 0.9
"""A file that names this share of the columns of `job` lists them: a new column goes there too."""


def main() -> int:
    """Print each figure with its budget; return 1 when one is broken."""
    columns = job_columns((SCHEMA / "migrations" / "0001_tables.sql").read_text(encoding="utf-8"))
    listing = [*files_that_list(columns), ROOT / "tests" / "store" / "schema.txt"]
    figures = [
        ("SQL lines over 100 characters", len(wide_lines()), 0),
        ("SQL functions in migrations", functions_in_migrations(), 0),
        ("files that a new column of job touches", len(listing), COLUMN_FILES_MAX),
    ]
    for name, count, most in figures:
        print(f"{count:4}  {name} (at most {most})")
    broken = [name for name, count, most in figures if count > most]
    if broken:
        details = [*wide_lines(), *(str(file.relative_to(ROOT)) for file in listing)]
        print("\n".join(details), file=sys.stderr)
    return 1 if broken else 0


def wide_lines() -> list[str]:
    """Each SQL line that is too wide, as file:line."""
    return [
        f"{file.relative_to(ROOT)}:{number}"
        for file in sorted(PACKAGE.rglob("*.sql"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > WIDTH_MAX
    ]


def functions_in_migrations() -> int:
    """How many functions the migrations make."""
    texts = (file.read_text(encoding="utf-8") for file in (SCHEMA / "migrations").glob("*.sql"))
    return sum(len(re.findall(r"(?im)^create (?:or replace )?function", text)) for text in texts)


def job_columns(tables: str) -> list[str]:
    """The columns of the table `job`, from the migration that makes it."""
    found = re.search(r"^create table job \(\n(.*?)^\)", tables, re.MULTILINE | re.DOTALL)
    assert found is not None, "no table job"
    return [
        name
        for name in re.findall(r"(?m)^  ([a-z_]+) \w", found[1])
        if name not in ("constraint", "check")
    ]


def files_that_list(columns: list[str]) -> list[Path]:
    """The source files that name most of the columns of `job`."""
    return [
        file
        for file in sorted([*PACKAGE.rglob("*.sql"), *PACKAGE.rglob("*.py")])
        if len(set(columns) & set(re.findall(r"[a-z_]+", file.read_text(encoding="utf-8"))))
        >= SHARE * len(columns)
    ]


if __name__ == "__main__":
    sys.exit(main())
