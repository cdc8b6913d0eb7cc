"""What an event costs whom."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from rota.observe.events.bus import Bus
from rota.observe.events.event import Event
from tests.support.rules import rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Event):
    """An event that counts how often its text is made."""

    texts: list[str]

    def text(self) -> str:
        self.texts.append("a text")
        return self.texts[-1]


@rule("M84")
@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_a_listener_does_not_pay_for_a_line_that_nobody_reads(
    level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level, logger="rota")
    heard: list[Event] = []
    bus, event = Bus(), Told(texts=[])
    bus.on(Told, heard.append)
    bus.emit(event)
    is_logged = level <= event.level_now
    assert heard == [event]
    assert (event.texts, caplog.messages) == (["a text"] * is_logged, ["a text"] * is_logged)
