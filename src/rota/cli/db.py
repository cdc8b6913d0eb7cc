"""`rota db`: the private PostgreSQL of a directory."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from rota import embedded
from rota.cli.grammar import Noun
from rota.cli.output import print_json, say
from rota.cli.target import JsonOption
from rota.embedded.server import postgres_binaries

app = typer.Typer(
    cls=Noun,
    help="Manage the private PostgreSQL that Rota starts if no database is configured.",
    no_args_is_help=True,
)

Directory = Annotated[Path, typer.Option("--directory", help="Directory of its data.")]

_DEFAULT = Path(".rota")


@app.command()
def url(directory: Directory = _DEFAULT, as_json: JsonOption = False) -> None:
    """Print the URL of the private PostgreSQL. Exit 1 if it is not running."""
    found = embedded.running(directory)
    if as_json:
        print_json(_name(directory, url=found))
    elif found:
        typer.echo(found)
    else:
        typer.echo(
            f"no private PostgreSQL is running in {directory.resolve()}; "
            "it runs while a process uses it",
            err=True,
        )
    raise typer.Exit(0 if found else 1)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context, directory: Directory = _DEFAULT) -> None:
    """Open psql on the private PostgreSQL; start the server if necessary.

    Further arguments are passed to psql.
    """
    database = embedded.start(directory)
    # A child, not exec: this process stops the server as its last user. Ctrl-C is for psql.
    signal.signal(signal.SIGINT, lambda *_: None)
    command = [str(postgres_binaries() / "psql"), database, *context.args]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


@app.command()
def stop(directory: Directory = _DEFAULT, as_json: JsonOption = False) -> None:
    """Stop the private PostgreSQL now, even if it is in use. The data stay."""
    stopped = embedded.stop(directory)
    text = "stopped" if stopped else "was not running"
    say(_name(directory, stopped=stopped), text, as_json=as_json)


@app.command()
def reset(
    directory: Directory = _DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the private PostgreSQL and delete its data."""
    if not yes:
        typer.confirm(
            f"Delete all data of the private PostgreSQL in {directory.resolve()}?",
            abort=True,
            err=True,
        )
    deleted = embedded.reset(directory)
    text = "deleted" if deleted else "nothing to delete"
    say(_name(directory, deleted=deleted), text, as_json=as_json)


def _name(directory: Path, **facts: str | bool | None) -> dict[str, str | bool | None]:
    return {"directory": str(directory.resolve()), **facts}
