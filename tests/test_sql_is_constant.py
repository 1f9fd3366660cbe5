"""SQL is made of constants, bound parameters and names that were checked once: read from the source of the package.

Two rules together leave no way for a value into a statement's text. A string with SQL in it may only interpolate
what is safe by its form: another such string, a table's own name, its prefix, a number by `int(…)`, or one of two
constants. And what is given to a driver to execute is not put together on the spot in any other way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "fastjobs").rglob("*.py"))

SQL = re.compile(
    r"(?:^|[\s(])(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|VALUES|PRAGMA|CREATE|ALTER|DROP|ATTACH|VACUUM|BEGIN|SAVEPOINT"
    r"|RELEASE|ROLLBACK|FROM|WHERE|SET|JOIN|ORDER BY|LIMIT|RETURNING|LISTEN|NOTIFY|LOCK)(?=[\s(]|$)"
)
EXECUTES = {
    "execute",
    "executemany",
    "executescript",
    "exec_driver_sql",
    "text",
    "DDL",
    "_execute",
    "scalar",
    "scalars",
}


def constants(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def is_built(node: ast.AST) -> bool:
    """Whether it puts a string together from others."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.Mod, ast.Add))
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"format", "format_map", "join", "replace"}
        and isinstance(node.func.value, (ast.Constant, ast.JoinedStr, ast.Name))
    )


def is_safe(node: ast.expr, names: set[str]) -> bool:
    """Whether nothing from outside can be in it, by its form; `names` are those that are known to be safe."""
    match node:
        case ast.Constant():
            return True
        case ast.Name():
            return node.id in names
        case ast.JoinedStr():
            return all(is_safe(part, names) for part in node.values)
        case ast.Tuple():
            return all(is_safe(part, names) for part in node.elts)
        case ast.FormattedValue():
            return is_safe(node.value, names)
        case ast.BinOp():
            return is_safe(node.left, names) and is_safe(node.right, names)
        case ast.IfExp():
            return is_safe(node.body, names) and is_safe(node.orelse, names)
        case ast.Call(func=ast.Name(id="int")):
            return True
        case ast.Attribute():
            # Tables makes these from a prefix and a schema that it has checked.
            return (
                re.fullmatch(r"(?:self\._?)?tables\.(?:prefix|schema|[a-z_]+\.name)", ast.unparse(node))
                is not None
            )
        case _:
            return False


def safe_names(scope: ast.AST) -> set[str]:
    """The names that are only ever bound to what is safe, in one function or module."""
    bound: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                for each, value in pairs:
                    if isinstance(each, ast.Name):
                        bound.setdefault(each.id, []).append(value)
        elif isinstance(node, ast.arg):
            bound.setdefault(node.arg, []).append(None)
        elif isinstance(node, (ast.Name)) and isinstance(node.ctx, ast.Store):
            bound.setdefault(node.id, [])
    names: set[str] = set()
    while True:
        more = {
            name
            for name, values in bound.items()
            if values and all(value is not None and is_safe(value, names) for value in values)
        }
        if more == names:
            return names
        names = more


def unsafe(source: str, name: str) -> Iterator[str]:
    module = ast.parse(source, name)
    scopes = [node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    seen: set[ast.AST] = set()
    # A name that nothing in the whole file binds to anything else is safe in each function of it.
    everywhere = safe_names(module)
    for scope in (*scopes, module):
        names = safe_names(scope) | everywhere
        for node in ast.walk(scope):
            if node in seen:
                continue
            seen.add(node)
            has_sql = is_built(node) and any(SQL.search(text) for text in constants(node))
            if has_sql and isinstance(node, ast.expr) and not is_safe(node, names):
                yield f"{name}:{node.lineno}: {ast.unparse(node)[:80]}"
            if isinstance(node, ast.Call) and node.args:
                called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
                for given in node.args[:2]:
                    if called in EXECUTES and is_built(given) and not is_safe(given, names):
                        yield f"{name}:{node.lineno}: {ast.unparse(node)[:80]}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_value_can_come_into_the_text_of_a_statement(file: Path) -> None:
    assert list(unsafe(file.read_text(), file.relative_to(ROOT).as_posix())) == []


@pytest.mark.parametrize(
    "line",
    [
        'raw.execute(f"SELECT {kind}")',
        'raw.execute(f"{kind}")',
        'raw.execute("SELECT 1 WHERE kind = " + kind)',
        'raw.execute("DELETE FROM jobs WHERE kind = %s" % kind)',
        'raw.execute("DELETE FROM jobs WHERE kind = {}".format(kind))',
        'raw.execute("".join([head, kind]))',
        'query = f"UPDATE jobs SET kind = {kind!r}"',
        'connection.execute(text(f" AND kind = {kind}"))',
        'where = f"WHERE kind = {self.kind}"',
        'kind2 = kind; query = f"SELECT {kind2}"',
        'safe = "x"; safe = kind; query = f"SELECT {safe}"',
    ],
)
def test_the_rule_sees_what_breaks_it(line: str) -> None:
    assert list(unsafe(f'kind = safe = "x"\ndef push(self, raw, kind, head):\n    {line}\n', "x.py"))


@pytest.mark.parametrize(
    "line",
    [
        'raw.execute("SELECT ?", (kind,))',
        'jobs = f\'"{tables.jobs.name}"\'; raw.execute(f"SELECT id FROM {jobs}")',
        'raw.execute(f"PRAGMA busy_timeout = {int(limit)}")',
        "raw.execute(f\"PRAGMA query_only = {'ON' if kind else 'OFF'}\")",
        'raise ValueError(f"there is no kind {kind}")',
        "raw.execute(statements.take, (kind,))",
        'raw.execute(f"SELECT id {LOCKED}")',
    ],
)
def test_the_rule_lets_what_is_safe_pass(line: str) -> None:
    assert (
        list(unsafe(f'LOCKED = "FOR UPDATE"\ndef push(self, raw, kind, limit):\n    {line}\n', "x.py")) == []
    )
