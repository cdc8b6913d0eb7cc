"""`rota check` reports problems to a monitoring system or cron; `rota alerts` lists alerts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NoReturn

import typer

from rota.app import App
from rota.cli.flags import flag, option
from rota.cli.listing import Field, Listing, label, number, spare
from rota.cli.output import name_seconds, print_json
from rota.cli.table import Kind
from rota.cli.target import JsonOption, Place, Viewer, need_app
from rota.client.session import Session
from rota.declare.checklist import find_hints
from rota.errors import DatabaseUnavailable, RotaError, UsageError
from rota.model.alert import AlertMatch
from rota.model.failure import one_line
from rota.model.units import list_some, plural

OK, WARNING, CRITICAL, UNKNOWN = range(4)
"""Exit statuses of monitoring plugins. Other commands have other statuses."""
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
    except Exception as error:  # noqa: BLE001 - a traceback exits with 1, which means WARNING
        status = CRITICAL if isinstance(error, DatabaseUnavailable) else UNKNOWN
        message = str(error) if isinstance(error, RotaError) else f"{type(error).__name__}: {error}"
        _end(status, _plain(message), as_json=as_json, error=message)
    severities = {match.severity for _, matches in found for match in matches}
    status = CRITICAL if "critical" in severities else WARNING if severities else OK
    figures = " ".join(_figure(*checked) for checked in found)
    facts = [_as_facts(*checked) for checked in found]
    _end(status, f"{_plain(_summarize(found))} | {figures}", as_json=as_json, rules=facts)


def _end(
    status: int,
    line: str,
    *,
    as_json: bool,
    rules: Sequence[dict[str, Any]] = (),
    error: str | None = None,
) -> NoReturn:
    if as_json:
        print_json({"status": _WORDS[status].lower(), "rules": rules, "error": error})
    else:
        typer.echo(f"{_WORDS[status]} - {line}")
    raise typer.Exit(status)


def _check_types(app: App, *, as_json: bool) -> None:
    types = app._declarations.types
    hints = find_hints(types.values())
    if as_json:
        facts = [hint._asdict() for hint in hints]
        print_json({"status": "ok", "rules": [], "hints": facts, "error": None})
        return
    for cure in dict.fromkeys(hint.cure for hint in hints):
        for hint in hints:
            if hint.cure == cure:
                typer.echo(f"{hint.place}: {hint.job_type!r} {hint.message}")
        typer.echo(f"    {cure}")
    typer.echo(f"{plural(len(types), 'job type')}, {plural(len(hints), 'hint')}")


def alerts(viewer: Viewer) -> None:
    """List the alerts that are active or ended in the last 24 h, and below them the rules."""
    with viewer.session() as opened:
        rules = opened.read_table("alert_rules", columns=RULE_COLUMNS)
        found = opened.alerts.list()
        times = viewer.read_times(opened)
    if viewer.as_json:
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


Found = list[tuple[dict[str, Any], list[AlertMatch]]]


def _evaluate(opened: Session, names: list[str] | None) -> Found:
    rules = opened.read_table("alert_rules", columns=RULE_COLUMNS)
    if unknown := sorted(set(names or ()) - {rule["name"] for rule in rules}):
        raise UsageError(f"there is no rule {unknown[0]!r}; `rota alerts` lists the rules")
    wanted = [rule for rule in rules if (rule["name"] in names if names else rule["enabled"])]
    return [(rule, opened.find_alert_matches(rule["name"])) for rule in wanted]


def _summarize(found: Found) -> str:
    said = [
        (match.severity, f"{rule['name']}: {match.message}")
        for rule, matches in found
        for match in matches
    ]
    if not said:
        return f"{plural(len(found), 'rule')}, nothing found"
    said.sort(key=itemgetter(0))  # critical stands before warning
    return list_some((text for _, text in said), _SAID_MAX)


def _figure(rule: dict[str, Any], matches: list[AlertMatch]) -> str:
    """Format performance data: the highest value of a rule's matches; 0: no match."""
    label = re.sub("['=|]", " ", one_line(rule["name"]))
    return f"'{label}'={max((match.value for match in matches), default=0):.6g}"


def _plain(text: str) -> str:
    """Replace `|`, which would begin the performance data."""
    return one_line(text, 2000).replace("|", "/")


def _as_facts(rule: dict[str, Any], matches: list[AlertMatch]) -> dict[str, Any]:
    shown = ("subject", "value", "severity", "message")
    found = [{name: getattr(match, name) for name in shown} for match in matches]
    return {name: rule[name] for name in ("name", "kind", "severity")} | {"findings": found}
