"""Which queue is meant: by argument, environment or pyproject.toml, and what is said of one that isn't there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastjobs.cli.command import main
from fastjobs.cli.mistake import Mistake
from fastjobs.cli.target import queue_named

APP = """
import fastjobs
class settings:
    class deep:
        q = fastjobs.Queue(workers=3)
q = fastjobs.Queue(fastjobs.Memory())
def make():
    return settings.deep.q
async def make_later(): ...
def make_nothing(): ...
number = 3
"""
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes files of the current folder, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FASTJOBS_QUEUE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def file(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    file("shop.py", APP)
    yield file
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("write")
@pytest.mark.parametrize(
    "named", ["shop:settings.deep.q", "shop:make()", "shop.settings.deep.q", "shop.make()"]
)
def test_a_queue_is_named_by_a_dotted_attribute_or_a_factory(named: str) -> None:
    assert queue_named(named)[1].workers == 3


def test_a_module_is_looked_for_in_the_current_folder_first(write: Write) -> None:
    write("wave.py", "import fastjobs\nq = fastjobs.Queue(workers=7)")  # as one of the standard library
    assert queue_named("wave:q")[1].workers == 7


def test_a_module_of_a_package_is_named_by_its_dots(write: Write) -> None:
    write("pack/__init__.py", "")
    write("pack/jobs.py", "import fastjobs\nq = fastjobs.Queue()")
    assert queue_named("pack.jobs:q")[0] == "pack.jobs:q"
    assert queue_named("pack.jobs.q")[1] is queue_named("pack.jobs:q")[1]


def test_of_a_name_with_dots_alone_the_longest_module_is_taken(write: Write) -> None:
    write("pack/__init__.py", "import fastjobs\nclass jobs:\n    q = fastjobs.Queue(workers=1)\nq = jobs.q")
    assert queue_named("pack.jobs.q")[1].workers == 1
    assert queue_named("pack.q")[1].workers == 1
    write("pack/jobs.py", "import fastjobs\nq = fastjobs.Queue(workers=2)")
    sys.modules.pop("pack")
    assert queue_named("pack.jobs.q")[1].workers == 2


@pytest.mark.parametrize("named", ["pack.main", "pack:main"])
def test_a_module_alone_is_told_with_the_queue_that_it_has(write: Write, named: str) -> None:
    write("pack/__init__.py", "")
    write("pack/main.py", "import fastjobs\nq = fastjobs.Queue()")
    with pytest.raises(Mistake, match=r"^pack.main is a module: write pack.main:q$"):
        queue_named(named)
    write("pack/none.py", "")
    with pytest.raises(Mistake, match=r"^pack.none is a module: write pack.none:q$"):
        queue_named("pack.none")


def test_a_module_that_its_package_has_imported_is_told_as_one(write: Write) -> None:
    write("pack/__init__.py", "from pack import main")
    write("pack/main.py", "import fastjobs\nq = fastjobs.Queue()")
    with pytest.raises(Mistake, match=r"^pack.main is no queue but a module; there is pack.main:q$"):
        queue_named("pack.main")


def test_the_argument_comes_before_the_environment_and_that_before_pyproject(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Mistake, match="which queue"):
        queue_named(None)
    write("pyproject.toml", '[tool.fastjobs]\nqueue = "shop:make()"')
    assert queue_named(None)[0] == "shop:make()"
    monkeypatch.setenv("FASTJOBS_QUEUE", "shop:settings.deep.q")
    assert queue_named(None)[0] == "shop:settings.deep.q"
    assert queue_named("shop:q")[0] == "shop:q"


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("shop", "'shop' doesn't name a queue: write module:name, as in app:q"),
        ("shop:", "doesn't name a queue"),
        ("./src/shop.py:q", "doesn't name a queue: write module:name, as in app:q; src.shop:q, perhaps"),
        ("shop.py:q", "shop.py is a file, and a module is named; shop:q, perhaps"),
        ("shop:q()()", "doesn't name a queue"),
        ("nowhere:q", "there is no module 'nowhere' in "),
        ("nowhere.q", "there is no module 'nowhere' in "),
        ("nowhere.at.all.q", "there is no module 'nowhere' in "),
        ("shop.queue", "shop has no queue; it has shop:q"),
        ("shop.deeper.q", "shop has no deeper.q; it has shop:q"),
        ("shop.number", "shop.number is no queue but an int; there is shop:q"),
        ("shop.", "doesn't name a queue"),
        (".q", "doesn't name a queue"),
        ("shop..q", "doesn't name a queue"),
        ("shop.deeper:q", "there is no module 'shop.deeper' in "),
        ("shop:queue", "shop has no queue; it has shop:q"),
        ("shop:settings.q", "shop has no settings.q"),
        ("shop:number", "shop:number is no queue but an int; there is shop:q"),
        ("shop:make", r"shop:make is a function: call it by shop:make\(\)"),
        ("shop:number()", r"shop:number is not a function but an int: leave out the \(\)"),
        ("shop:make_later()", "is an async function"),
        ("shop:make_nothing()", r"shop:make_nothing\(\) is no queue but a NoneType"),
    ],
)
@pytest.mark.usefixtures("write")
def test_what_is_no_queue_is_told_in_a_line_with_what_to_do(named: str, told: str) -> None:
    with pytest.raises(Mistake, match=told):
        queue_named(named)


def test_a_module_that_the_app_lacks_is_the_apps_own_error(write: Write) -> None:
    write("lacks.py", "import nowhere_else")
    with pytest.raises(ModuleNotFoundError, match="nowhere_else"):
        queue_named("lacks:q")
    write("pair/__init__.py", "import pair.missing")
    with pytest.raises(ModuleNotFoundError, match=r"pair\.missing"):
        queue_named("pair:q")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool", "can't be read"),
        ("[tool.fastjobs]\nqueue = 3", "queue is text"),
        ('[tool]\nfastjobs = "shop:q"', "is a table, as in queue"),
        ("tool = 3", "which queue"),
    ],
)
def test_a_pyproject_that_is_wrong_is_told_of(write: Write, text: str, told: str) -> None:
    write("pyproject.toml", text)
    with pytest.raises(Mistake, match=told):
        queue_named(None)


@pytest.mark.usefixtures("write")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "shop:nothing"], "shop has no nothing"),
        (["run", "shop:q"], "shop:q has no kinds"),
        (["run", "pushes:q"], "pushes:q only pushes, with workers=0"),
        (["run", "pushes:late"], "pushes:late has no store yet"),
        (
            ["run", "pushes:q", "--kinds", "mail,letter, x"],
            "pushes:q: the queue has no kind 'letter', 'x'; it has mail",
        ),
        (["run", "pushes:q", "--kinds", ","], "pushes:q: kinds= names no kind"),
        (["run", "shop:q", "--app", "shop:number"], "shop:number is no ASGI app but an int"),
    ],
)
def test_an_order_that_cant_be_carried_out_exits_with_2(
    write: Write, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        "pushes.py",
        "import fastjobs\n"
        "q, late = fastjobs.Queue(fastjobs.Memory(), workers=0), fastjobs.Queue()\n"
        "async def mail() -> None: ...\n"
        "q.kind('mail')(mail); late.kind('mail')(mail)\n",
    )
    assert main(words) == 2
    written = capsys.readouterr()
    assert written.err.startswith(f"fastjobs: {told}")
    assert written.err.count("\n") == 1
    assert written.out == ""


@pytest.mark.parametrize("words", [[], ["walk"], ["run", "a:b", "--workers", "0"], ["run", "--work", "3"]])
def test_words_that_there_are_none_of_exit_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(words)
    assert exited.value.code == 2
    assert "usage: fastjobs" in capsys.readouterr().err
