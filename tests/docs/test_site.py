"""The documentation as a site: each page is reached, each link and anchor is there, each public name has its entry.

`make docs` asks the same of MkDocs itself; this needs no MkDocs, and is in each test run.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

import fastjobs.alembic
import fastjobs.sqlite
import fastjobs.store
import fastjobs.testing

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def settings() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    return loaded


def in_nav(entry: Any) -> Iterator[str]:
    """The pages of an entry of the navigation, however deep."""
    if isinstance(entry, str):
        yield entry
        return
    parts: list[Any] = list(cast("dict[str, Any]", entry).values()) if isinstance(entry, dict) else entry
    for each in parts:
        yield from in_nav(each)


def text_of(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def slug(heading: str) -> str:
    """The anchor that MkDocs makes of a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())


def anchors(page: Path) -> set[str]:
    counted: Counter[str] = Counter()
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text_of(page), re.MULTILINE):
        name = slug(heading)
        found.add(f"{name}_{counted[name]}" if counted[name] else name)
        counted[name] += 1
    return found


def test_each_page_is_in_the_navigation_once() -> None:
    assert sorted(in_nav(settings()["nav"])) == [name_of(page) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_pages_links_lead_to_pages_and_headings_that_are_there(page: Path) -> None:
    wrong: list[str] = []
    for link in LINK.findall(text_of(page)):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if target not in PAGES or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_a_link_to_a_heading_that_is_not_there_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# `fastjobs run`\n\n## What's *new*: 2 things\n\n## Again\n\n## Again\n\n```\n# no heading\n```\n"
    )
    assert anchors(page) == {"fastjobs-run", "whats-new-2-things", "again", "again_1"}


def test_each_page_begins_with_its_title_and_has_one() -> None:
    titles = {name_of(page): re.findall(r"^# (.+)$", text_of(page), re.MULTILINE) for page in PAGES}
    assert {name: found for name, found in titles.items() if len(found) != 1} == {}
    assert [name_of(page) for page in PAGES if not page.read_text().startswith("# ")] == []


def test_each_public_name_has_its_entry_in_the_reference() -> None:
    entries: list[str] = []
    for page in (DOCS / "reference").glob("*.md"):
        entries += re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
    assert [entry for entry, times in Counter(entries).items() if times > 1] == []
    public = {f"fastjobs.{name}" for name in fastjobs.__all__}
    public |= {f"fastjobs.testing.{name}" for name in fastjobs.testing.__all__}
    # What has its entry by its shorter name has no second one.
    public |= {f"fastjobs.store.{name}" for name in fastjobs.store.__all__ if name not in fastjobs.__all__}
    public.add("fastjobs.store.Store")
    public.discard("fastjobs.Store")
    assert public - set(entries) == set()
    said = (DOCS / "reference" / "stores.md").read_text()
    for module in (fastjobs.alembic, fastjobs.sqlite):
        assert f"::: {module.__name__}\n    options:\n      members: [{', '.join(module.__all__)}]\n" in said


def test_the_site_is_strict_and_asks_no_other_host() -> None:
    site = settings()
    assert site["strict"] is True
    assert site["theme"]["font"] is False
    assert {"not_found": "warn", "anchors": "warn"}.items() <= site["validation"]["links"].items()
    assert site["validation"]["nav"]["omitted_files"] == "warn"
    makefile = (ROOT / "Makefile").read_text()
    assert "mkdocs build --strict" in makefile
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert any(each.startswith("mkdocs-material") for each in groups["docs"])
