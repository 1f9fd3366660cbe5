"""Prints how many lines of code the three databases take, beside what SQLite and the shared part take.

A line of code has more on it than a comment or a docstring. SQL that a module keeps in a string is code.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "fastjobs"
PARTS = {
    "shared by all": (),
    "shared by servers": ("stores/sql/server/",),
    "SQLite": ("stores/sql/dialects/sqlite/", "sqlite.py"),
    "Postgres": ("stores/sql/dialects/postgres/",),
    "MySQL, MariaDB": ("stores/sql/dialects/mysql/",),
}
"""What each part's files begin with, in the package; all others are the first's."""
_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def count(source: str) -> int:
    """How many lines of code the source has."""
    docstrings = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first, last = token.start[0], token.end[0]
        is_docstring = token.type == tokenize.STRING and any(a <= first and last <= b for a, b in docstrings)
        if token.type not in (tokenize.COMMENT, *_LAYOUT) and not is_docstring:
            lines.update(range(first, last + 1))
    text = source.splitlines()
    return sum(bool(text[line - 1].strip()) for line in lines)


def count_parts(package: Path, under: str = "") -> dict[str, int]:
    """The lines of code of each part, of the files that are in the folder `under`."""
    counts = dict.fromkeys(PARTS, 0)
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package).as_posix()
        if name.startswith(under):
            counts[_part_of(name)] += count(file.read_text())
    return counts


def _part_of(name: str) -> str:
    return next(
        (part for part, starts in PARTS.items() if starts and name.startswith(starts)), next(iter(PARTS))
    )


def table(package: Path) -> str:
    """The counts as a table, of the stores alone and of the whole package."""
    columns = [count_parts(package, "stores/"), count_parts(package)]
    sums = [sum(counts.values()) for counts in columns]
    bases = [counts["shared by all"] + counts["shared by servers"] + counts["SQLite"] for counts in columns]
    rows = [("lines of code", ["fastjobs/stores", "all of fastjobs"])]
    rows += [(part, [f"{counts[part]:,}" for counts in columns]) for part in PARTS]
    rows.append(("all", [f"{each:,}" for each in sums]))
    rows.append(("shared, and SQLite", [f"{each:,}" for each in bases]))
    ratios = [each / base if base else 0 for each, base in zip(sums, bases, strict=True)]
    rows.append(("all / shared, and SQLite", [f"{ratio:.2f}" for ratio in ratios]))
    return "\n".join(f"{name:<25}" + "".join(f"{cell:>18}" for cell in cells) for name, cells in rows)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) if sys.argv[1:] else PACKAGE))
