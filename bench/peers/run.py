"""Plays the scenarios in rounds: within a round each system has its turn, in the next in the other
order, so that what else the machine does falls on all."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg
from rich.console import Console

from bench import place, quiet
from bench.figures import readable
from bench.peers.install import Installed, NotInstalled, install
from bench.peers.played import Failed
from bench.peers.result import Figure, Measured, fold
from bench.peers.scenarios import Scenario
from bench.peers.stage import Scale, Stage
from bench.peers.system import Setup, System
from bench.reference import Speed, describe_speeds, measure_speed
from bench.server import DurableServer
from rota import errors

FAILURES = (
    Failed, RuntimeError, OSError, psycopg.Error, subprocess.SubprocessError, errors.RotaError,
)  # fmt: skip
INSTALLED_TOGETHER = 4
console = Console(stderr=True, width=None if sys.stderr.isatty() else 160)
Key = tuple[str, str, str, str]
"""Scenario, question, system, setup."""


class OutOfTime(Exception):
    """The whole run took as long as it may."""


@dataclass
class Played:
    """Everything that a run has found."""

    turns: dict[Key, list[Measured]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    speeds: dict[str, list[Speed]] = field(default_factory=dict)
    """By scenario, before each round and after the last."""


def play(
    systems: Iterable[System],
    scenarios: Iterable[Scenario],
    scale: Scale,
    limit_s: float,
    *,
    memory: bool = False,
) -> dict[str, Any]:
    """Play, and return the document.

    Raises RuntimeError for a place that is not what was asked for.
    """
    began = time.monotonic()
    load = quiet.measure_load()
    console.print(f"The machine is {load}", highlight=False)
    found = Played()
    installed = _install(systems, found)
    present = [system for system in systems if system.module in installed]
    with place.begin_run(memory=memory) as (run, sync):
        console.print(f"The server is {sync}", highlight=False)
        server = DurableServer(run.place)
        server.start()
        with server.admin() as admin:  # so that the statements of a database can be counted
            admin.execute("alter system set log_line_prefix to '%m [%p] %d '")
            admin.execute("select pg_reload_conf()")
        stage = Stage(server, run.place, scale, installed)
        facts = server.facts()
        try:
            for scenario in scenarios:
                _rounds(stage, scenario, present, found, began + limit_s)
        except OutOfTime:
            _say_loudly(f"OUT OF TIME after {limit_s:,.0f} s: the rest is not measured")
            found.failed.append(f"out of time after {limit_s:,.0f} s: the rest is not measured")
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load": str(load),
        "is_comparable": load.is_quiet,
        "took_s": round(time.monotonic() - began),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "server": facts,
        "disk": str(sync),
        "scale": asdict(scale),
        "skipped": found.skipped,
        "failed": found.failed,
        "reference": {
            name: [speed.as_json() for speed in speeds] for name, speeds in found.speeds.items()
        },
        "scenarios": {scenario.name: scenario.about for scenario in scenarios},
        "systems": [_describe(system, installed[system.module]) for system in present],
        "figures": [figure.as_json() for figure in _figures(found, present)],
    }


def _install(systems: Iterable[System], found: Played) -> dict[str, Installed]:
    installed = {}
    with ThreadPoolExecutor(INSTALLED_TOGETHER) as pool:
        for system, installing in [(each, pool.submit(install, each)) for each in systems]:
            try:
                installed[system.module] = made = installing.result()
                console.print(f"{system.name} {made.version}, {made.runtime}", highlight=False)
            except NotInstalled as why:
                found.skipped[system.name] = str(why)
                _say_loudly(f"SKIPPED: {system.name} cannot be installed: {why}")
    return installed


def _say_loudly(text: str) -> None:
    console.print(f"\n*** {text} ***\n", style="bold red", highlight=False, markup=False)


def _rounds(
    stage: Stage, scenario: Scenario, systems: list[System], found: Played, until: float
) -> None:
    turns = [(system, setup) for system in systems for setup in scenario.entries(system)]
    began = time.monotonic()
    speeds = found.speeds.setdefault(scenario.name, [measure_speed(stage.server)])
    for round_ in range(min(stage.scale.rounds, scenario.rounds_max)):
        order = turns if round_ % 2 == 0 else turns[::-1]
        played = _play_together(stage, scenario, order, until)
        for (system, setup), turn in zip(order, played, strict=True):
            _keep(scenario, system, setup, turn, found)
        speeds.append(measure_speed(stage.server))
    console.print(f"  beside it {describe_speeds(speeds)}", highlight=False)
    took_s = time.monotonic() - began
    console.print(f"{scenario.name} took {took_s:.0f} s", style="dim")


@dataclass
class Turn:
    """What one turn has measured, and how it failed."""

    measured: list[Measured] = field(default_factory=list)
    error: Exception | None = None


def _play_together(
    stage: Stage, scenario: Scenario, order: list[tuple[System, Setup]], until: float
) -> Iterator[Turn]:
    """Play turns, several at a time if the scenario allows it; yield them in their order."""
    if scenario.together == 1:
        yield from (_play_turn(stage, scenario, *turn, until) for turn in order)
        return
    pool = ThreadPoolExecutor(scenario.together)
    try:
        turns = {
            at: pool.submit(_play_turn, stage, scenario, *order[at], until)
            for at in sorted(range(len(order)), key=lambda at: -order[at][0].recover_s)
        }  # the longest first, so that none is left alone at the end
        yield from (turns[at].result() for at in range(len(order)))
    finally:  # whoever interrupts does not wait: turns fail when the server is gone
        pool.shutdown(wait=False, cancel_futures=True)


def _play_turn(
    stage: Stage, scenario: Scenario, system: System, setup: Setup, until: float
) -> Turn:
    if time.monotonic() > until:
        raise OutOfTime
    turn = Turn()
    try:
        for measured in scenario.play(stage, system, setup):
            turn.measured.append(measured)
    except FAILURES as error:
        turn.error = error
    return turn


def _keep(scenario: Scenario, system: System, setup: Setup, turn: Turn, found: Played) -> None:
    who = f"{scenario.name}: {system.name}, {setup.name}"
    for measured in turn.measured:
        key = scenario.name, measured.what, system.name, setup.name
        found.turns.setdefault(key, []).append(measured)
        value = "-" if measured.value is None else readable(measured.value)
        console.print(
            f"  {who}: {measured.what} {value} {measured.unit} {measured.note}",
            highlight=False,
            markup=False,
        )
    if turn.error is not None:
        found.failed.append(f"{who}: {type(turn.error).__name__}: {turn.error}")
        _say_loudly(found.failed[-1])


def _describe(system: System, installed: Installed) -> dict[str, Any]:
    return {
        "name": system.name,
        "version": installed.version,
        "runtime": installed.runtime,
        "durable": system.durable,
        "recovery": system.recovery,
        "default_recovery": system.default_recovery,
        "setups": [
            {"name": setup.name, "about": setup.about, "history": setup.history}
            for setup in system.setups
        ],
    }


def _figures(found: Played, systems: list[System]) -> list[Figure]:
    by_name = {system.name: system for system in systems}
    figures = []
    for (scenario, what, name, setup_name), turns in found.turns.items():
        setup: Setup = by_name[name].setup(setup_name)
        value, values, note = fold(turns)
        figures.append(
            Figure(
                scenario=scenario,
                what=what,
                unit=turns[0].unit,
                better=turns[0].better,
                system=name,
                setup=setup_name,
                value=value,
                values=values,
                note=note,
                history=setup.history,
                is_lead=setup.is_lead,
                is_default=setup.is_default,
            )
        )
    return figures
