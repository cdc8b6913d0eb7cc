"""`rota secrets` lists the keys of secrets; `rota secrets rotate` seals all under the first key."""

from __future__ import annotations

import typer

from rota.cli.flags import argument
from rota.cli.grammar import make_noun
from rota.cli.listing import Field, Listing, number
from rota.cli.output import print_json, print_text
from rota.cli.target import JsonOption, Place, Viewer
from rota.client.secrets import Rotated, list_keys
from rota.client.secrets import rotate as rotate_all
from rota.declare.secret import VARIABLE, find_keys_problem, make_key, read_keys
from rota.model.units import plural


def secrets(viewer: Viewer) -> None:
    """List the keys of secrets, and how many rows are sealed under each.

    It reads every job, also of history.
    """
    KEYS.show(viewer, lambda opened: opened.run(list_keys()))
    if read_keys() and (problem := find_keys_problem()):
        typer.echo(f"no key opens anything here: {problem}", err=True)


KEYS = Listing(
    "keys",
    (
        "key",
        Field("here", lambda key, _: "seals" if key.seals else "opens" if key.here else "missing"),
        *map(number, ("jobs", "history", "schedules", "batches", "packages")),
    ),
    empty=f"nothing is sealed, and {VARIABLE} is not set",
)


def new_key(
    id: str = argument("ID", "Id of the key: letters, digits and _.-"),
) -> None:
    """Print a new key, as ROTA_SECRET_KEYS has it: ID=KEY.

    Put it after the keys that workers have, deploy, and then first.
    """
    typer.echo(make_key(id))


def rotate(place: Place, as_json: JsonOption = False) -> None:
    """Seal all values again that are not sealed under the first key.

    Each portion is committed by itself: run again, it goes on where it stopped. It exits with 1 if
    a key is missing here, or a value cannot be opened.
    """
    with place.session() as opened:
        rotated = opened.run(rotate_all())
    if as_json:
        print_json(rotated)
    else:
        _say(rotated)
    if rotated.missing or rotated.unopened:
        raise typer.Exit(1)


def _say(rotated: Rotated) -> None:
    print_text(f"{plural(rotated.written, 'row')} sealed under key {rotated.key}")
    for key, rows in rotated.left.items():
        missing = f", and missing here: run this with it in {VARIABLE}"
        where = missing if key in rotated.missing else ""
        print_text(f"key {key} is still in use: {plural(rows, 'row')}{where}")
    for key in rotated.unused:
        print_text(f"key {key} is not in use any more: take it out of {VARIABLE}")
    if rotated.unopened:
        more = ", …" if rotated.unopened > len(rotated.unopened_rows) else ""
        print_text(
            f"{plural(rotated.unopened, 'row')} left as before, with a value that cannot be opened "
            f"although its key is here: {', '.join(rotated.unopened_rows)}{more}"
        )


app = make_noun(secrets, new_key=new_key, rotate=rotate)
