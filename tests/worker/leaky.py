"""An App whose handlers say what they must not: their secrets, in every place that Rota keeps."""

from __future__ import annotations

import dataclasses
import logging

import rota

TOKEN = "tök-Zx81 'q\"7/+"
NAME = "Ada Lovelace"
PASSWORD = "hunter2-Pq9"
BEARER = "Zm9vYmFyYmF6cXV4MTIz"
PREFIXED = ("sk_live_4eC39HqLyjWDarjt", "ghp_16C7e42F292c6912E7710c83", "AKIAIOSFODNN7EXAMPLE")
OWN = "cus_9s6XKzkNRiz8i3"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
PLANTED = (TOKEN, repr(TOKEN)[1:-1], PASSWORD, BEARER, *PREFIXED, OWN, PEM)

app = rota.App(scrub=[r"\bcus_\w+"])
log = logging.getLogger("shop")


@dataclasses.dataclass
class Card:
    """The payload of a job of a call for many."""

    token: rota.Secret[str]
    name: rota.Personal[str]


def fail(token: str, name: str) -> None:
    """Log and raise all of it."""
    log.error("charging %s with %s", name, token, extra={"header": {"token": token}})
    log.error("Authorization: Bearer %s", BEARER)
    try:
        try:
            raise ConnectionError(f"postgresql://bob:{PASSWORD}@db/shop said {token!r}")
        except ConnectionError as cause:
            raise LookupError(f"{', '.join(PREFIXED)} of {OWN}") from cause
    except LookupError:
        log.exception("it failed for %s", name)
        pem = f"-----BEGIN PRIVATE KEY-----\n{PEM}\n-----END PRIVATE KEY-----"
        error = ValueError(f"{name} cannot pay with {token}; password={PASSWORD}\n{pem}")
        error.add_note(f"sent 'Authorization': 'Bearer {BEARER}' with {token!r}")
        raise error  # noqa: B904 - the context is what is tested


@app.job(takes_context=True, max_attempts=2, retry=rota.Fixed("1s"))
async def in_loop(ctx: rota.Context, token: rota.Secret[str], name: rota.Personal[str]) -> None:
    ctx.progress(1, 2, f"{name}: {token.reveal()}")
    fail(token.reveal(), name)


@app.job(max_attempts=1)
def in_thread(token: rota.Secret[str], name: rota.Personal[str]) -> None:
    fail(token.reveal(), name)


@app.job(process=True, max_attempts=1)
def in_process(token: rota.Secret[str], name: rota.Personal[str]) -> None:
    fail(token.reveal(), name)


@app.job(chunk=5, max_attempts=1)
def in_chunk(cards: list[Card]) -> None:
    fail(cards[0].token.reveal(), cards[0].name)


@app.job(max_attempts=1)
def outcome(token: rota.Secret[str], name: rota.Personal[str]) -> None:
    try:
        fail(token.reveal(), name)
    except ValueError as error:
        raise rota.Dead(f"{name} must not use {token.reveal()}") from error


@app.job(max_attempts=1)
def cancelled(token: rota.Secret[str], name: rota.Personal[str]) -> None:
    raise rota.Cancel(f"{name} must not use {token.reveal()}")


FAILING = ("in_loop", "in_thread", "in_process", "in_chunk", "outcome", "cancelled")
