"""When an alert fires, repeats and is over: for any course that a figure takes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rota.model.alert import OVER_AFTER, AlertMatch, AlertStep, Decision, Standing, decide
from tests.support.rules import rule

REPEAT_S = 240.0
TELLS = (AlertStep.FIRES, AlertStep.REPEATS, AlertStep.OVER)


@dataclass
class Row:
    """What the store would keep of one subject."""

    told: int = 0
    is_over: bool = True
    missed: int = 0
    told_at: float = 0.0
    severity: str = ""

    def write(self, decision: Decision, now: float) -> None:
        assert decision.notifications == self.told, "the decision names the row as it was seen"
        if decision.step in TELLS:
            self.told, self.missed, self.told_at = self.told + 1, 0, now
            self.is_over = decision.step == AlertStep.OVER
            self.severity = decision.match.severity if decision.match else self.severity
        else:
            self.missed = self.missed + 1 if decision.step == AlertStep.MISSED else 0


def course(found: list[str | None], repeat_after_s: float | None) -> list[AlertStep | None]:
    """What is decided of one subject, evaluated once a minute: each time its severity, or None."""
    row = Row()
    steps: list[AlertStep | None] = []
    for minute, severity in enumerate(found):
        now = minute * 60.0
        known = (
            [Standing("s", row.told, row.is_over, row.missed, now - row.told_at, row.severity)]
            if row.told
            else []
        )
        matches = [AlertMatch("s", 1, "m", severity)] if severity else []
        decided = decide(matches, known, repeat_after_s)
        for decision in decided:
            row.write(decision, now)
        steps.append(decided[0].step if decided else None)
    return steps


@rule("M86")
@given(
    st.lists(st.sampled_from([None, "warning", "critical"]), max_size=40),
    st.sampled_from([None, REPEAT_S]),
)
def test_each_alert_notifies_once_repeats_in_time_and_ends_once(
    found: list[str | None], repeat_after_s: float | None
) -> None:
    steps = course(found, repeat_after_s)

    stands = False
    told_at, told = 0, None
    for minute, (severity, step) in enumerate(zip(found, steps, strict=True)):
        is_due = repeat_after_s is not None and (minute - told_at) * 60 >= repeat_after_s
        is_worse = (told, severity) == ("warning", "critical")
        if step == AlertStep.FIRES:
            assert severity and not stands
        elif step == AlertStep.REPEATS:
            assert severity and stands and (is_due or is_worse)
        elif step == AlertStep.OVER:
            assert stands and found[minute - OVER_AFTER + 1 : minute + 1] == [None] * OVER_AFTER
        elif severity:
            assert stands and not is_due and not is_worse
        if step in TELLS:
            stands, told_at, told = step != AlertStep.OVER, minute, severity
        if found[max(0, minute - OVER_AFTER + 1) : minute + 1] == [None] * OVER_AFTER:
            assert not stands, "what is gone is over, and is not told of for ever"


def test_each_subject_is_decided_by_itself() -> None:
    known = [
        Standing("b", 3, False, 1, 10.0, "warning"),
        Standing("c", 2, True, 0, 10.0, "warning"),
        Standing("d", 1, False, 0, 10.0, "warning"),
    ]
    decided = decide(
        [AlertMatch("a", 1, "", "warning"), AlertMatch("d", 1, "", "warning")], known, None
    )
    assert [(decision.subject, decision.step, decision.notifications) for decision in decided] == [
        ("a", AlertStep.FIRES, 0),
        ("b", AlertStep.OVER, 3),
        ("d", AlertStep.STILL, 1),
    ]
