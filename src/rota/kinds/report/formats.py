"""How rows become a file: each page by itself, and then the pages in their order."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import IO, Any, Protocol

import msgspec

import rota

Row = Sequence[Any] | Mapping[str, Any]
"""The values of the columns in their order, or by their names."""
PORTION = 5_000
"""Rows that are held at once."""
XLSX_ROWS_MAX = 1_048_575
XLSX_TEXT_MAX = 32_767
XLSX_DIGITS = 15
_JSON = msgspec.json.Encoder(enc_hook=str)
"""Writes bytes in base64, and what JSON does not know as `str` shows it."""
Pages = Callable[[], Iterable[IO[bytes]]]
"""Opens the pages, one after the other; a format may read them twice."""


class Format(Protocol):
    """A kind of file."""

    ending: str
    media_type: str

    def write_page(self, rows: Iterable[list[Any]], columns: Sequence[str], file: IO[bytes]) -> int:
        """Write the rows of a page; return how many there are."""

    def join(self, pages: Pages, columns: Sequence[str], file: IO[bytes]) -> None:
        """Write the file of all pages."""


class Csv:
    """Comma-separated values in UTF-8, with a line of names; None is empty. What is neither text
    nor number is as in JSON."""

    ending, media_type = "csv", "text/csv; charset=utf-8"

    def write_page(self, rows: Iterable[list[Any]], columns: Sequence[str], file: IO[bytes]) -> int:
        """Write the rows of a page."""
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        writer, count = csv.writer(text), 0
        for row in rows:
            writer.writerow([_to_text(one) for one in row])
            count += 1
        text.detach()
        return count

    def join(self, pages: Pages, columns: Sequence[str], file: IO[bytes]) -> None:
        """Write the names, and the pages as they are."""
        self.write_page([list(columns)], columns, file)
        _copy(pages(), file)


class JsonLines:
    """An object of JSON on each line."""

    ending, media_type = "jsonl", "application/jsonl"

    def write_page(self, rows: Iterable[list[Any]], columns: Sequence[str], file: IO[bytes]) -> int:
        """Write the rows of a page."""
        count = 0
        for row in rows:
            file.write(_JSON.encode(dict(zip(columns, row, strict=True))) + b"\n")
            count += 1
        return count

    def join(self, pages: Pages, columns: Sequence[str], file: IO[bytes]) -> None:
        """Write the pages as they are."""
        _copy(pages(), file)


class Xlsx(JsonLines):
    """A workbook of one sheet (extra `xlsx`); a page is JSON Lines of its cells until it is joined.
    What is neither text, number nor truth value is as in JSON."""

    ending = "xlsx"
    media_type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

    def write_page(self, rows: Iterable[list[Any]], columns: Sequence[str], file: IO[bytes]) -> int:
        """Write the cells of a page. Raises Dead: a text is too long."""
        return super().write_page(([_to_cell(one) for one in row] for row in rows), columns, file)

    def join(self, pages: Pages, columns: Sequence[str], file: IO[bytes]) -> None:
        """Write the sheet row by row, in constant memory. Raises Dead: it has too many rows."""
        xlsxwriter = _need("xlsxwriter", "xlsx")
        # A text that begins with = stays a text: it may be a stranger's.
        texts = {"strings_to_formulas": False, "strings_to_urls": False}
        book = xlsxwriter.Workbook(file, {"constant_memory": True, **texts})
        try:
            _fill_sheet(book.add_worksheet(), _read(pages()), columns)
        finally:
            book.close()  # also after an error: it has files open


class Parquet(JsonLines):
    """A file of Apache Parquet (extra `parquet`); a page is JSON Lines until it is joined. A
    column is of the type that all of its values have, otherwise of texts; times are texts."""

    ending, media_type = "parquet", "application/vnd.apache.parquet"

    def join(self, pages: Pages, columns: Sequence[str], file: IO[bytes]) -> None:
        """Write a row group for each portion."""
        pyarrow = _need("pyarrow", "parquet")
        parquet = _need("pyarrow.parquet", "parquet")
        types = _find_types(_read(pages()), columns)
        schema = pyarrow.schema([(name, pyarrow.type_for_alias(types[name])) for name in columns])
        rows = _read(pages())
        with parquet.ParquetWriter(file, schema) as writer:
            while portion := list(islice(rows, PORTION)):
                for row in portion:
                    row.update({name: _fit(row[name], types[name]) for name in columns})
                writer.write_table(pyarrow.Table.from_pylist(portion, schema=schema))


FORMATS: dict[str, Format] = {one.ending: one for one in (Csv(), JsonLines(), Xlsx(), Parquet())}


def order_rows(rows: Iterable[Row], columns: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the values of each row in the order of the columns. Raises Dead: one does not fit."""
    for row in rows:
        given = [row.get(name) for name in columns] if isinstance(row, Mapping) else list(row)
        if len(given) != len(columns):
            raise rota.Dead(f"a row has {len(given)} values, and there are {len(columns)} columns")
        yield given


def _find_types(rows: Iterator[dict[str, Any]], columns: Sequence[str]) -> dict[str, str]:
    """Return for each column the type that all of its values fit."""
    seen: dict[str, set[str]] = {name: set() for name in columns}
    for row in rows:
        for name in columns:
            value = row[name]
            is_long = type(value) is int and not -(2**63) <= value < 2**63
            seen[name].add("other" if is_long else type(value).__name__)
    return {
        name: _TYPES.get(frozenset(kinds - {"NoneType"}), "string") for name, kinds in seen.items()
    }


_TYPES = {
    frozenset({"bool"}): "bool",
    frozenset({"int"}): "int64",
    frozenset({"float"}): "float64",
    frozenset({"int", "float"}): "float64",
}


def _fit(value: Any, kind: str) -> Any:
    if value is None or isinstance(value, str) or kind == "bool":
        return value
    if kind == "float64":
        return float(value)
    return value if kind == "int64" else msgspec.json.encode(value).decode()


def _copy(pages: Iterable[IO[bytes]], file: IO[bytes]) -> None:
    for page in pages:
        with page:
            shutil.copyfileobj(page, file)


def _read(pages: Iterable[IO[bytes]]) -> Iterator[dict[str, Any]]:
    for page in pages:
        with page:
            for line in page:
                yield msgspec.json.decode(line)


def _fill_sheet(sheet: Any, rows: Iterator[dict[str, Any]], columns: Sequence[str]) -> None:
    sheet.write_row(0, 0, columns)
    for place, row in enumerate(rows, 1):
        if place > XLSX_ROWS_MAX:
            raise rota.Dead(f"a sheet has at most {XLSX_ROWS_MAX:,} rows: take CSV")
        sheet.write_row(place, 0, [row[name] for name in columns])


def _to_text(value: Any) -> Any:
    """Return a text, a number or None as it is, and anything else as the text that JSON has."""
    if isinstance(value, str | float | None) or type(value) is int:
        return value
    text = _JSON.encode(value).decode()
    return msgspec.json.decode(text) if text.startswith('"') else text


def _to_cell(value: Any) -> Any:
    """Return a value as a cell keeps it: its numbers have 15 digits, whole ones end at 2**53."""
    if isinstance(value, Decimal) and value.is_finite() and -300 < value.adjusted() < 300:
        digits = "".join(map(str, value.as_tuple().digits)).strip("0")
        return float(value) if len(digits) <= XLSX_DIGITS else str(value)
    if type(value) is int and abs(value) > 2**53:
        return str(value)
    cell = value if isinstance(value, bool) else _to_text(value)
    if isinstance(cell, str) and len(cell) > XLSX_TEXT_MAX:
        raise rota.Dead(f"a cell has at most {XLSX_TEXT_MAX:,} characters: take CSV")
    return cell


def _need(module: str, extra: str) -> Any:
    import importlib  # noqa: PLC0415 - optional

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise rota.errors.ConfigurationError(
            f"this format needs a library: pip install 'rota[{extra}]'"
        ) from None
