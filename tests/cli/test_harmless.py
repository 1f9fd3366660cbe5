"""What came from the database is escaped on its way to a screen: nothing of it moves a terminal or turns it round."""

from __future__ import annotations

import json
import sqlite3
import unicodedata
from typing import Any

import pytest

from fastjobs.cli.printing import harmless, readable
from tests.cli.shop import Shop, fail

C0 = [chr(n) for n in (*range(0x20), 0x7F)]
C1 = [chr(n) for n in range(0x80, 0xA0)]
BIDI = [chr(n) for n in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
LINES = ["\u2028", "\u2029", "\r\n", "\x85"]
UNSEEN = ["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\U000e0041", "\ufff9"]
NO_LETTERS = [
    "\u034f",
    "\u115f",
    "\u17b4",
    "\u180b",
    "\u2800",
    "\u3164",
    "\ufe00",
    "\uffa0",
    "\U000e0100",
    "\U000e01ef",
]
"""Letters and marks to Python, of which nothing is seen."""
ORDERS = [
    "\x1b[2J", "\x1b]52;c;cm0gLXJmIC8=\x07", "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\", "\x9b31m",
    "\x1b]0;title\x07", "\x1bP$q\x1b\\", "\x08\x08\x08hidden", "ann@example.com\u202emoc.live",
]  # fmt: skip
HOSTILE = list(dict.fromkeys([*C0, *C1, *BIDI, *LINES, *UNSEEN, *ORDERS]))
SURROGATES = ["\ud800", "\udfff", "\udc80x"]


def is_harmless(text: str) -> bool:
    """Whether each line of it is made of letters, signs and spaces."""
    return all(
        letter.isprintable() or letter == "\n" or unicodedata.category(letter) == "Zs" for letter in text
    )


@pytest.mark.parametrize("text", [*HOSTILE, *SURROGATES], ids=ascii)
def test_no_text_moves_a_terminal(text: str) -> None:
    told = harmless(f"before {text} after")
    assert told.startswith("before ")
    assert told.endswith(" after")
    assert told.isprintable()
    escaped = readable(json.dumps(text))
    assert escaped.isprintable()
    assert readable(json.dumps(text, ensure_ascii=False)).isprintable()


@pytest.mark.parametrize("text", [*UNSEEN, *NO_LETTERS], ids=ascii)
def test_what_is_not_seen_is_escaped(text: str) -> None:
    assert harmless(f"ad{text}min") == f"ad{ascii(text)[1:-1]}min"
    assert readable(json.dumps(f"ad{text}min")) == json.dumps(f"ad{text}min")


@pytest.mark.parametrize(
    "text",
    ["Zoë", "東京\u3000都", "1\u00a0000 €", "📬", "❤\ufe0f", "ß\\x1b", "עברית", "العربية", "a\u0301"],
    ids=ascii,
)
def test_a_text_that_a_person_may_have_written_is_left_as_it_is(text: str) -> None:
    assert harmless(text) == text
    assert readable(json.dumps(text)) == json.dumps(text, ensure_ascii=False)


@pytest.mark.parametrize(
    "payload",
    ['"\\ud83d', '"\\ud83d\\udc', "\\", '"\\u12', "\\u", '"\\udcec\\ud83d"', '"\\\\u00eb"', '"\\n\\t\\"\\/"'],
)
def test_a_value_that_was_cut_or_is_odd_is_told_as_it_stands(payload: str) -> None:
    assert readable(payload) == payload


def test_all_that_is_told_of_jobs_is_harmless_whatever_the_database_holds(shop: Shop) -> None:
    """Each field is written by hand, as someone with the database's password could."""

    async def work(app: Any) -> None:
        await fail(app, len(HOSTILE))
        for n in range(len(HOSTILE)):
            await app.report.push(after=60 + n)

    shop.do(work)
    with sqlite3.connect("app.db") as database:
        rows = database.execute("SELECT id, kind FROM fastjobs_jobs ORDER BY id").fetchall()
        for (id, kind), text in zip(rows, [*HOSTILE, *HOSTILE], strict=True):
            carried = json.dumps({"request_id": text, "trace": text}, ensure_ascii=False)
            database.execute(
                "UPDATE fastjobs_jobs SET payload = ?, error = ?, carried = ?, name = ?, progress = ? WHERE id = ?",
                (f'"{text}"', f"Error: {text}", carried, f"{kind}{text}", json.dumps(text), id),
            )
            if kind == "verify-mail":
                database.execute("UPDATE fastjobs_jobs SET kind = ? WHERE id = ?", (f"k{text}", id))
        database.execute("DELETE FROM fastjobs_kinds WHERE kind = 'verify-mail'")
        for text in HOSTILE:
            database.execute(
                "INSERT INTO fastjobs_kinds SELECT ?, * FROM"
                " (SELECT held_until, paused, first_seen FROM fastjobs_kinds WHERE kind = 'report')",
                (f"k{text}",),
            )
    database.close()
    ids = [str(id) for id, _kind in rows]
    for words in (
        ["jobs", "--all"],
        ["jobs", "--all", "--json"],
        ["jobs", "--waiting", "report", "--all"],
        ["jobs", "--waiting", "report", "--all", "--json"],
        ["jobs", "show", *ids],
        ["jobs", "show", *ids, "--json"],
        ["kinds"],
        ["kinds", "--json"],
    ):
        code, out, err = shop.typed(*words)
        assert (code, err) == (0, ""), words
        assert out.count("\n") >= len(HOSTILE)
        assert is_harmless(out), [letter for letter in out if not is_harmless(letter)]
        if "--json" in words:
            assert out.isascii()
            told = [json.loads(line) for line in out.splitlines()]
            kinds = {each["kind"] for each in told} - {"index", "report", "verify-mail"}
            assert kinds <= {f"k{text}" for text in HOSTILE}


@pytest.mark.parametrize("text", [*HOSTILE[1:], *SURROGATES], ids=ascii)
def test_what_was_typed_is_told_harmless_too(shop: Shop, text: str) -> None:
    for words in (
        ["jobs", "show", f"x{text}"],
        ["jobs", "retry", f"x{text}"],
        ["jobs", "delete", f"x{text}"],
        ["jobs", "cancel", f"x{text}"],
        ["jobs", "--kind", f"x{text}"],
        ["pause", f"x{text}"],
        ["jobs", f"x:{text}"],
        ["kinds", f"x{text}"],
    ):
        code, out, err = shop.typed(*words)
        assert (code in (1, 2), out, err.count("\n")) == (True, "", 1), (words, out, err)
        assert is_harmless(err)
