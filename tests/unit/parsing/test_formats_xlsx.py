from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import openpyxl
import pytest

from slackwater.errors import DataError
from slackwater.receiver.formats import xlsx_file
from slackwater.receiver.formats.read import check_rows
from slackwater.receiver.formats.xlsx_file import parse_xlsx
from slackwater.receiver.parsing import compression
from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.sources.definition import Source
from slackwater.sources.file_format import Xlsx
from tests.fakes_receiver import RECEIVED, a_source
from tests.memory import python_peak

pytestmark = pytest.mark.unit

AT = "2013-03-08T12:00:00Z"
NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)
SOURCE = a_source()
SHEET, SHARED = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"
NAMESPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "file"


def write(
    file: Path, *rows: Sequence[object], change_workbook: Callable[[openpyxl.Workbook], object] = lambda _: None
) -> None:
    workbook = openpyxl.Workbook()
    for row in rows:
        workbook.active.append(row)
    change_workbook(workbook)
    workbook.save(file)


def rewrite(file: Path, part: str, change: Callable[[str], str]) -> None:
    """Replace a part of a workbook with content that a faulty or malicious program may write."""
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    changed = change(parts[part].decode())
    assert changed != parts[part].decode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**parts, part: changed.encode()}.items():
            archive.writestr(name, content)


def share_strings(file: Path) -> None:
    """Move the strings of cells to the shared strings, as Excel does."""
    with zipfile.ZipFile(file) as archive:
        strings = sorted(set(re.findall("<is><t>(.*?)</t></is>", archive.read(SHEET).decode())))
    items = "".join(f"<si><t>{string}</t></si>" for string in strings)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(SHARED, f'<sst xmlns="{NAMESPACE}" count="{len(strings)}">{items}</sst>')
    content_type = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    override = f'<Override PartName="/{SHARED}" ContentType="{content_type}"/></Types>'
    rewrite(file, "[Content_Types].xml", lambda part: part.replace("</Types>", override))
    inline = re.compile(r't="inlineStr"><is><t>(.*?)</t></is>')
    rewrite(file, SHEET, lambda part: inline.sub(lambda cell: f't="s"><v>{strings.index(cell[1])}</v>', part))


def read(file: Path, source: Source = SOURCE, *, sheet: str | None = None) -> list[CheckedEvents]:
    return list(
        check_rows(parse_xlsx(file, Xlsx(sheet=sheet), source, name="things.xlsx"), source, received_at=RECEIVED)
    )


def accepted(result: Sequence[CheckedEvents]) -> list[dict[str, object]]:
    return [row for block in result for row in block.table.to_pylist()]


def rejected(result: Sequence[CheckedEvents]) -> list[tuple[int, int | None, str, object]]:
    return [
        (item.index, item.line, str(item.rule), json.loads(item.text or ""))
        for block in result
        for item in block.rejected
    ]


def test_a_header_alone_has_no_rows(file):
    write(file, ["id", "at"])
    assert read(file) == []


def test_cells_are_converted_to_the_types_of_their_fields(file):
    write(
        file,
        ["id", "at", "count", "size", "day", 5],
        [5, AT, 7.0, 7, "2013-03-08", 7.0],
        [1.5, AT],
        [datetime(2013, 3, 8), AT, None, None, datetime(2013, 3, 8), datetime(2013, 3, 8, 1)],
        ["#N/A", AT, "=1/0"],
        ["a", AT, 7.5],
        ["b", AT, "#DIV/0!"],
        ["c", AT, None, True],
        ["d", AT, None, None, datetime(2013, 3, 8, 1)],
        [time(12, 30), AT, None, None, time(12, 30)],
        [timedelta(days=1, hours=2, seconds=3), AT],
        ["e", date(2013, 3, 8)],
    )
    result = read(file)
    assert [(row["id"], row["count"], row["size"], row["day"], row["_extra"]) for row in accepted(result)] == [
        ("5", 7, 7.0, date(2013, 3, 8), '{"5":7}'),
        ("2013-03-08T00:00:00", None, None, date(2013, 3, 8), '{"5":"2013-03-08T01:00:00"}'),
        ("#N/A", None, None, None, '{"5":null}'),
        ("26:00:03", None, None, None, '{"5":null}'),
    ]
    assert [(index, rule) for index, _, rule, _ in rejected(result)] == [
        (index, "wrong_type") for index in (1, 4, 5, 6, 7, 8, 10)
    ]
    records = [record for _, _, _, record in rejected(result)]
    assert [(record["id"], record["count"], record["day"]) for record in records] == [
        (1.5, None, None),
        ("a", 7.5, None),
        ("b", "#DIV/0!", None),
        ("c", None, None),
        ("d", None, "2013-03-08T01:00:00"),
        ("12:30:00", None, "12:30:00"),
        ("e", None, None),
    ]


def test_shared_strings_are_read(file):
    write(file, ["id", "at"], ["ü", AT], ["a", AT], ["ü", AT])
    share_strings(file)
    assert [row["id"] for row in accepted(read(file))] == ["ü", "a", "ü"]


def test_large_numbers_are_exact_or_rejected(file):
    write(file, ["id", "at", "count", "size"], [1, AT, 1, 1], [2, AT, 3, 2], ["a", AT, 2])
    rewrite(file, SHEET, lambda xml: xml.replace("<v>1</v>", "<v>1.23E+15</v>").replace("<v>2</v>", "<v>1E+300</v>"))
    result = read(file)
    assert [(row["id"], row["count"], row["size"]) for row in accepted(result)] == [
        ("1230000000000000", 123 * 10**13, 1.23e15)
    ]
    assert [item.reason for item in result[0].rejected] == [
        "id: a string is expected, not 1e+300",
        "count: 1e+300 does not fit into 64 bits",
    ]


@pytest.mark.parametrize("formats", [[], ["%d/%m/%Y %H:%M"], ["epoch_s"]])
def test_dates_are_in_the_timezone_of_the_source(file, formats):
    source = a_source(
        fields={"id": "string", "at": {"type": "timestamp", "formats": formats}},
        timestamp={"field": "at", "timezone": "America/New_York"},
    )
    cells = [
        datetime(2013, 3, 8, 7),
        datetime(2013, 3, 8),
        datetime(2013, 3, 10, 2, 30),
        datetime(2013, 7, 1, 12, 0, 0, 500_000),
    ]
    write(file, ["id", "at"], *([str(index), cell] for index, cell in enumerate(cells)))
    result = read(file, source)
    assert [row["at"] for row in accepted(result)] == [
        NOON,
        datetime(2013, 3, 8, 5, tzinfo=UTC),
        datetime(2013, 7, 1, 16, 0, 0, 500_000, tzinfo=UTC),
    ]
    [(index, line, rule, record)] = rejected(result)
    assert (index, line, rule, record) == (2, 4, "wrong_type", {"id": "2", "at": "2013-03-10T02:30:00"})


def test_a_date_outside_the_range_of_excel_is_rejected(file):
    write(file, ["id", "at", "day"], ["a", AT, date(2013, 3, 8)])
    rewrite(file, SHEET, lambda record: record.replace("<v>41341</v>", "<v>99999999</v>"))
    [(_, _, rule, record)] = rejected(read(file))
    assert (rule, record["day"]) == ("wrong_type", "#VALUE!")


def test_a_formula_has_its_last_calculated_value_or_none(file):
    write(file, ["id", "at", "count"], ["a", AT, "=1+1"], ["b", AT, "=2+2"])
    rewrite(
        file,
        SHEET,
        lambda xml: xml.replace("<f>2+2</f><v></v>", "<f>2+2</f><v>4</v>").replace(
            "<f>2+2</f><v />", "<f>2+2</f><v>4</v>"
        ),
    )
    assert [row["count"] for row in accepted(read(file))] == [None, 4]


def test_empty_rows_count_as_lines_but_not_as_rows(file):
    write(
        file, [], [None, " "], [" id", "at ", None], [], ["a", AT], [None, None], ["", " ", ""], [None, AT], ["b", AT]
    )
    result = read(file)
    assert [row["id"] for row in accepted(result)] == ["a", "b"]
    assert rejected(result) == [(1, 8, "missing", {"id": None, "at": AT})]


def test_a_value_in_a_column_without_a_name_rejects_its_row(file):
    write(
        file,
        ["id", None, "at"],
        ["a", None, AT],
        ["b", 5, AT],
        ["c", None, AT, None, " "],
        [None, None, AT],
        ["d", None, AT, None, datetime(2013, 3, 8)],
        ["e", None, AT],
        ["f"],
    )
    result = read(file)
    assert [row["id"] for row in accepted(result)] == ["a", "c", "e"]
    assert [(index, line, rule) for index, line, rule, _ in rejected(result)] == [
        (1, 3, "wrong_width"),
        (3, 5, "missing"),
        (4, 6, "wrong_width"),
        (6, 8, "missing"),
    ]
    assert [item.reason for item in result[0].rejected if item.rule == "wrong_width"] == [
        "column B holds 5, but the header has no name for this column",
        "column E holds '2013-03-08T00:00:00', but the header has no name for this column",
    ]
    assert rejected(result)[2][3] == {"id": "d", "at": AT, "E": "2013-03-08T00:00:00"}


@pytest.mark.parametrize("rows", [1, 2, 7, 100])
def test_indexes_continue_from_block_to_block(file, monkeypatch, rows):
    monkeypatch.setattr(xlsx_file, "_BLOCK_ROWS", rows)
    cells = [[None if index % 5 == 3 else str(index), AT, *(["x"] if index % 7 == 6 else [])] for index in range(23)]
    write(file, ["id", "at"], *cells)
    result = read(file)
    assert max(block.table.num_rows + len(block.rejected) for block in result) <= rows
    wrong = {3, 6, 8, 13, 18, 20}
    assert [row["id"] for row in accepted(result)] == [str(index) for index in range(23) if index not in wrong]
    assert [(index, line) for index, line, _, _ in rejected(result)] == [(index, index + 2) for index in sorted(wrong)]


def add_sheets(workbook: openpyxl.Workbook) -> None:
    workbook.active.sheet_state = "hidden"
    for title in ("Mai", "Juni"):
        sheet = workbook.create_sheet(title)
        sheet.append(["id", "at"])
        sheet.append([title, AT])


@pytest.mark.parametrize(("sheet", "ids"), [(None, ["Mai"]), ("Juni", ["Juni"]), ("Sheet", ["hidden"])])
def test_the_sheet_is_the_named_one_or_the_first_visible_one(file, sheet, ids):
    write(file, ["id", "at"], ["hidden", AT], change_workbook=add_sheets)
    assert [row["id"] for row in accepted(read(file, sheet=sheet))] == ids


def test_an_unknown_sheet_is_an_error_that_lists_the_known_ones(file):
    write(file, ["id", "at"], change_workbook=add_sheets)
    with pytest.raises(DataError, match=r"^things\.xlsx: no sheet 'mai' \(sheets: Sheet, Mai, Juni\)"):
        read(file, sheet="mai")


def test_a_workbook_with_hidden_sheets_only_needs_a_name(file):
    write(file, ["id", "at"])
    rewrite(file, "xl/workbook.xml", lambda xml: xml.replace('state="visible"', 'state="hidden"'))
    with pytest.raises(DataError, match=r"no visible sheet \(sheets: Sheet\): set the format's"):
        read(file)
    assert read(file, sheet="Sheet") == []


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ([], "empty: a header with the names of its columns is expected"),
        (["ID", "at"], r"its header lacks id \(it has: ID, at\)"),
        (["id", "at", "x", " x"], "two columns have the same name: x: rename one of them"),
    ],
)
def test_a_sheet_without_a_valid_header_is_an_error(file, header, reason):
    write(file, header)
    with pytest.raises(DataError, match=rf"^things\.xlsx: {reason}$"):
        read(file)


def test_the_dimensions_of_a_sheet_are_ignored(file):
    write(file, ["id", "at"], ["a", AT], ["b", AT])
    rewrite(file, SHEET, lambda xml: re.sub(r'<dimension ref="[^"]*"', '<dimension ref="A1"', xml))
    assert [row["id"] for row in accepted(read(file))] == ["a", "b"]


def test_rows_beyond_excel_s_limit_are_ignored(file):
    write(file, ["id", "at"], ["a", AT], ["b", AT])
    rewrite(file, SHEET, lambda xml: xml.replace('<row r="3"', '<row r="999999999999"'))
    assert [row["id"] for row in accepted(read(file))] == ["a"]


def old_workbook() -> bytes:
    return bytes.fromhex("d0cf11e0a1b11ae1") + bytes(504)


def archive(**files: bytes) -> bytes:
    created = io.BytesIO()
    with zipfile.ZipFile(created, "w") as written:
        for name, content in files.items():
            written.writestr(zipfile.ZipInfo(name.replace("__", ".")), content)
    return created.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"id,at\n", old_workbook(), b"PK\x03\x04", archive(a__txt=b"x"), archive(**{"[Content_Types].xml": b"<x/>"})],
    ids=["nothing", "csv", "xls", "cut off", "another archive", "no workbook in it"],
)
def test_a_file_that_is_not_a_workbook_is_an_error(file, content):
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"^things\.xlsx: not readable as an Excel workbook \(.*\): save it as \.xlsx"):
        read(file)


def test_a_workbook_that_is_broken_in_the_middle_is_an_error(file):
    write(file, ["id", "at"], *(["a", AT] for _ in range(20)))
    rewrite(file, SHEET, lambda xml: xml[: len(xml) // 2])
    with pytest.raises(DataError, match=r"^things\.xlsx: not readable as an Excel workbook"):
        read(file)


@pytest.mark.parametrize("part", [SHEET, SHARED, "xl/workbook.xml", "xl/styles.xml", "[Content_Types].xml"])
def test_entities_are_not_expanded(file, part):
    write(file, ["id", "at"], ["a", AT])
    share_strings(file)
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    rewrite(file, part, lambda xml: re.sub(r"^(<\?xml[^>]*\?>)?", lambda result: (result[1] or "") + bomb, xml))
    with pytest.raises(DataError, match="EntitiesForbidden"):
        read(file)


@pytest.mark.parametrize("limit", ["_MAX_BYTES", "_MAX_SHARED_STRINGS_BYTES"])
def test_a_workbook_that_is_too_large_is_an_error(file, monkeypatch, limit):
    write(file, ["id", "at"], ["a", AT])
    share_strings(file)
    monkeypatch.setattr(xlsx_file, limit, 100)
    with pytest.raises(
        DataError, match=r"^things\.xlsx: the workbook is too large to be read: send it as csv, or in parts$"
    ):
        read(file)


def test_an_archive_is_not_read_beyond_the_sizes_in_its_directory(file):
    write(file, ["id", "at"], ["a", AT])
    rewrite(file, SHEET, lambda xml: xml.replace("</sheetData>", f"</sheetData>{' ' * 5_000_000}"))
    content, name = bytearray(file.read_bytes()), SHEET.encode()
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(name))
    content[entry + 24 : entry + 28] = struct.pack("<I", 2_000)
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"^things\.xlsx: not readable as an Excel workbook"):
        read(file)


def zipped(content: bytes) -> bytes:
    return archive(things__xlsx=content)


@pytest.mark.parametrize(
    "wrap", [gzip.compress, zipped, lambda content: zipped(zipped(content))], ids=["gzip", "zip", "zip of zip"]
)
def test_one_compression_around_a_workbook_is_removed(file, wrap):
    write(file, ["id", "at"], ["a", AT])
    file.write_bytes(wrap(file.read_bytes()))
    if wrap(b"") == zipped(zipped(b"")):
        with pytest.raises(DataError, match="not readable as an Excel workbook"):
            read(file)
    else:
        assert [row["id"] for row in accepted(read(file))] == ["a"]
    assert [path.name for path in file.parent.iterdir()] == ["file"]


class TestMemory:
    def test_a_style_in_the_last_column_of_each_row_does_not_fill_the_memory(self, file):
        write(file, ["id", "at"])
        row = '<row r="{0}"><c r="A{0}"><v>{0}</v></c><c r="XFD{0}" s="1"/></row>'.format
        rows = "".join(row(number) for number in range(2, 602))
        rewrite(file, SHEET, lambda xml: xml.replace("</sheetData>", f"{rows}</sheetData>"))
        with python_peak() as peak:
            result = read(file)
        assert sum(len(block.rejected) for block in result) == 600
        assert peak.bytes < 10 * 2**20  # 600 rows of 16,384 cells have 75 MiB

    def test_a_value_in_the_last_column_still_rejects_its_row(self, file):
        write(file, ["id", "at"], ["a", AT])
        rewrite(
            file, SHEET, lambda xml: xml.replace("</row></sheetData>", '<c r="XFD2"><v>5</v></c></row></sheetData>')
        )
        ((_, line, rule, record),) = rejected(read(file))
        assert (line, rule, record["XFD"]) == (2, "wrong_width", 5)

    @pytest.mark.parametrize(("limit", "value"), [("_BLOCK_CELLS", 20), ("_BLOCK_CHARACTERS", 250)])
    def test_a_block_has_a_limited_number_of_cells_and_characters(self, file, monkeypatch, limit, value):
        monkeypatch.setattr(xlsx_file, limit, value)
        write(file, ["id", "at"], *([f"{number:02}", AT] for number in range(50)))
        result = read(file)
        assert [row["id"] for row in accepted(result)] == [f"{number:02}" for number in range(50)]
        assert len(result) >= 5

    def test_a_part_that_openpyxl_reads_as_a_whole_has_a_limited_size(self, file, monkeypatch):
        monkeypatch.setattr(xlsx_file, "_MAX_TREE_BYTES", 100)
        write(file, ["id", "at"], ["a", AT])
        with pytest.raises(DataError, match="the workbook is too large to be read"):
            read(file)

    def test_an_archive_of_too_many_parts_is_an_error(self, file, monkeypatch):
        monkeypatch.setattr(compression, "_MAX_DIRECTORY_BYTES", 100)
        write(file, ["id", "at"], ["a", AT])
        with pytest.raises(DataError, match=r"^things\.xlsx: a zip archive whose list of files has .* bytes"):
            read(file)
