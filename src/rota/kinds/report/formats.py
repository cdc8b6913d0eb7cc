"""Writes rows as a file: each page by itself, then the pages in their order.

Each format has a table from a value's class to its written form (docs/how-to/reports.md). A value
whose class is in no table is refused.
"""

from __future__ import annotations

import base64
import math
import operator
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain, islice
from typing import IO, Any, Literal

import msgspec

import rota

Row = Sequence[Any] | Mapping[str, Any]
"""The values of the columns in their order, or by their names."""
Pages = Callable[[], Iterable[IO[bytes]]]
"""Opens the pages in their order; a format may read them twice."""
FormatName = Literal["csv", "jsonl", "xlsx", "parquet"]
Formulas = Literal["keep", "escape"]

PORTION = 5_000
"""Most rows in memory at once."""
EXACT_MAX = 2**53
"""Up to this number a float holds each whole number."""
XLSX_DIGITS = 15
"""Digits that a spreadsheet keeps of a number; it replaces further digits by zeros."""
XLSX_TEXT_MAX = 32_767
"""In UTF-16 units, as Excel counts: Excel calls a file with a longer text damaged."""
XLSX_WIDTH = 23
"""Characters of a column: a narrower column shows a date as ####."""
XLSX_DAY_0 = datetime(1899, 12, 30)  # noqa: DTZ001 - a sheet has no time zones
XLSX_FIRST = datetime(1900, 3, 1)  # noqa: DTZ001
"""Before this day a spreadsheet counts 29 February 1900, which never was."""
XLSX_DATE, XLSX_TIME, XLSX_UTC = SHOWN = (
    "yyyy-mm-dd",
    "yyyy-mm-dd hh:mm:ss",
    'yyyy-mm-dd hh:mm:ss "UTC"',
)


class Forms(dict[type, Callable[[Any], Any]]):
    """The written form of a value, by its class or the nearest base in the table."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        form = next(self[base] for base in kind.__mro__ if base in self)
        if issubclass(kind, Enum):
            form = lambda member: self.write(member.value)  # noqa: E731
        elif form is self[object] and hasattr(kind, "__index__"):  # of another library
            form = lambda number: self.write(operator.index(number))  # noqa: E731
        self[kind] = form
        return form

    def write(self, value: Any) -> Any:
        """Return the form of a value. Raises what the form's function raises: the value has no
        form."""
        return self[type(value)](value)


# JSON: the other formats write the same, if their tables say nothing else.


def _write_float(value: float) -> float | str:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        return "NaN" if value.is_nan() else str(value)
    return format(value, "f")


def _write_text(value: str) -> str:
    text = str.__str__(value)  # also of a subclass, as those of HTML are
    text.encode()  # raises: a surrogate has no UTF-8
    return text


def _write_time(value: date | time) -> str:
    """Write ISO 8601; msgspec would cut the seconds of an offset, which zones had before 1900."""
    text = value.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def _write_array(value: Sequence[Any]) -> list[Any]:
    return [AS_JSON.write(item) for item in value]


def _write_object(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(AS_JSON.write(name)): AS_JSON.write(item) for name, item in value.items()}


def _write_other(value: object) -> str:
    """Return the text that a class has of its own."""
    kind = type(value)
    if kind.__str__ is object.__str__:
        raise TypeError(f"a value of the class {kind.__qualname__} has no form")
    return _write_text(str(value))


_BYTES: tuple[type, ...] = (bytes, bytearray, memoryview)
AS_JSON = Forms(
    {
        type(None): lambda value: value,
        bool: bool,
        int: int,
        float: _write_float,
        Decimal: _write_decimal,
        str: _write_text,
        date: _write_time,  # also of a datetime
        time: _write_time,
        timedelta: lambda value: msgspec.to_builtins(timedelta.__pos__(value)),
        **dict.fromkeys(_BYTES, lambda value: base64.b64encode(value).decode()),
        list: _write_array,
        tuple: _write_array,
        dict: _write_object,
        object: _write_other,
    }
)


def _write_json(value: Any) -> str:
    return msgspec.json.encode(AS_JSON.write(value)).decode()


_FLAT: dict[type, Callable[[Any], str]] = dict.fromkeys((list, tuple, dict), _write_json)

# CSV: PostgreSQL's COPY … FROM reads the same value.

_FORMULA = re.compile(r"[\t\r\n]|[\s\x00-\x1f\ufeff]*[=+\-@＝＋－＠]")
"""The beginning of a text that a spreadsheet may take for a formula."""
_QUOTED = re.compile(r'[",\r\n]|\A(?:\\\.)?\Z')
"""Texts in quotes: also the empty text, as None is nothing, and the line that ends COPY's data."""


def _escape(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text


def _write_interval(value: timedelta) -> str:
    """Give each part its sign: IntervalStyle decides whether one sign counts for the next part."""
    text = str(timedelta.__abs__(value))
    return f"-{text.replace(', ', ', -')}" if value < timedelta() else text


AS_CSV = Forms(
    {
        **AS_JSON,
        **_FLAT,
        bool: lambda value: "true" if value else "false",
        timedelta: _write_interval,
        **dict.fromkeys(_BYTES, lambda value: f"\\x{value.hex()}"),
    }
)
AS_ESCAPED_CSV = Forms(
    {
        **AS_CSV,
        str: lambda value: _escape(_write_text(value)),
        object: lambda value: _escape(_write_other(value)),
    }
)

# XLSX: a cell. A number of too many digits is a text; a date is [days, style].


class _Cells(Forms):
    def write(self, value: Any) -> Any:
        cell = super().write(value)
        if isinstance(cell, str) and len(cell.encode("utf-16-le")) > 2 * XLSX_TEXT_MAX:
            raise ValueError(f"a cell has at most {XLSX_TEXT_MAX:,} characters: take CSV")
        return cell


def _write_int_cell(value: int) -> int | str:
    return int(value) if abs(value) < 10**XLSX_DIGITS else str(int(value))


def _write_decimal_cell(value: Decimal) -> float | str:
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    if value.is_finite() and len(digits) <= XLSX_DIGITS and -300 < value.adjusted() < 300:
        return float(value)
    return _write_decimal(value)


def _write_date_cell(value: date) -> list[Any] | str:
    if not isinstance(value, datetime):
        at, shown = datetime.combine(value, time()), XLSX_DATE
    elif value.utcoffset() is None:
        at, shown = value.replace(tzinfo=None), XLSX_TIME
    else:
        at, shown = value.astimezone(UTC).replace(tzinfo=None), XLSX_UTC
    days = datetime.__sub__(at, XLSX_DAY_0) / timedelta(1)
    return _write_time(value) if at < XLSX_FIRST else [days, shown]


AS_CELLS = _Cells(
    {
        **AS_JSON,
        **_FLAT,
        int: _write_int_cell,
        Decimal: _write_decimal_cell,
        date: _write_date_cell,
    }
)

# Parquet: as JSON, but a float that JSON does not hold stands as itself in a list.

AS_TABLE = Forms(
    {
        **AS_JSON,
        **_FLAT,
        float: lambda value: float(value) if math.isfinite(value) else [_write_float(value)],
    }
)


@dataclass(frozen=True)
class Format:
    """A kind of file. A page is an object of JSON on each line, and so is the file."""

    ending = "jsonl"
    media_type = "application/jsonl"
    forms = AS_JSON

    def write_page(self, rows: Iterable[list[Any]], columns: Sequence[str], file: IO[bytes]) -> int:
        """Write a page's rows; return their number. Raises Dead: a value has no form."""
        count = 0
        for count, row in enumerate(rows, 1):
            try:
                line = self.make_line(row, columns)
            except Exception:
                self._refuse(row, columns, count)
                raise
            file.write(line)
        return count

    def _refuse(self, row: list[Any], columns: Sequence[str], number: int) -> None:
        """Raise Dead for the first value of a row that cannot be written."""
        for name, value in zip(columns, row, strict=True):
            try:
                self.make_line([value], [name])
            except Exception as error:  # noqa: BLE001 - its class may be anybody's
                place = f"row {number} of this page, column {name!r}"
                raise rota.Dead(f"{place}: {str(error) or type(error).__name__}") from None

    def make_line(self, row: list[Any], columns: Sequence[str]) -> bytes:
        forms = map(self.forms.write, row)
        return msgspec.json.encode(dict(zip(columns, forms, strict=True))) + b"\n"

    def join(self, pages: Pages, columns: Sequence[str], file: IO[bytes]) -> None:
        """Write the file of all pages. Raises Dead: the pages do not fit."""
        for page in pages():
            with page:
                shutil.copyfileobj(page, file)


@dataclass(frozen=True)
class Csv(Format):
    """Comma-separated values in UTF-8, with a line of names."""

    bom: bool = False
    formulas: Formulas = "keep"

    ending, media_type = "csv", "text/csv; charset=utf-8"

    @property
    def forms(self) -> Forms:  # type: ignore[override]
        return AS_ESCAPED_CSV if self.formulas == "escape" else AS_CSV

    def make_line(self, row: list[Any], columns: Sequence[str]) -> bytes:
        return f"{','.join(map(_quote, map(self.forms.write, row)))}\r\n".encode()

    def join(self, pages: Pages, columns: Sequence[str], file: IO[bytes]) -> None:
        """Write the names, and the pages as they are."""
        file.write(b"\xef\xbb\xbf" if self.bom else b"")
        self.write_page([list(columns)], columns, file)
        super().join(pages, columns, file)


def _quote(form: str | float | None) -> str:
    if not isinstance(form, str):
        return "" if form is None else str(form)
    return '"' + form.replace('"', '""') + '"' if _QUOTED.search(form) else form


class Xlsx(Format):
    """A workbook of one sheet (extra `xlsx`)."""

    ending, forms = "xlsx", AS_CELLS
    media_type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

    def join(self, pages: Pages, columns: Sequence[str], file: IO[bytes]) -> None:
        """Write the sheet row by row, in constant memory."""
        xlsxwriter = _need("xlsxwriter", "xlsx")
        book = xlsxwriter.Workbook(file, {"constant_memory": True})
        try:
            _fill_sheet(book, chain([dict(zip(columns, columns, strict=True))], _read(pages())))
        finally:
            book.close()  # also after an error: it has files open


def _fill_sheet(book: Any, rows: Iterator[dict[str, Any]]) -> None:
    styles = {shown: book.add_format({"num_format": shown}) for shown in SHOWN}
    sheet = book.add_worksheet()
    for place, row in enumerate(rows):
        if place == 0:
            sheet.set_column(0, len(row) - 1, XLSX_WIDTH)
        for column, (name, cell) in enumerate(row.items()):
            if _put(sheet, (place, column), cell, styles):
                raise rota.Dead(
                    f"a sheet has no place for column {name!r} of row {place + 1:,}: it has "
                    "1,048,576 rows and 16,384 columns; take CSV"
                )


def _put(sheet: Any, at: tuple[int, int], cell: Any, styles: Mapping[str, Any]) -> Any:
    """Write a cell; return 0, or another number if the sheet refuses the cell."""
    if isinstance(cell, str):  # `write` would guess: a stranger's text may look like a formula
        return sheet.write_string(*at, cell)
    if isinstance(cell, list):
        return sheet.write_number(*at, cell[0], styles[cell[1]])
    return sheet.write(*at, cell)


class Parquet(Format):
    """A file of Apache Parquet (extra `parquet`). A column has the type that holds all its values
    exactly, else text."""

    ending, media_type, forms = "parquet", "application/vnd.apache.parquet", AS_TABLE

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


def _find_types(rows: Iterator[dict[str, Any]], columns: Sequence[str]) -> dict[str, str]:
    seen: dict[str, set[str]] = {name: set() for name in columns}
    for row in rows:
        for name in columns:
            seen[name].add(_name_type(row[name]))
    return {name: _choose_type(kinds - {"NoneType"}) for name, kinds in seen.items()}


def _name_type(value: Any) -> str:
    if isinstance(value, list):
        return "float"
    if type(value) is not int or -EXACT_MAX <= value <= EXACT_MAX:
        return type(value).__name__
    return "long" if -(2**63) <= value < 2**63 else "longer"


def _choose_type(kinds: set[str]) -> str:
    held = {"bool": {"bool"}, "int64": {"int", "long"}, "float64": {"int", "float"}}
    return next((kind for kind, fits in held.items() if kinds and kinds <= fits), "string")


def _fit(value: Any, kind: str) -> Any:
    if isinstance(value, list):
        [value] = value
    if kind == "float64" and value is not None:
        return float(value)
    if kind == "string" and not isinstance(value, str | None):
        return msgspec.json.encode(value).decode()
    return value


FORMATS: dict[str, Format] = {form.ending: form for form in (Csv(), Format(), Xlsx(), Parquet())}


def order_rows(rows: Iterable[Row], columns: Sequence[str]) -> Iterator[list[Any]]:
    """Yield each row's values in the order of the columns. Raises Dead: a row does not fit."""
    names = set(columns)
    for row in rows:
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise rota.Dead(f"a row is a tuple or a dict, not of the class {type(row).__name__}")
        if isinstance(row, Mapping) and (wrong := names.symmetric_difference(row)):
            listed = ", ".join(sorted(map(repr, wrong)))
            raise rota.Dead(f"a row has other names than the columns: one of both lacks {listed}")
        given = [row[name] for name in columns] if isinstance(row, Mapping) else list(row)
        if len(given) != len(columns):
            raise rota.Dead(f"a row has {len(given)} values, and there are {len(columns)} columns")
        yield given


def _read(pages: Iterable[IO[bytes]]) -> Iterator[dict[str, Any]]:
    for page in pages:
        with page:
            for line in page:
                yield msgspec.json.decode(line)


def _need(module: str, extra: str) -> Any:
    import importlib  # noqa: PLC0415 - optional

    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise rota.errors.ConfigurationError(
            f"this format needs a library: pip install 'rota[{extra}]'"
        ) from None
