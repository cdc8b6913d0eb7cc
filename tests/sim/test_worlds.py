"""Simulated worlds end well, and the same seed is the same world."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rota.store.migrate import migrate
from tests.sim.run import read_known
from tests.sim.server import Server
from tests.sim.world import MIXES, World
from tests.support.guard import stop_servers
from tests.support.rules import rule
from tests.support.server import own_server

SEEDS = int(os.environ.get("SIM_SEEDS", "1"))
"""How many of each mix: `make mutants BY=sim` takes more."""


@pytest.fixture(scope="module")
def world_server(run_place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A PostgreSQL for worlds alone: what other tests do in theirs shows in its snapshots."""
    server = own_server(run_place, tmp_path_factory.mktemp("sim") / "postgresql.log")
    migrate(server.url())
    made = Server(server.url())
    yield made
    made.close()
    stop_servers(run_place, server.socket_dir.name)


@rule("M1", "M2")
@pytest.mark.parametrize("mix", MIXES)
def test_a_world_ends_well(world_server: Server, mix: str) -> None:
    for seed in range(1, SEEDS + 1):
        story = World(world_server, seed, MIXES[mix]).run()
        assert not story.faults, f"make sim MIX={mix} SEED={seed}: {story.faults[0]}"


@rule("M1", "M2")
def test_each_world_that_once_went_wrong_ends_well(world_server: Server) -> None:
    for mix, seed in read_known():
        assert World(world_server, seed, MIXES[mix]).run().faults == [], f"{mix} {seed}"


def test_the_same_seed_is_the_same_world(world_server: Server) -> None:
    mix = replace(MIXES["storm"], jobs=60, over_s=30)
    first, again, other = (World(world_server, seed, mix).run() for seed in (7, 7, 8))
    assert first.lines == again.lines and first.hash == again.hash != other.hash
