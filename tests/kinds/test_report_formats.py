"""How rows become the file of a report: each page by itself, and then the pages in their order."""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import tracemalloc
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from ipaddress import ip_address
from pathlib import Path, PurePath
from typing import IO, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
import pytest

import rota
from rota.kinds.report import formats
from rota.kinds.report.formats import FORMATS, order_rows
from tests.support.rules import rule


def make_file(
    kind: str | formats.Format, pages: Iterable[Iterable[Any]], columns: list[str]
) -> IO[bytes]:
    """Write pages and join them, as the jobs of a report do."""
    used, written = FORMATS[kind] if isinstance(kind, str) else kind, []
    for rows in pages:
        page = io.BytesIO()
        used.write_page(order_rows(rows, columns), columns, page)
        written.append(page.getvalue())
    file = io.BytesIO()
    used.join(lambda: map(io.BytesIO, written), columns, file)
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
def test_a_text_of_a_stranger_is_no_formula_and_stays_as_it_is() -> None:
    texts = [
        '=HYPERLINK("http://x","y")',
        '{=HYPERLINK("http://x","y")}',
        "http://x.example",
        "007",
    ]
    cells = read_sheet(make_file("xlsx", [[(text,) for text in texts]], ["=1+1"]))["A"]
    assert [cell.value for cell in cells] == ["=1+1", *texts]
    assert {cell.data_type for cell in cells} == {"s"}
    assert [cell.hyperlink for cell in cells] == [None] * 5


FORMULAS = [
    "=1",
    " =1",
    "+1",
    "-1",
    "@SUM(1)",
    "\t=1",
    "\r1",
    "\x00=1",
    "\ufeff=1",
    "＝1",
    PurePath("@x"),
]


@rule("M45")
def test_csv_for_spreadsheets_has_a_mark_of_its_encoding_and_no_formulas() -> None:
    rows = [*((cell,) for cell in FORMULAS), ("a=1",), (-1,), (Decimal("-1.50"),), (None,), ("",)]
    file = make_file(formats.Csv(bom=True, formulas="escape"), [rows], ["=a"]).read()
    assert file.startswith(b"\xef\xbb\xbf'=a\r\n")
    read = list(csv.reader(io.StringIO(file.decode("utf-8-sig"), newline="")))
    assert read[1:] == [*([f"'{cell}"] for cell in FORMULAS), ["a=1"], ["-1"], ["-1.50"], [], [""]]
    assert make_file("csv", [[("=1", -1)]], ["a", "b"]).read() == b"a,b\r\n=1,-1\r\n"


class Color(Enum):
    RED = "red"


class Number(int):
    pass


class Share(float):
    pass


class Markup(str):
    __slots__ = ()
    __str__ = str.upper


class Duration(timedelta):
    pass


OLD = ZoneInfo("Europe/Berlin")
VALUES: list[tuple[Any, Any, Any, Any]] = [
    # What it is; in CSV; in JSON Lines, None: the text of CSV; in a sheet, None: as in JSON Lines.
    (Decimal("1234567890123.50"), "1234567890123.50", None, 1234567890123.5),
    (Decimal("0.1000000000000000000000"), "0.1000000000000000000000", None, 0.1),
    (Decimal("12345678901234567890.12"), "12345678901234567890.12", None, None),
    (Decimal("0E-8"), "0.00000000", None, 0),
    (Decimal("1E-8"), "0.00000001", None, 1e-8),
    (Decimal("1E+400"), f"1{'0' * 400}", None, None),
    (Decimal("NaN"), "NaN", None, None),
    (Decimal("-Infinity"), "-Infinity", None, None),
    (float("nan"), "NaN", None, None),
    (float("inf"), "Infinity", None, None),
    (Share(0.5), "0.5", 0.5, None),
    (1e22, "1e+22", 1e22, None),
    (7, "7", 7, None),
    (Number(8), "8", 8, None),
    (999_999_999_999_999, "999999999999999", 999_999_999_999_999, None),
    (2**53 + 1, "9007199254740993", 2**53 + 1, "9007199254740993"),
    (True, "true", True, None),
    ("true", "true", None, None),
    ('a,"b"\n\0', 'a,"b"\n\0', None, 'a,"b"\n_x0000_'),
    (None, "", ..., None),
    ("", "", None, None),
    (Markup("<b>"), "<b>", None, None),
    ({Markup("k"): [Markup("v")]}, '{"k":["v"]}', {"k": ["v"]}, '{"k":["v"]}'),
    (Color.RED, "red", None, None),
    ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}', {"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'),
    (
        [False, Decimal("0E-8"), float("nan")],
        '[false,"0.00000000","NaN"]',
        [False, "0.00000000", "NaN"],
        '[false,"0.00000000","NaN"]',
    ),
    (b"ab\xff", "\\x6162ff", "YWL/", None),
    (memoryview(b"ab"), "\\x6162", "YWI=", None),
    (date(2026, 1, 31), "2026-01-31", None, datetime.fromisoformat("2026-01-31T00:00:00")),
    (datetime.fromisoformat("2026-01-01T03:00:00.500000"), "2026-01-01T03:00:00.500000", None, ...),
    (
        datetime(2026, 1, 1, 3, tzinfo=UTC),
        "2026-01-01T03:00:00Z",
        None,
        datetime.fromisoformat("2026-01-01T03:00:00"),
    ),
    (
        datetime(2026, 7, 1, 1, tzinfo=OLD),
        "2026-07-01T01:00:00+02:00",
        None,
        datetime.fromisoformat("2026-06-30T23:00:00"),
    ),
    (datetime(1890, 1, 1, tzinfo=OLD), "1890-01-01T00:00:00+00:53:28", None, None),
    (date(1900, 2, 28), "1900-02-28", None, None),
    (time(3, 4, 5), "03:04:05", None, None),
    (timedelta(days=1, hours=2), "1 day, 2:00:00", "P1DT7200S", None),
    (Duration(hours=-26), "-1 day, -2:00:00", "-P1DT7200S", None),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001", None, None),
    (ip_address("192.0.2.1"), "192.0.2.1", None, None),
]


@rule("M72")
def test_a_value_has_one_form_in_each_format() -> None:
    rows, columns = [(value, "x") for value, *_ in VALUES], ["a", "b"]
    text = make_file("csv", [rows], columns).read().decode()
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""))][1:] == [
        in_csv for _, in_csv, *_ in VALUES
    ]
    lines = [json.loads(line)["a"] for line in make_file("jsonl", [rows], columns)]
    assert lines == [
        in_csv if in_json is None else None if in_json is ... else in_json
        for _, in_csv, in_json, _ in VALUES
    ]
    cells = [cell.value for cell in read_sheet(make_file("xlsx", [rows], columns))["A"]][1:]
    wanted = [
        value if in_cell is ... else line if in_cell is None else in_cell
        for (value, *_, in_cell), line in zip(VALUES, lines, strict=True)
    ]
    assert cells == wanted
    assert [type(value) is bool for value in cells] == [type(value) is bool for value in wanted]


@rule("M72")
def test_a_csv_is_read_by_copy_as_what_it_was_made_of(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "create temp table made (id int8, amount numeric(20,8), free numeric, text text, day date,"
        " bytes bytea, one uuid, at timestamptz, wall timestamp, hour time, gap interval,"
        " share float8, yes bool, doc jsonb, ip inet)"
    )
    connection.execute(
        """insert into made values
        (9223372036854775807, 0, 'NaN', '', '2026-01-31', '\\x00ff', gen_random_uuid(),
         '2026-01-01 03:00:00.5+02', '0001-01-01', '23:59:59.999999', '1 day 02:03:04.5', 1e300,
         true, '{"a": [1.5, null, "x"]}', '192.0.2.1'),
        (-1, 0.00000001, '1e400', E'a,"b"\r\n\t;', '9999-12-31', '', null,
         '1890-01-01 00:00:00+00', '2026-01-01', '00:00', '-1 hour', 'NaN', false, '[]', '::1');
        insert into made (id, amount, free, text, share, gap) values
        (0, -0.5, '-Infinity', '\\.', '-Infinity', '-1 day -02:03:04.5'),
        (1, 100, 0.10, 'NULL', 1, '-2 days'), (2, null, 1e-20, null, null, null)"""
    )
    found = connection.execute("select * from made order by id")
    columns = [column.name for column in found.description or ()]
    file = make_file("csv", [found.fetchall()], columns).read()
    connection.execute("create temp table read (like made)")
    for style in ("sql_standard", "iso_8601", "postgres"):
        connection.execute(f"truncate read; set intervalstyle = {style}".encode())
        with connection.cursor().copy("copy read from stdin (format csv, header)") as copy:
            copy.write(file)
        for table, other in (("made", "read"), ("read", "made")):
            query = f"select count(*) from (select * from {table} except all table {other})"
            assert connection.execute(query.encode()).fetchone() == (0,), (style, table)
    same = ["id", "amount", "free", "text", "day", "bytes", "one"]
    query = f"select {','.join(same)} from made where id <> 0 order by id"
    with connection.cursor().copy(
        f"copy ({query}) to stdout (format csv, header)".encode()
    ) as copy:
        written = b"".join(map(bytes, copy))
    ours = make_file("csv", [connection.execute(query.encode()).fetchall()], same).read()
    ends = re.compile(rb'\r?\n(?=(?:[^"]*"[^"]*")*[^"]*\Z)')  # of lines, not in quotes
    assert ends.split(ours) == ends.split(written)


@rule("M72")
def test_a_column_of_parquet_has_a_type_that_holds_each_value() -> None:
    nan, inf = float("nan"), float("inf")
    rows: list[Any] = [
        *((n, n, None, n, True, 2**53 + 1, 2**53 + 1) for n in range(6_000)),
        (1.5, "x", {"y": 2}, 2**70, False, 1, 0.5),
        (Share(inf), nan, [nan], 1, None, 2, nan),
        (Share(1.5), None, None, None, None, None, None),
    ]
    columns = ["float", "mixed", "late", "longer", "bool", "long", "inexact"]
    table = read_table(make_file("parquet", [rows], columns)).to_pylist()
    assert [tuple(row.values()) for row in table[-3:-1]] == [
        (1.5, "x", '{"y":2}', str(2**70), False, 1, "0.5"),
        (inf, "NaN", '["NaN"]', "1", None, 2, "NaN"),
    ]
    assert (table[0]["long"], table[0]["inexact"]) == (2**53 + 1, str(2**53 + 1))


class Shapeless:
    pass


class Broken:
    def __str__(self) -> str:
        raise LookupError("nothing here")


@rule("M72")
@pytest.mark.parametrize(
    ("row", "text"),
    [
        ((1, 2, 3), "a row has 3 values, and there are 2 columns"),
        ({"a": 1, "B": 2}, "one of both lacks 'B', 'b'"),
        ({"a": 1}, "lacks 'b'"),
        ({"a": 1, "b": 2, "c": 3}, "lacks 'c'"),
        ("ab", "not of the class str"),
        (7, "not of the class int"),
        ((1, Shapeless()), "row 2 of this page, column 'b': a value of the class Shapeless"),
        ((1, [{"x": {1}}]), "the class set"),
        ((1, Broken()), "row 2 of this page, column 'b': nothing here"),
        ((1, 10**5_000), "row 2 of this page, column 'b': Exceeds the limit"),
        ((1, print), "the class builtin_function_or_method"),
        ((1, "\udcff"), "surrogates not allowed"),
        ((1, {"\udcff": 1}), "surrogates not allowed"),
    ],
)
def test_what_a_format_does_not_hold_is_refused(row: Any, text: str) -> None:
    for kind in FORMATS:
        with pytest.raises(rota.Dead, match=text):
            make_file(kind, [[(1, 2), row]], ["a", "b"])


@rule("M72")
def test_what_a_sheet_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for cell in ("x" * 32_768, "\N{GRINNING FACE}" * 16_384, {"a": "x" * 32_768}, b"x" * 32_768):
        with pytest.raises(rota.Dead, match="32,767 characters"):
            make_file("xlsx", [[(cell,)]], ["a"])
    make_file("xlsx", [[("\N{GRINNING FACE}" * 16_383,)]], ["a"])
    with pytest.raises(rota.Dead, match="no place for column '16384' of row 1:"):
        make_file("xlsx", [], [*map(str, range(16_385))])
    workbook: Any = importlib.import_module("xlsxwriter.workbook").Workbook
    add_worksheet = workbook.add_worksheet

    def add_small(book: Any) -> Any:
        sheet = add_worksheet(book)
        sheet.xls_rowmax = 3
        return sheet

    monkeypatch.setattr(workbook, "add_worksheet", add_small)
    with pytest.raises(rota.Dead, match="no place for column 'a' of row 4:"):
        make_file("xlsx", [[(1,), (2,), (3,)]], ["a"])


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
