"""How alerts are found, written and sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from rota.model.alert import AlertMatch, Decision, Standing
from rota.store.driver import Operation, Query


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A notification of an alert. It is posted in this shape, as JSON; a job of `notify_job` gets
    it without `notifications` and `over_at`."""

    rule: str
    subject: str
    state: str
    severity: str
    since: datetime
    over_at: datetime | None = None
    notifications: int
    """How many were sent about this subject, with this notification."""
    value: float
    message: str


def take_alert_rules() -> Operation[list[str]]:
    """Take the rules that are due to be evaluated, by name; no other worker gets them for a
    while."""
    return [name for (name,) in (yield Query("alert_take"))]


def find_alert_matches(rule: str) -> Operation[list[AlertMatch]]:
    return [AlertMatch(*row) for row in (yield Query("alert_matches", {"rule": rule}))]


class AlertLook(msgspec.Struct, frozen=True):
    rule: str
    repeat_after_s: float | None
    took_s: float
    found: list[AlertMatch]
    standing: list[Standing]
    """The notifications of its subjects so far."""


def look_for_alerts(rules: Sequence[str]) -> Operation[list[AlertLook]]:
    rows = yield Query("alert_look", {"rules": list(rules)})
    return [
        AlertLook(rule, repeat_s, took_s, _matches.decode(found), _standing.decode(standing))
        for rule, repeat_s, took_s, found, standing in rows
    ]


_matches = msgspec.json.Decoder(list[AlertMatch])
_standing = msgspec.json.Decoder(list[Standing])
_message = msgspec.json.Decoder(AlertMessage)


def write_alerts(
    rule: str, decided: Sequence[Decision], pause_s: float
) -> Operation[list[tuple[AlertMessage, str | None]]]:
    """Write the decisions, and do not evaluate the rule again for `pause_s`. Return the
    notifications to send, each with the error that kept its job from being enqueued."""
    params = {
        "rule": rule,
        "steps": msgspec.json.encode(decided).decode(),
        "pause": timedelta(seconds=pause_s),
    }
    rows = yield Query("alert_write", params)
    return [(_message.decode(told), problem) for told, problem in rows]


def take_unposted(limit: int) -> Operation[list[AlertMessage]]:
    """Take the notifications that are not posted; no other worker gets them for a while."""
    return [_message.decode(row) for (row,) in (yield Query("alert_unposted", {"limit": limit}))]


def mark_posted(sent: AlertMessage) -> Operation[None]:
    sent_before = {"notifications": sent.notifications}
    yield Query("alert_posted", {"rule": sent.rule, "subject": sent.subject} | sent_before)
