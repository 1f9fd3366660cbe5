"""`make lines`: what it takes for a line of code, and whose."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / ".ci" / "lines.py"
SOURCE = '''\
"""What the module is.

In a few lines.
"""

import os  # a comment beside code

# A comment.
SQL = """
SELECT id

FROM jobs
"""
"""What the text is."""
TOTAL = (
    1
)


class Thing:
    """A class."""

    def work(self) -> str:
        """A docstring."""
        return f"{self}"

    def nothing(self) -> None: "on the line of its code"
'''
CODE = 1 + 4 + 3 + 1 + 2 + 1
"""The import, the SQL without its empty line, TOTAL, the class, a def and its return, and the last def."""


@pytest.fixture(scope="module")
def lines() -> Any:
    spec = spec_from_file_location("lines", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_line_of_code_is_no_blank_one_no_comment_and_no_docstring(lines: Any) -> None:
    assert lines.count(SOURCE) == CODE
    assert lines.count("") == lines.count("\n\n# nothing\n") == lines.count('"""Words."""\n') == 0


def test_each_file_is_counted_for_the_part_that_it_is_of(lines: Any, tmp_path: Path) -> None:
    for name, code in {
        "queue.py": 1,
        "sqlite.py": 2,
        "stores/memory.py": 3,
        "stores/sql/store.py": 4,
        "stores/sql/server/clock.py": 5,
        "stores/sql/dialects/sqlite/claim.py": 6,
        "stores/sql/dialects/postgres/claim.py": 7,
        "stores/sql/dialects/mysql/claim.py": 9,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""Words."""\n' + "x = 1\n" * code)
    assert list(lines.count_parts(tmp_path, "stores/").values()) == [7, 5, 6, 7, 9]
    assert list(lines.count_parts(tmp_path).values()) == [8, 5, 8, 7, 9]
    said = [line.rsplit(maxsplit=2) for line in lines.table(tmp_path).splitlines()[1:]]
    assert said[-3:] == [
        ["all", "34", "37"],
        ["shared, and SQLite", "18", "21"],
        ["all / shared, and SQLite", "1.89", "1.76"],
    ]


def test_make_lines_prints_them_of_the_package() -> None:
    assert re.search(
        r"^lines:\n\t.*\.ci/lines\.py$", (SCRIPT.parent.parent / "Makefile").read_text(), re.MULTILINE
    )
    ran = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True, timeout=60
    )
    said = {line[:25].strip(): line[25:].split() for line in ran.stdout.splitlines()[1:]}
    assert list(said)[:5] == ["shared by all", "shared by servers", "SQLite", "Postgres", "MySQL, MariaDB"]
    assert all(int(cell.replace(",", "")) > 500 for part in list(said)[:5] for cell in said[part])
