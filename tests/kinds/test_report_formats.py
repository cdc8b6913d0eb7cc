"""How rows become the file of a report: each page by itself, and then the pages in their order."""

from __future__ import annotations

import csv
import importlib
import io
import json
import tracemalloc
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any

import pytest

import rota
from rota.kinds.report import formats
from rota.kinds.report.formats import FORMATS, order_rows
from tests.support.rules import rule


def make_file(kind: str, pages: Iterable[Iterable[Any]], columns: list[str]) -> IO[bytes]:
    """Write pages and join them, as the jobs of a report do."""
    written = []
    for rows in pages:
        page = io.BytesIO()
        FORMATS[kind].write_page(order_rows(rows, columns), columns, page)
        written.append(page.getvalue())
    file = io.BytesIO()
    FORMATS[kind].join(lambda: map(io.BytesIO, written), columns, file)
    file.seek(0)
    return file


def read_sheet(file: IO[bytes]) -> Any:
    openpyxl: Any = importlib.import_module("openpyxl")
    return openpyxl.load_workbook(file).active


def read_table(file: IO[bytes]) -> Any:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    return parquet.read_table(file)


@rule("M72")
def test_each_format_has_all_rows_of_all_pages_in_order() -> None:
    pages = [[(number, None) for number in range(at, at + 3)] for at in (0, 3, 6)]
    columns = ["number", "none"]
    text = make_file("csv", pages, columns).read().decode().splitlines()
    assert [row[0] for row in csv.reader(text)] == ["number", *map(str, range(9))]
    assert [json.loads(line)["number"] for line in make_file("jsonl", pages, columns)] == [
        *range(9)
    ]
    sheet = read_sheet(make_file("xlsx", pages, columns))
    assert [row[0] for row in sheet.values] == ["number", *range(9)]
    assert read_table(make_file("parquet", pages, columns)).column("number").to_pylist() == [
        *range(9)
    ]


@rule("M45")
def test_a_text_of_a_stranger_is_no_formula() -> None:
    rows = [('=HYPERLINK("http://x","y")',), ("http://x.example",)]
    cells = read_sheet(make_file("xlsx", [rows], ["text"]))["A"]
    assert [one.value for one in cells][1:] == ['=HYPERLINK("http://x","y")', "http://x.example"]
    assert {one.data_type for one in cells} == {"s"}
    assert [one.hyperlink for one in cells] == [None] * 3


VALUES: list[tuple[Any, str, Any]] = [
    # what it is, in CSV, in a sheet
    (Decimal("1234567890123.50"), "1234567890123.50", 1234567890123.5),
    (Decimal("0.1000000000000000000000"), "0.1000000000000000000000", 0.1),
    (Decimal("12345678901234567890.12"), "12345678901234567890.12", "12345678901234567890.12"),
    (Decimal("1E+400"), "1E+400", "1E+400"),
    (Decimal("NaN"), "NaN", "NaN"),
    (True, "true", True),
    ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}', '{"a":[1,null,"ü"]}'),
    ([False, Decimal("1.5")], '[false,"1.5"]', '[false,"1.5"]'),
    (b"ab\xff", "YWL/", "YWL/"),
    (datetime(2026, 1, 1, 3, tzinfo=UTC), "2026-01-01T03:00:00Z", "2026-01-01T03:00:00Z"),
    (ip_address("192.0.2.1"), "192.0.2.1", "192.0.2.1"),
    (7, "7", 7),
    (12345678901234567, "12345678901234567", "12345678901234567"),
    (0.5, "0.5", 0.5),
    ("true", "true", "true"),
    (None, "", None),
]


@rule("M72")
def test_values_are_numbers_truth_values_or_the_texts_of_json_in_each_format() -> None:
    rows, columns = [(value, "x") for value, *_ in VALUES], ["a", "b"]
    text = make_file("csv", [rows], columns).read().decode()
    assert [one[0] for one in csv.reader(text.splitlines())][1:] == [one for _, one, _ in VALUES]
    cells = [one.value for one in read_sheet(make_file("xlsx", [rows], columns))["A"]][1:]
    assert cells == [one for *_, one in VALUES]
    assert [type(one) for one in cells] == [type(one) for *_, one in VALUES]
    lines = [json.loads(line)["a"] for line in make_file("jsonl", [rows], columns)]
    assert lines[0] == "1234567890123.50"
    assert lines[6:9] == [{"a": [1, None, "ü"]}, [False, "1.5"], "YWL/"]


def test_parquet_keeps_each_value() -> None:
    rows: list[Any] = [
        *((n, n, None, n, True) for n in range(6_000)),
        (1.5, "x", {"y": 2}, 2**70, False),
    ]
    file = make_file("parquet", [rows], ["float", "mixed", "late", "long", "bool"])
    assert read_table(file).to_pylist()[-1] == {
        "float": 1.5, "mixed": "x", "late": '{"y":2}', "long": str(2**70), "bool": False,
    }  # fmt: skip


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(rota.Dead, match="a row has 3 values, and there are 2 columns"):
        make_file("csv", [[(1, 2), (1, 2, 3)]], ["a", "b"])
    with pytest.raises(rota.Dead, match="32,767 characters"):
        make_file("xlsx", [[("x" * 40_000,)]], ["a"])


@rule("M72")
def test_a_page_of_many_rows_is_not_held_in_memory() -> None:
    def rows() -> Iterator[list[str]]:
        for number in range(5_000):
            yield [f"{number:500}"]

    for kind in ("csv", "jsonl", "xlsx", "parquet"):
        page = io.BytesIO(bytes(3_000_000))  # so that what is written needs no memory
        tracemalloc.start()
        FORMATS[kind].write_page(rows(), ["a"], page)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 300_000, kind


@rule("M72")
def test_the_pages_of_a_report_are_not_held_in_memory_when_they_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "PORTION", 20)
    for kind in ("csv", "jsonl", "xlsx", "parquet"):
        page, whole = tmp_path / kind, io.BytesIO(bytes(3_000_000))
        with page.open("wb") as file:
            FORMATS[kind].write_page(([f"{number:2000}"] for number in range(150)), ["a"], file)
        pages = partial(map, Path.open, [page] * 4, ["rb"] * 4)
        FORMATS[kind].join(pages, ["a"], io.BytesIO())  # which also imports what it needs
        tracemalloc.start()
        FORMATS[kind].join(pages, ["a"], whole)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 600_000, (kind, peak)
