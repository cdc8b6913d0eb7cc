"""Evaluates alert rules and sends notifications: once over all workers, as repeats, at the end."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from rota.errors import DatabaseUnavailable
from rota.model.alert import decide
from rota.model.failure import one_line
from rota.observe.events import AlertFired, AlertNotSent, AlertOver, Bus
from rota.runtime.clock import SYSTEM_CLOCK, Clock
from rota.runtime.http import CallFailed, CallRefused, acall
from rota.runtime.service import Service
from rota.store import ops
from rota.store.db import Database
from rota.store.link import StoreLink
from rota.store.ops import AlertLook, AlertMessage

PERIOD_S = 60.0
STATEMENT_S = 10.0
"""Longest time for the evaluation of one rule, or of all quick rules together."""
TAKEN_S = 50.0
"""How long no other worker evaluates a taken rule."""
SHARE = 0.01
"""Share of one connection's time for a rule over all workers: rules read indexes that churn."""
POST_MAX = 20
"""Most alerts to post in one pass, one by one, until an alert gets no answer."""


class Alerter(Service):
    """Evaluates rules once a minute that no other worker has taken, reports and posts alerts."""

    name = "alerts"

    def __init__(
        self,
        bus: Bus,
        shared: StoreLink,
        database: Database,
        url: str | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(bus, clock)
        self._shared = shared
        self._link = StoreLink(database, "alert", statement_timeout_s=STATEMENT_S)
        self._url = url
        self._taken: deque[str] = deque()
        self._evaluate_at = 0.0
        """No evaluation before this time: the drain evaluated before its jobs."""
        self.passes = 0

    async def begin(self, link: StoreLink) -> None:
        """Evaluate the rules of a drain, before its jobs. The first `tick` posts them."""
        await self._evaluate_due(link, link)
        self._evaluate_at = self.clock.monotonic() + PERIOD_S

    async def tick(self) -> float | None:
        try:
            is_good = True
            if self.clock.monotonic() >= self._evaluate_at:
                is_good = await self._evaluate_all()
            if self._url is not None:
                await self._post(self._url)
        finally:
            await self._link.close()  # needed for rules that no other worker has taken
        if is_good:
            self.passes += 1
        return PERIOD_S

    async def close(self) -> None:
        await self._link.close()

    async def _evaluate_all(self) -> bool:
        """Evaluate the due rules; return whether all succeeded."""
        is_good = True
        while True:
            try:
                await self._evaluate_due(self._shared, self._link)
            except DatabaseUnavailable as error:
                if not error.refused or not self._taken:
                    raise
                is_good = False
                rule = self._taken.popleft()
                await self._link.run(ops.write_alerts(rule, [], STATEMENT_S / SHARE))
                self._report_unsent(rule, "", f"it cannot be evaluated: {error}")
            else:
                return is_good

    async def _evaluate_due(self, taking: StoreLink, link: StoreLink) -> None:
        """Take and evaluate the due rules, after a refusal singly. A failing rule stays first."""
        if not self._taken:
            self._taken.extend(await taking.run(ops.take_alert_rules()))
        most = len(self._taken)
        while self._taken:
            rules = list(self._taken)[:most]
            try:
                looks = await link.run(ops.look_for_alerts(rules))
            except DatabaseUnavailable as error:
                if not error.refused or most == 1:
                    raise
                most = 1
                continue
            for look in looks:
                await self._write(link, look)
                self._taken.popleft()

    async def _write(self, link: StoreLink, look: AlertLook) -> None:
        decided = decide(look.found, look.standing, look.repeat_after_s)
        pause_s = look.took_s / SHARE
        if not decided and pause_s <= TAKEN_S:
            return
        for message, problem in await link.run(ops.write_alerts(look.rule, decided, pause_s)):
            self._report(message)
            if problem is not None:
                reason = f"its job was refused: {one_line(problem)}"
                self._report_unsent(message.rule, message.subject, reason)

    def _report(self, message: AlertMessage) -> None:
        facts: dict[str, Any] = {
            "rule": one_line(message.rule),
            "subject": one_line(message.subject),
            "message": one_line(message.message),
            "value": message.value,
            "since": message.since,
        }
        if message.state == "over":
            self.bus.emit(AlertOver(**facts))
        else:
            repeated = message.state == "repeats"
            self.bus.emit(AlertFired(**facts, severity=message.severity, repeated=repeated))

    def _report_unsent(self, rule: str, subject: str, reason: str) -> None:
        told = AlertNotSent(rule=one_line(rule), subject=one_line(subject), reason=reason)
        self.bus.emit(told)

    async def _post(self, url: str) -> None:
        """Post the due alerts, at least once: a worker may end before it records a post."""
        for message in await self._shared.run(ops.take_unposted(POST_MAX)):
            try:
                await acall(url, msgspec.json.encode(message))
            except CallFailed as error:
                self._report_unsent(message.rule, message.subject, str(error))
                # A refused alert must not delay the others.
                if not isinstance(error, CallRefused):
                    return
            else:
                await self._shared.run(ops.mark_posted(message))
