"""`rota check` reports problems to a monitoring system or cron; `rota alerts` lists alerts."""

from __future__ import annotations

from typing import Any, NoReturn

import typer

from rota.app import App
from rota.cli.flags import flag, option
from rota.cli.listing import Field, Listing, Screen, label, number, spare
from rota.cli.output import Times, name_seconds, print_json, say
from rota.cli.table import Kind
from rota.cli.target import JsonOption, Place, need_app
from rota.client.session import Session
from rota.declare.checklist import find_hints
from rota.errors import DatabaseUnavailable, RotaError, UsageError
from rota.model.alert import AlertMatch
from rota.model.failure import one_line
from rota.model.units import plural

OK, WARNING, CRITICAL, UNKNOWN = range(4)
"""Exit statuses of monitoring plugins. They differ from those of the other commands."""
_WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_SAID_MAX = 5
"""Most findings on the line: a pager message need not list all."""

RULE_COLUMNS = (
    "name", "kind", "at_least", "factor", "period", "queue", "job_type", "severity",
    "critical_from", "repeat_after", "notify_job", "enabled",
)  # fmt: skip
_DURATIONS = ("period", "repeat_after")


def check(
    place: Place,
    rule: list[str] | None = option(
        "--rule NAME", "Check only this rule, even if it is disabled. Repeatable."
    ),
    types: bool = flag(
        "--types", "Instead: what may be missing from the App's job types, as hints."
    ),
    as_json: JsonOption = False,
) -> None:
    """Evaluate the alert rules now, for Nagios or cron. Changes nothing; sends no alerts.

    Prints one line. Exit status: 0 OK, 1 WARNING, 2 CRITICAL (or the database is
    unavailable), 3 UNKNOWN. --types needs no database, and exits with 0 if it has hints too.
    """
    if types and rule:
        raise UsageError("give rule or types, not both")
    try:
        if types:
            _check_types(need_app(place.app), as_json=as_json)
            return
        with place.session() as opened:
            found = _evaluate(opened, rule)
    except DatabaseUnavailable as error:
        _end(CRITICAL, str(error), as_json=as_json)
    except RotaError as error:
        _end(UNKNOWN, str(error), as_json=as_json)
    except Exception as error:  # noqa: BLE001 - a traceback exits with 1, which means WARNING
        _end(UNKNOWN, f"{type(error).__name__}: {error}", as_json=as_json)
    worst = max(
        (
            CRITICAL if finding.severity == "critical" else WARNING
            for _, findings in found
            for finding in findings
        ),
        default=OK,
    )
    rules = [_as_facts(one, findings) for one, findings in found]
    figures = " ".join(_figure(one, findings) for one, findings in found)
    facts = {"status": _WORDS[worst].lower(), "rules": rules, "error": None}
    say(facts, f"{_line(worst, found)} | {figures}", as_json=as_json)
    raise typer.Exit(worst)


def _check_types(app: App, *, as_json: bool) -> None:
    types = app._declarations.types
    hints = find_hints(types.values())
    if as_json:
        facts = [one._asdict() for one in hints]
        print_json({"status": "ok", "rules": [], "hints": facts, "error": None})
        return
    for one in hints:
        typer.echo(f"{one.place}: {one.job_type!r} {one.message}")
    typer.echo(f"{plural(len(types), 'job type')}, {plural(len(hints), 'hint')}")


def alerts(place: Place, screen: Screen) -> None:
    """List the alerts that are active or ended in the last 24 h, and below them the rules."""
    with place.session() as opened:
        rules = opened.read_table("alert_rules", columns=RULE_COLUMNS)
        found = opened.alerts.list()
        times = Times(opened.read_clock(), screen.utc)
    if screen.as_json:
        print_json({"rules": [name_seconds(rule, _DURATIONS) for rule in rules], "alerts": found})
        return
    ALERTS.print(found, times)
    typer.echo("\nRules")
    RULES.print(rules, times)


RULES = Listing(
    "rules",
    (
        label("name"),
        "kind",
        spare(label("queue")),
        spare(Field("type", "job_type", Kind.TYPE)),
        number("at least"),
        spare(number("factor")),
        "period",
        "severity",
        spare(number("critical from")),
        spare("repeat after"),
        spare(label("notify job")),
        Field("", lambda rule, _: None if rule["enabled"] else "disabled"),
    ),
    empty="no rules",
)
ALERTS = Listing(
    "alerts",
    (
        label("rule"),
        label("subject"),
        "state",
        spare("severity"),
        spare("since"),
        spare(Field("notified", "last_notified_at")),
        Field("message", kind=Kind.TEXT),
    ),
    empty="no alerts",
)


def _evaluate(
    opened: Session, names: list[str] | None
) -> list[tuple[dict[str, Any], list[AlertMatch]]]:
    rules = opened.read_table("alert_rules", columns=RULE_COLUMNS)
    if unknown := sorted(set(names or ()) - {rule["name"] for rule in rules}):
        raise UsageError(f"there is no rule {unknown[0]!r}; `rota alerts` lists the rules")
    wanted = [rule for rule in rules if (rule["name"] in names if names else rule["enabled"])]
    return [(rule, opened.find_alert_matches(rule["name"])) for rule in wanted]


def _line(worst: int, found: list[tuple[dict[str, Any], list[AlertMatch]]]) -> str:
    said = [
        (finding.severity, f"{rule['name']}: {finding.message}")
        for rule, findings in found
        for finding in findings
    ]
    said.sort(key=lambda one: one[0])  # critical stands before warning
    more = f"; and {len(said) - _SAID_MAX} more" if len(said) > _SAID_MAX else ""
    text = (
        "; ".join(text for _, text in said[:_SAID_MAX]) + more
        if said
        else f"{plural(len(found), 'rule')}, nothing found"
    )
    return f"{_WORDS[worst]} - {_plain(text)}"


def _figure(rule: dict[str, Any], findings: list[AlertMatch]) -> str:
    """Format performance data: the highest value that a rule found, 0 if it found nothing."""
    label = one_line(rule["name"]).replace("'", " ").replace("=", " ").replace("|", " ")
    return f"'{label}'={max((finding.value for finding in findings), default=0):.6g}"


def _plain(text: str) -> str:
    """Replace `|`, which would begin the performance data."""
    return one_line(text, 2000).replace("|", "/")


def _as_facts(rule: dict[str, Any], findings: list[AlertMatch]) -> dict[str, Any]:
    shown = ("subject", "value", "severity", "message")
    found = [{name: getattr(finding, name) for name in shown} for finding in findings]
    return {name: rule[name] for name in ("name", "kind", "severity")} | {"findings": found}


def _end(status: int, message: str, *, as_json: bool) -> NoReturn:
    facts = {"status": _WORDS[status].lower(), "rules": [], "error": message}
    say(facts, f"{_WORDS[status]} - {_plain(message)}", as_json=as_json)
    raise typer.Exit(status)
