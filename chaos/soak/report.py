"""The report of a soak: all figures as JSON, and a page."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.judge import CHECKS
from chaos.soak.run import Soak
from chaos.soak.samples import Sample
from chaos.soak.verdict import Findings, Growth, bloat, find, median_of

LARGEST = 14
"""Tables and indexes on the page; all are in the JSON."""


def write(soak: Soak, path: Path) -> Findings:
    """Write PATH.json and PATH.md; return what was found."""
    found = find(soak)
    facts = _facts(soak, found)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".json").write_text(json.dumps(facts, indent=1) + "\n")
    path.with_name(path.name + ".md").write_text(_page(soak, found, facts))
    return found


def _facts(soak: Soak, found: Findings) -> dict[str, Any]:
    return {
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "load": [round(average, 1) for average in os.getloadavg()],
        },
        "server": soak.server,
        "asked": {
            "seconds": soak.asked.pace.total_s,
            "seed": soak.asked.seed,
            "rate": soak.asked.rate,
        },
        "lasted_s": round(sum(round_.lasted_s + round_.rested_s for round_ in soak.rounds), 1),
        "ended_early": not soak.is_over,
        "days": round(soak.days, 2),
        "acts": dict(soak.acts),
        "found": asdict(found),
        "rounds": [
            {
                "began_s": round(round_.began_s, 1),
                "lasted_s": round(round_.lasted_s, 1),
                "rested_s": round(round_.rested_s, 1),
                "broken": {b.check.what: _rows(b.rows) for b in round_.verdict.broken},
                "timelines": round_.verdict.timelines,
            }
            for round_ in soak.rounds
        ],
        "plans": {
            "seen": soak.plans.seen,
            "changes": soak.plans.changes,
        },
        "samples": [_row(sample) for sample in soak.sampler.samples],
    }


def _rows(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in row.items()} for row in rows[:20]]


def _row(sample: Sample) -> dict[str, Any]:
    row = sample.as_json()
    for name in ("at_s", "days", "wal_mib", "horizon_s"):
        row[name] = round(row[name], 2)
    for kind in ("workers", "backends"):
        row[kind] = [
            [
                process["name"],
                process["pid"],
                round(process["age_s"]),
                round(process["mib"], 2),
                process["blocks"],
            ]
            for process in row[kind]
        ]
    row["relations"] = {
        relation["name"]: [relation["bytes"], relation["rows"], relation["dead"]]
        for relation in row["relations"]
    }
    return row


def _page(soak: Soak, found: Findings, facts: dict[str, Any]) -> str:
    verdict = "PASS" if not found.complaints else "FAIL"
    minutes = facts["lasted_s"] / 60
    lines = [
        "# Soak",
        "",
        f"{verdict}: {minutes:.0f} minutes, {found.jobs:,} jobs, {facts['days']:g} days of the "
        f"database's clock, {len(soak.rounds)} rounds, SEED={soak.asked.seed}"
        f"{', ended before its time' if facts['ended_early'] else ''}.",
        "",
        f"- lost: {found.lost}; started twice within a lease: {found.twice}; other promises "
        f"broken: {len(found.broken)} of {len(CHECKS)}",
        f"- {', '.join(f'{name}: {count}' for name, count in sorted(soak.acts.items()))}",
        f"- WAL: {found.wal_kib_per_job:.1f} KiB a job, with the tables of the handlers",
        f"- connections: {found.connections.last:.0f} at the end, {found.connections.most:.0f} at "
        "most",
        f"- oldest snapshot: {found.horizon_s:.1f} s at most",
        f"- plans: {len(soak.plans.changes)} changes, of {len(soak.plans.seen)} statements that "
        f"{soak.plans.looks} times were planned anew",
        f"- written at {facts['written_at']}, {facts['machine']['cores']} cores, a load of "
        f"{facts['machine']['load'][2]:g}; {facts['server']['version'].split(' on ')[0]}, Python "
        f"{facts['machine']['python']}",
        "",
        *_complaints(found),
        "## Memory",
        "",
        "Processes that lived through their warm-up. Per million jobs: the slope of the line "
        "through the samples after it.",
        "",
        *_table(found.workers + found.blocks + found.sessions[:LARGEST]),
        "## Tables and indexes",
        "",
        "All partitions of a table count as one. The largest:",
        "",
        *_table(found.sizes[:LARGEST]),
        "Rows, by the server's statistics:",
        "",
        *_table(found.rows[:LARGEST]),
        *_bloat(soak),
        "## Plans that changed",
        "",
        *_changes(soak),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _complaints(found: Findings) -> list[str]:
    if not found.complaints:
        return []
    return ["## Beyond the bounds", "", *[f"- {complaint}" for complaint in found.complaints], ""]


def _table(rows: list[Growth]) -> list[str]:
    if not rows:
        return ["None was measured for long enough.", ""]
    lines = [
        "| what | first | last | most | grew per million jobs | bound |",
        "|---|---|---|---|---|---|",
    ]
    for growth in rows:
        grew = "too few samples" if growth.line is None else f"{growth.line.per_million:+,.1f}"
        lines.append(
            f"| {growth.what} | {growth.first:,.1f} {growth.unit} | {growth.last:,.1f} | "
            f"{growth.most:,.1f} | {grew}{'' if growth.is_within else ' **beyond**'} | "
            f"{growth.bound.per_million:,g} |"
        )
    return [*lines, ""]


def _bloat(soak: Soak) -> list[str]:
    """The dead rows of each table, and its space beside what its rows need."""
    series: dict[str, list[tuple[int, float | None]]] = {}
    for sample in soak.sampler.samples:
        for relation in sample.relations:
            if relation.dead is not None:
                series.setdefault(relation.name, []).append((relation.dead, bloat(relation)))
    rows = sorted(series.items(), key=lambda item: -max(dead for dead, _ in item[1]))[:LARGEST]
    return [
        "Dead rows, and the space of a table beside what its rows need (`fillfactor` included):",
        "",
        "| table | dead, median | dead, most | times the space needed, last |",
        "|---|---|---|---|",
        *[
            f"| {name} | {median_of(dead for dead, _ in found):,.0f} | "
            f"{max(dead for dead, _ in found):,} | "
            f"{'too small' if found[-1][1] is None else f'{found[-1][1]:.1f}'} |"
            for name, found in rows
        ],
        "",
    ]


def _changes(soak: Soak) -> list[str]:
    if not soak.plans.changes:
        return ["None."]
    lines = []
    for change in soak.plans.changes[:LARGEST]:
        lines += [
            f"- {change['at_s']} s, {change['statement']}",
            f"    - before: `{change['before']}`",
            f"    - after: `{change['after']}`",
        ]
    return lines
