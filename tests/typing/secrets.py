"""What a checker says of secret and personal arguments. The comments are as in `enqueue.py`."""

from __future__ import annotations

from typing import assert_type

import rota
from rota import logs

jobs = rota.Jobs()


@jobs.job
def charge(user: int, token: rota.Secret[str], name: rota.Personal[str], pin: rota.Secret[int] | None = None) -> None:
    assert_type(token.reveal(), str)
    assert_type(name, str)
    assert_type(pin, rota.Secret[int] | None)
    token.upper()  # E: attr-defined | reportAttributeAccessIssue, reportUnknownMemberType


charge.enqueue(1, rota.Secret("tok"), "Ada")
charge.enqueue(1, rota.Secret("tok"), name="Ada", pin=rota.Secret(7))
charge.enqueue(1, "tok", "Ada")  # E: arg-type | reportArgumentType
charge.enqueue(1, rota.Secret(7), "Ada")  # E: arg-type | reportArgumentType
assert_type(rota.Secret("tok").seal(), dict[str, str])
assert_type(logs.scrub("text"), str)
