"""`make sim SEED=417 MIX=storm`: tells the story of a seed, the shortest that still goes wrong."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rota.store.migrate import migrate
from tests.sim.server import Server
from tests.sim.world import MIXES, Mix, Story, World
from tests.support.guard import Run
from tests.support.server import shared_server

KNOWN = Path(__file__).with_name("seeds.txt")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim")
    add = parser.add_argument
    add("--seed", type=int, help="the story of this one; without it, new ones are looked for")
    add("--mix", choices=MIXES, action="append", help="defaults to each in turn")
    add("--first", type=int, default=int(time.time()) % 10**6, help="the first of these")
    add("--seconds", type=float, default=60.0, help="how long new ones are looked for")
    add("--worlds", type=int, help="instead of so long: so many, or until one goes wrong")
    options = parser.parse_args()
    mixes = options.mix or list(MIXES)
    run = Run()
    try:
        url = shared_server(run.place, run.place / "postgresql.log").url()
        migrate(url)
        server = Server(url)
        if options.seed is not None:
            return tell(server, options.seed, mixes[0])
        if options.worlds is not None:
            return find(server, mixes, options.first, options.worlds)
        return look(server, mixes, options.first, options.seconds)
    finally:
        run.end()


def tell(server: Server, seed: int, name: str) -> int:
    """Print the story of a seed; of one that goes wrong, the shortest story."""
    mix = MIXES[name]
    story = World(server, seed, mix).run()
    if story.faults:
        story = shrink(server, story)
    print(story.table())
    print(f"{name} {seed}: {story.hash}, {story.statements} statements, {len(story.faults)} wrong")
    return len(story.faults) > 0


def look(server: Server, mixes: list[str], first: int, for_s: float) -> int:
    """Try new seeds for so many seconds; print those that go wrong, and how many did not."""
    until = time.monotonic() + for_s
    tried = wrong = 0
    while time.monotonic() < until:
        name, seed = mixes[tried % len(mixes)], first + tried
        story = World(server, seed, MIXES[name]).run()
        tried += 1
        if story.faults:
            wrong += 1
            print(f"make sim MIX={name} SEED={seed}: {story.faults[0]}", flush=True)
    print(f"{tried} worlds from seed {first} on, {wrong} went wrong")
    return wrong > 0


def find(server: Server, mixes: list[str], first: int, most: int) -> int:
    """Print the first of so many seeds that goes wrong, if one does."""
    for seed in range(first, first + most):
        mix = mixes[seed % len(mixes)]
        if faults := World(server, seed, MIXES[mix]).run().faults:
            print(f"make sim MIX={mix} SEED={seed}: {faults[0]}", flush=True)
            return 1
    return 0


def shrink(server: Server, story: Story) -> Story:
    """Return the story of a world with fewer jobs, faults and workers that still goes wrong."""
    while True:
        for smaller in _list_smaller(story.mix):
            found = World(server, story.seed, smaller).run()
            if found.faults:
                story = found
                break
        else:
            return story


def _list_smaller(mix: Mix) -> Iterator[Mix]:
    for field in fields(Mix):
        value: Any = getattr(mix, field.name)
        least = {"jobs": 10, "workers": 1, "over_s": 10.0}.get(field.name, 0)
        if isinstance(value, bool):
            if value:
                fewer: Any = {field.name: False}
                yield replace(mix, **fewer)
        elif value > least:
            half = max(least, value // 2 if isinstance(value, int) else round(value / 2 - 0.01, 2))
            smaller: Any = {field.name: half}
            if half < value:
                yield replace(mix, **smaller)


def read_known() -> list[tuple[str, int]]:
    """Return the seeds that once went wrong, with their mixes."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    known = (line.split(maxsplit=2) for line in lines if line and not line.startswith("#"))
    return [(mix, int(seed)) for mix, seed, _ in known]


if __name__ == "__main__":
    sys.exit(main())
