"""The house's rules, read from the source: which part may import which, and what none of them may do."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "fastjobs"
FILES = sorted(PACKAGE.rglob("*.py"))

# Which parts of fastjobs each part may import. What is not named here may not be imported by anyone but itself.
MAY_IMPORT = {
    "core": {"core"},
    "clock": set[str](),
    "store": {"core"},
    "stores": {"stores", "store", "clock", "core"},
    "runtime": {"runtime", "store", "clock", "core"},
    "web": {"web", "runtime", "store", "clock", "core"},
    "telemetry": {"telemetry", "runtime", "store", "clock", "core"},
    "cli": {"cli", "web", "telemetry", "runtime", "stores", "store", "clock", "core"},
    "testing": {"testing", "stores", "runtime", "store", "clock", "core"},
    "sqlite": {"stores"},
    "alembic": {"stores"},
    "__main__": {"cli"},
    "__init__": {"web", "telemetry", "runtime", "stores", "store", "clock", "core", "sqlite", "alembic"},
}
# Which packages of others each part may import. The tests of StoreSuite are what needs pytest.
ALL = {"pydantic", "pydantic_core", "anyio", "typing_extensions"}
MAY_IMPORT_OTHERS = {
    "stores": ALL | {"sqlalchemy", "aiosqlite", "sqlite3", "psycopg"},
    "web": ALL | {"fastapi", "starlette"},
    "telemetry": ALL | {"opentelemetry", "prometheus_client"},
    "testing": ALL | {"pytest", "sqlalchemy", "sqlmodel", "aiosqlite"},
    "sqlite": {"sqlalchemy"},
    "alembic": {"sqlalchemy"},
}
# What is imported against the arrows, as it's asked for: the door that it's behind.
DOORS = {("fastjobs/runtime/queue.py", "fastjobs.testing.kit")}
BANNED_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "base", "common", "misc"}


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), name_of(file))


def is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, (ast.Name, ast.Attribute)) and ast.unparse(test).endswith("TYPE_CHECKING")


def run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, but for what stands under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.If) and is_type_checking(node.test) and child in node.body:
            continue
        yield child
        yield from run_time(child)


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the dotted name of each module, or name of a module, that the file imports as it runs."""
    for node in run_time(parsed(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(file)}:{node.lineno}: imports are absolute"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            named = node.args[0]
            if isinstance(named, ast.Constant):
                yield node.lineno, str(named.value)


def broken_arrows(file: Path) -> Iterator[str]:
    part = part_of(file)
    for line, imported in imports(file):
        top, _, rest = imported.partition(".")
        if (name_of(file), imported) in DOORS:
            continue
        if top == "fastjobs":
            target = rest.split(".")[0] or "fastjobs"
            if target not in MAY_IMPORT[part] and imported != "fastjobs":
                yield f"{name_of(file)}:{line}: {part} may not import {imported}"
        elif top in sys.stdlib_module_names and top != "sqlite3":
            continue
        elif top not in MAY_IMPORT_OTHERS.get(part, ALL):
            yield f"{name_of(file)}:{line}: {part} may not import {imported}"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_point_one_way(file: Path) -> None:
    assert part_of(file) in MAY_IMPORT, f"{name_of(file)} is in a part that has no place in MAY_IMPORT"
    assert list(broken_arrows(file)) == []


def test_the_rule_of_imports_sees_what_breaks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "fastjobs")
    bad = tmp_path / "fastjobs" / "runtime" / "x.py"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "from typing import TYPE_CHECKING\n"
        "import fastjobs.stores.memory\n"
        "def later():\n    from starlette.types import Send\n"
        "if TYPE_CHECKING:\n    import sqlalchemy\n"
        "else:\n    from fastjobs import testing\n"
    )
    assert [each.partition(": ")[0] for each in broken_arrows(bad)] == [
        f"fastjobs/runtime/x.py:{line}" for line in (2, 4, 8)
    ]


def test_import_fastjobs_loads_nothing_that_needs_an_extra() -> None:
    heavy = (
        "sqlalchemy", "aiosqlite", "fastapi", "starlette", "opentelemetry", "prometheus_client", "pytest",
        "fastjobs.testing",
    )  # fmt: skip
    loaded = subprocess.run(
        [sys.executable, "-c", "import fastjobs, sys; print(*sorted(sys.modules))"],
        check=True, capture_output=True, text=True, cwd=ROOT,
    ).stdout.split()  # fmt: skip
    assert "fastjobs" in loaded
    assert [name for name in loaded if name.startswith(heavy)] == []


def test_each_module_of_the_stores_can_be_imported_first() -> None:
    names = [name_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in FILES]
    # Two that import each other work or don't by which of them comes first.
    each = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    for loaded in [each for each in sys.modules if each.startswith('fastjobs.stores')]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    stores = [name for name in names if name.startswith("fastjobs.stores.")]
    tried = subprocess.run([sys.executable, "-c", each, *stores], capture_output=True, text=True, cwd=ROOT)
    assert tried.returncode == 0, tried.stderr


# One clock: what tells the time, waits or rolls dice is asked of a Clock. (asyncio's loop.time is no clock of jobs.)
TELLS_TIME = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "datetime.now", "datetime.utcnow",
    "datetime.today", "date.today", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.date.today",
}  # fmt: skip
# The writer of SQLite waits out another process's lock by the real clock, which no test moves.
OWN_TIME = {
    "fastjobs/clock.py",
    "fastjobs/testing/clock.py",
}


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_only_the_clock_tells_the_time(file: Path) -> None:
    if name_of(file) in OWN_TIME or name_of(file).startswith("fastjobs/stores/sql/dialects/sqlite/"):
        return
    found = [
        f"{name_of(file)}:{node.lineno}: {ast.unparse(node)}"
        for node in run_time(parsed(file))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in TELLS_TIME
    ]
    found += [
        f"{name_of(file)}:{line}: {imported}"
        for line, imported in imports(file)
        if imported.split(".")[0] == "random" or imported in TELLS_TIME
    ]
    assert found == []


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_nothing_runs_what_was_kept(file: Path) -> None:
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
    found = [f"{line}: {name}" for line, name in imports(file) if name.split(".")[0] in banned]
    found += [
        f"{node.lineno}: {ast.unparse(node.func)}"
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"eval", "exec", "compile", "__import__"}
    ]
    assert found == []


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_file_has_one_job_and_at_most_300_lines(file: Path) -> None:
    lines = file.read_text().splitlines()
    # A longer one says why, in the docstring it opens with: "Longer than 300 lines, as ...".
    reason = "300 lines" in (ast.get_docstring(parsed(file)) or "")
    assert len(lines) <= 300 or reason, (
        f"{name_of(file)} has {len(lines)} lines and no reason in its first ones"
    )


def test_no_module_is_called_after_nothing() -> None:
    assert [
        name_of(file) for file in FILES if file.stem in BANNED_NAMES or file.parent.name in BANNED_NAMES
    ] == []


def test_no_module_at_the_top_has_the_name_of_a_public_function() -> None:
    # `import fastjobs.lifespan` would put the module where the function is.
    import fastjobs

    at_the_top = {file.stem for file in PACKAGE.glob("*.py")} | {
        each.name for each in PACKAGE.iterdir() if each.is_dir()
    }
    doors = {"sqlite"}
    assert at_the_top & set(fastjobs.__all__) <= doors
