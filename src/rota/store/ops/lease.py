"""How a lease is held: renewals, the record of a start, and progress."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.store.driver import Operation, Query, Row, format_numbers
from rota.store.isolate import isolate
from rota.store.ops.claim import Claimant


class Renewed(msgspec.Struct, frozen=True):
    """Which leases were still held, and which jobs have a request to stop, with the reason."""

    held: set[int]
    renewed: set[int]
    """Held leases that no other transaction has locked: a locked lease is due again at once."""
    cancels: dict[int, str | None]
    refused: dict[int, str] = {}
    """Held leases that the database refused to renew, and why: they last until they are reaped."""


class Refused(msgspec.Struct, frozen=True):
    why: str
    locked: bool = False
    """Whether another open transaction holds the row: the write succeeds when that ends."""
    of_row: bool = True
    """Whether the values of the row may be at fault."""


def renew(held: Sequence[tuple[int, int]], who: Claimant) -> Operation[Renewed]:
    """Renew the leases of (id, claims). A refused lease counts as held; the others go on."""

    def write(some: Sequence[tuple[int, int]]) -> Operation[list[Row]]:
        asked = {**format_claims(some), "types": who.types, "leases": who.leases}
        return (yield Query("job_renew", asked))

    isolated = yield from isolate(held, write)
    rows = [row for some in isolated.answers for row in some]
    refused = {id_: why for (id_, _), why in isolated.refused}
    return Renewed(
        held={row[0] for row in rows} | refused.keys(),
        renewed={row[0] for row in rows if row[1]},
        cancels={row[0]: row[3] for row in rows if row[2]},
        refused=refused,
    )


def start(held: Sequence[tuple[int, int, bool]]) -> Operation[dict[int, bool | Refused]]:
    """Record that (id, claims, whether it begins beside other suspects) are about to begin. Return
    the ids still held, and whether each was recorded: a locked row was not. A refusal of one never
    stops the others."""

    def write(some: Sequence[tuple[int, int, bool]]) -> Operation[list[Row]]:
        shared = [is_shared for _, _, is_shared in some]
        claims = format_claims([(id_, claim) for id_, claim, _ in some])
        return (yield Query("job_start", {**claims, "shared": shared}))

    isolated = yield from isolate(held, write)
    recorded: dict[int, bool | Refused] = dict(row for some in isolated.answers for row in some)
    return recorded | {id_: Refused(why) for (id_, _, _), why in isolated.refused}


def format_claims(held: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Return (id, claims) each as the parameters `ids` and `claims`."""
    return {
        "ids": format_numbers([id_ for id_, _ in held]),
        "claims": format_numbers([claim for _, claim in held]),
    }


def progress(
    reports: Sequence[tuple[int, int, str]], *, waits: bool = False
) -> Operation[dict[int, bool | None]]:
    """Write the progress of (id, claims), in JSON; return the ids still held, and whether each was
    written: a locked row is not, unless it `waits`. None: the database refuses it, which does not
    stop the others."""

    def write(some: Sequence[tuple[int, int, str]]) -> Operation[list[Row]]:
        ids, claims, texts = ([report[at] for report in some] for at in range(3))
        params = {"ids": ids, "claims": claims, "progress": texts, "waits": waits}
        return (yield Query("job_progress", params))

    isolated = yield from isolate(reports, write)
    written: dict[int, bool | None] = dict(row for some in isolated.answers for row in some)
    return written | {id_: None for (id_, _, _), _ in isolated.refused}
