"""What pages quote of the benchmarks is what the committed runs say."""

from __future__ import annotations

from bench import page
from bench.peers import quote
from bench.peers.systems import load

PEERS = [peer.name for peer in load() if not peer.name.startswith("Rota")]


def test_each_page_says_of_figures_what_the_runs_say() -> None:
    for file, text in page.make().items():
        assert file.read_text("utf-8") == text, f"run `python bench/page.py` for {file.name}"


def test_a_page_tells_a_peers_speed_only_in_a_table_of_the_run() -> None:
    loose = {
        sentence
        for file in page.list_pages()
        if "decisions" not in file.parts  # they are dated, and say how they measured
        for sentence in quote.find_loose(file.read_text("utf-8"), PEERS)
    }
    assert loose == set()


def test_a_peers_speed_in_a_sentence_is_found() -> None:
    table = "<!-- peers: Rota; Oban | drain: no-op jobs -->\nOban 7 jobs/s\n<!-- /peers -->"
    text = f"Rota is fast.\n\nIt is 3.5\ntimes as fast as Oban. Others.\n\n{table}\n"
    found = quote.find_loose(f"{text}\nObanic does 9 jobs/s.\n", PEERS)
    assert found == ["It is 3.5 times as fast as Oban."]
