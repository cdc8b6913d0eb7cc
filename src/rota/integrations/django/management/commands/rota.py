"""`manage.py rota …`: the commands of `rota`, on the App of the project."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rota.cli import main, run
from rota.integrations.django.django_app import DATABASE, SETUP, find_app

OF_DJANGO = ("--settings", "--pythonpath")
"""Options that manage.py itself reads, at any place."""
ALIAS = "--database"


class RotaCommand(BaseCommand):
    """All commands of Rota: `manage.py rota --help` lists them."""

    help = "Run and look after background jobs: `manage.py rota --help` lists the commands."

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Run the command of these arguments, and exit as `rota` does."""
        arguments, database = take_options(argv[2:])
        _prepare(argv[0])
        with _on(database):
            if "work" in arguments and any(given.startswith("--processes") for given in arguments):
                # The parent process imports nothing of the application.
                os.execv(sys.executable, [sys.executable, "-m", "rota", *arguments])
            sys.argv = ["rota", *arguments]
            main()

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the page of all commands."""
        run(["--help"])

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Accept all arguments that `rota` accepts."""
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *arguments: Any, **options: Any) -> None:
        """Run a command for `call_command("rota", "jobs", …)`. Raises CommandError with its exit
        status."""
        left, database = take_options(options["arguments"])
        if find_app()._tested is not None:
            raise CommandError(
                "rota connects by itself and sees nothing of this transaction: use the Harness or "
                "the App, or a TransactionTestCase"
            )
        _prepare(sys.argv[0])
        with _on(database), redirect_stdout(options.get("stdout") or sys.stdout):
            status = run(left)
        if status:
            raise CommandError(f"exit status {status}", returncode=status)


Command = RotaCommand  # the name that Django looks for


def take_options(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments without Django's options, and the alias that `--database` names."""
    left: list[str] = []
    database, rest = None, iter(arguments)
    for argument in rest:
        name, has_value, value = argument.partition("=")
        if name not in (*OF_DJANGO, ALIAS):
            left.append(argument)
            continue
        given = value if has_value else next(rest, "")
        database = given if name == ALIAS else database
    return left, database


@contextmanager
def _on(database: str | None) -> Iterator[None]:
    """Let the App of this process, and of its child processes, work on the database of an alias."""
    if database is None:
        yield
        return
    app = find_app()
    before, told = app.using, os.environ.get(DATABASE, "")
    app.using = os.environ[DATABASE] = database
    try:
        yield
    finally:
        app.using, os.environ[DATABASE] = before, told


def _prepare(program: str) -> None:
    """Let this process and its child processes find the App."""
    os.environ["ROTA_APP"] = f"{SETUP}:app"
    place, known = str(Path(program).resolve().parent), os.environ.get("PYTHONPATH", "")
    if Path(program).name == "manage.py" and place not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, known]))
