"""What pages quote of a committed run: tables between two comments, written from its JSON.

    <!-- peers: Rota on Django; dj_queue | drain: no-op jobs; pick-up: p50 -->
    <!-- /peers -->

A page quotes the lead setup of each system. What it says of a peer's speed elsewhere is found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from bench.figures import readable
from bench.peers.page import find_losses
from bench.peers.result import by_table
from bench.place import describe
from bench.reference import Speed, describe_speeds

Figures = list[dict[str, Any]]
FENCED = ("crash", "stopped: late writes accepted")
"""What shows whether a worker that stood still may write the end of a job that is no longer its."""
SURVEYED = (
    ("drain", "no-op jobs"),
    ("pick-up", "p50"),
    ("enqueue", "single"),
    ("enqueue", "1,000 in one call"),
    ("steady", "p99, from enqueue to start"),
    ("idle", "statements"),
    ("crash", "killed: not run to their end"),
    FENCED,
)
"""The questions of the table in benchmarks.md."""
BLOCK = re.compile(
    r"(?P<head><!-- peers: (?P<systems>[^|>]+) \| (?P<questions>[^>]+?) -->\n)"
    r"(?P<table>.*?)(?P<foot><!-- /peers -->)",
    re.DOTALL,
)
CODE = re.compile(r"^(```.*?^```|    .*?$)", re.DOTALL | re.MULTILINE)
MEASURED = re.compile(
    r"\d\s*(?:(?:jobs|tasks)(?:/s| a second)|a second|ms\b|µs\b|times (?:as|faster|slower|more)|×)"
)


def fill(text: str, document: dict[str, Any]) -> str:
    """Return a page with its tables written. Raises LookupError for what the run does not have."""

    def write(block: re.Match[str]) -> str:
        systems, questions = (block[part].split("; ") for part in ("systems", "questions"))
        asked = [(scenario, what) for scenario, _, what in (q.partition(": ") for q in questions)]
        return f"{block['head']}{_cross(document, systems, asked)}{block['foot']}"

    return BLOCK.sub(write, text)


def find_loose(text: str, names: Iterable[str]) -> list[str]:
    """Return the sentences that tell a peer's speed outside of such tables."""
    named = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names))
    found: list[str] = []
    for paragraph in CODE.sub("", BLOCK.sub("", text)).split("\n\n"):
        sentences = re.split(r"(?<=[.!?|])\s", " ".join(paragraph.split()))
        found += [
            sentence
            for sentence in sentences
            if named.search(sentence) and MEASURED.search(sentence)
        ]
    return found


def survey(document: dict[str, Any]) -> str:
    """Return what benchmarks.md says of a run: where another system is ahead, and one table."""
    tables = by_table(document["figures"])
    losses = find_losses(tables)
    lost = {what for what, *_ in losses}
    kept: dict[str, list[str]] = {}
    for scenario, what in tables:
        if f"{scenario}: {what}" not in lost:
            kept.setdefault(scenario, []).append(what.rpartition(": ")[2])
    parts = [
        f"The committed run is of {document['at'][:10]}, {describe(document)}; the machine was "
        f"{document['load']}.",
        *(f"SKIPPED: {name}: {why}" for name, why in document["skipped"].items()),
    ]
    if losses:
        lacks = _find_lacks(document, tables)
        head = ["| what | ahead | its figure | Rota | what it lacks |", "|---" * 5 + "|"]
        rows = [f"| {' | '.join([*row, lacks[row[1]]])} |" for row in losses]
        parts += ["Another system, in some setup, is ahead of Rota in:", "\n".join(head + rows)]
    parts += [
        "No other system is ahead in the other questions:",
        "\n".join(f"- {scenario}: {'; '.join(asked)}" for scenario, asked in kept.items()),
        _write_table(
            "system", {": ".join(table): tables[table] for table in SURVEYED if table in tables}
        ),
    ]
    return "\n\n".join(parts) + "\n"


def summarise(document: dict[str, Any]) -> str:
    """Return all tables of a run, and why a figure is missing."""
    tables = by_table(document["figures"])
    parts = [
        f"The run is of {document['at'][:10]}, {describe(document)}; the machine was "
        f"{document['load']}. Each system is in its best setup for one job at a time.",
        *_promise(document, tables),
    ]
    for scenario in document["scenarios"]:
        asked = {
            what: figures for (asked_in, what), figures in tables.items() if asked_in == scenario
        }
        if asked:
            parts.append("\n".join([_write_table(scenario, asked), *_excuse(asked)]))
        if measured := document.get("reference", {}).get(scenario):
            speeds = [Speed(**speed) for speed in measured]
            parts.append(f"Before, between and after these rounds: {describe_speeds(speeds)}.")
    return "\n\n".join(parts) + "\n"


def _find_lacks(document: dict[str, Any], tables: dict[tuple[str, str], Figures]) -> dict[str, str]:
    """Return what each system with a setup does not keep, of what Rota keeps."""
    late = _find_late(tables)
    lacks: dict[str, str] = {}
    for system in document["systems"]:
        name = system["name"]
        taken = late.get(name)
        fence = [] if taken == 0 else ["a fence" if taken else "a fence, as far as was shown"]
        durable = [] if system["durable"] == "each commit" else ["durable commits"]
        for setup in system["setups"]:
            kept = setup["history"]
            history = [] if kept == "kept" else [f"history: {kept}"]
            lacks[f"{name}, {setup['name']}"] = "; ".join([*durable, *fence, *history]) or "nothing"
    return lacks


def _find_late(tables: dict[tuple[str, str], Figures]) -> dict[str, int | None]:
    """Return how many late writes each system took; None: it was not shown."""
    return {
        figure["system"]: figure["value"] for figure in tables.get(FENCED, []) if figure["is_lead"]
    }


def _write_table(title: str, asked: dict[str, Figures]) -> str:
    """Return a table with a row for each system, the best in the first question first."""
    head = " | ".join(f"{what}, {figures[0]['unit']}" for what, figures in asked.items())
    lines = [f"| {title} | {head} |", "|---" * (len(asked) + 1) + "|"]
    values = {
        what: {figure["system"]: _value(figure) for figure in figures if figure["is_lead"]}
        for what, figures in asked.items()
    }
    first = next(iter(values.values()))
    for system in first:
        cells = " | ".join(values[what].get(system, "") for what in asked)
        lines.append(f"| {system} | {cells} |")
    return "\n".join(lines)


def _excuse(asked: dict[str, Figures]) -> Iterator[str]:
    """Yield why a system has no figure."""
    why: dict[tuple[str, ...], list[str]] = {}
    for what, figures in asked.items():
        reasons = tuple(
            f"- {figure['system']}: {figure['note']}"
            for figure in figures
            if figure["is_lead"] and figure["value"] is None and figure["note"]
        )
        if reasons:
            why.setdefault(reasons, []).append(what)
    for reasons, asked_in_vain in why.items():
        yield from ["", f"Where it is none, {'; '.join(asked_in_vain)}:", "", *reasons]


def _promise(document: dict[str, Any], tables: dict[tuple[str, str], Figures]) -> Iterator[str]:
    """Yield what each system keeps, and what it promises of a job."""
    lead = {
        figure["system"]: figure["setup"] for figure in document["figures"] if figure["is_lead"]
    }
    late = _find_late(tables)
    lines = ["| system | settings | history of a success | fenced | durable |", "|---" * 5 + "|"]
    for system in document["systems"]:
        name = system["name"]
        setups = {setup["name"]: setup for setup in system["setups"]}
        if name in lead:
            setup = setups[lead[name]]
            fenced = {None: "not shown", 0: "yes"}.get(late.get(name), "no")
            facts = (name, setup["about"], setup["history"], fenced, system["durable"])
            lines.append(f"| {' | '.join(facts)} |")
    yield "\n".join(lines)
    yield (
        "Fenced: after a worker was stopped for longer than a crash takes to be noticed, and its "
        "jobs had run elsewhere, the queue refused what it still wrote."
    )


def _cross(document: dict[str, Any], systems: list[str], asked: list[tuple[str, str]]) -> str:
    """Return a table with a column for each system, and when it was measured."""
    versions = {system["name"]: system["version"] for system in document["systems"]}
    head = " | ".join(f"{name} {versions.get(name, '')}".rstrip() for name in systems)
    lines = [f"| | {head} |", "|---" * (len(systems) + 1) + "|"]
    for scenario, what in asked:
        found = {
            figure["system"]: figure
            for figure in document["figures"]
            if figure["is_lead"] and (figure["scenario"], figure["what"]) == (scenario, what)
        }
        if missing := [name for name in systems if name not in found]:
            raise LookupError(f"the run has no {scenario}: {what} of {', '.join(missing)}")
        cells = " | ".join(_value(found[name], with_unit=True) for name in systems)
        lines.append(f"| {scenario}: {what} | {cells} |")
    said = f"One run on {document['at'][:10]}, {describe(document)}."
    return "\n".join([*lines, "", said]) + "\n"


def _value(figure: dict[str, Any], *, with_unit: bool = False) -> str:
    if figure["value"] is None:
        return "none"
    return readable(figure["value"]) + (f" {figure['unit']}" if with_unit else "")
