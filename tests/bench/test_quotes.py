"""What pages quote of the benchmarks is what the committed runs say."""

from __future__ import annotations

from typing import Any

import pytest

from bench import page
from bench.peers import quote
from bench.peers.systems import load

PEERS = [one.name for one in load() if not one.name.startswith("Rota")]


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


def test_the_readme_says_in_words_where_rota_is_last() -> None:
    text = (page.ROOT / "README.md").read_text("utf-8")
    [row] = [line for line in text.splitlines() if line.startswith("| pick-up: p50 |")]
    rota, *peers = (float(cell.removesuffix(" ms")) for cell in row.strip("| ").split(" | ")[1:])
    assert (rota > max(peers)) == ("Rota starts a job later than the three others" in text)


DOCUMENT: dict[str, Any] = {
    "at": "2030-01-02T03:04:05Z",
    "load": "quiet",
    "skipped": {"RQ": "there is no redis-server here"},
    "scenarios": {"drain": "", "pick-up": ""},
    "systems": [
        {"name": name, "version": version, "durable": "each commit",
         "setups": [{"name": "best", "about": "100 at once", "history": history}]}
        for name, version, history in [("Rota", "1", "kept"), ("Oban", "2", "none")]
    ],
    "figures": [
        {"scenario": scenario, "what": what, "unit": unit, "better": better, "system": system,
         "setup": "best", "value": value, "is_lead": True}
        for scenario, what, unit, better, system, value in [
            ("drain", "no-op jobs", "jobs/s", "more", "Rota", 5000.4),
            ("drain", "no-op jobs", "jobs/s", "more", "Oban", 250.0),
            ("pick-up", "p50", "ms", "less", "Rota", 2.04),
            ("pick-up", "p50", "ms", "less", "Oban", 1.5),
        ]
    ],
}  # fmt: skip
"""A run."""
BLOCK = "<!-- peers: Rota; Oban | drain: no-op jobs; pick-up: p50 -->\n"


def test_a_table_of_a_page_is_written_from_the_run() -> None:
    text = f"Before.\n\n{BLOCK}| what was typed | 7 jobs/s |\n<!-- /peers -->\n\nAfter."
    filled = quote.fill(text, DOCUMENT)
    assert filled == (
        f"Before.\n\n{BLOCK}| | Rota 1 | Oban 2 |\n|---|---|---|\n"
        "| drain: no-op jobs | 5,000 jobs/s | 250 jobs/s |\n| pick-up: p50 | 2.04 ms | 1.5 ms |\n"
        "\nOne run on 2030-01-02.\n<!-- /peers -->\n\nAfter."
    )
    assert quote.fill(filled, DOCUMENT) == filled
    with pytest.raises(LookupError, match="no drain: no-op jobs of Celery"):
        quote.fill(text.replace("Oban", "Celery"), DOCUMENT)


def test_the_summary_of_a_run_begins_with_where_another_system_is_ahead() -> None:
    text = quote.summarise(DOCUMENT)
    assert "- pick-up: p50: Oban, best 1.5 ms; Rota 2.04 ms\n" in text
    assert text.index("ahead of Rota") < text.index("| drain |") < text.index("| Oban | 250 |")
    assert "SKIPPED: RQ: there is no redis-server here" in text
    assert text in page.write([], DOCUMENT)


def test_why_a_figure_is_missing_stands_under_its_table() -> None:
    *others, last = DOCUMENT["figures"]
    missing = {**last, "value": None, "note": "it fell behind"}
    text = quote.summarise({**DOCUMENT, "figures": [*others, missing]})
    assert "| Oban | none |\n\nWhere it is none, p50:\n\n- Oban: it fell behind\n" in text


def test_a_reason_of_several_figures_stands_once() -> None:
    *others, last = DOCUMENT["figures"]
    missing = [{**last, "what": what, "value": None, "note": "it fell behind"} for what in "ab"]
    text = quote.summarise({**DOCUMENT, "figures": [*others, *missing]})
    assert "Where it is none, a; b:\n\n- Oban: it fell behind\n" in text
    assert text.count("it fell behind") == 1


@pytest.mark.parametrize(("value", "fenced"), [(0.0, "yes"), (4.0, "no"), (None, "not shown")])
def test_the_summary_says_what_each_system_promises(value: float | None, fenced: str) -> None:
    what = {"scenario": "crash", "what": "stopped: late writes accepted", "unit": "jobs"}
    late = {**DOCUMENT["figures"][1], **what, "value": value, "note": ""}
    text = quote.summarise({**DOCUMENT, "figures": [*DOCUMENT["figures"], late]})
    assert f"| Oban | 100 at once | none | {fenced} | each commit |\n" in text
    assert "| Rota | 100 at once | kept | not shown | each commit |\n" in text


def test_a_peers_speed_in_a_sentence_is_found() -> None:
    text = f"Rota is fast.\n\nIt is 3.5\ntimes as fast as Oban. Others.\n\n{BLOCK}Oban 7 jobs/s\n"
    found = quote.find_loose(f"{text}<!-- /peers -->\n\nObanic does 9 jobs/s.\n", PEERS)
    assert found == ["It is 3.5 times as fast as Oban."]
