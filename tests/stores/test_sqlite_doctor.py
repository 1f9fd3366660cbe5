"""What `fastjobs doctor` finds in a SQLite file: each thing that can be wrong, made so; and that it writes nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

import fastjobs
from fastjobs.core.job import NewJob
from fastjobs.stores.sql import inspecting
from fastjobs.stores.sql.dialects.sqlite import doctor, mounts
from fastjobs.stores.sql.inspecting import Finding, Level
from fastjobs.stores.sql.store import SQLStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def engine(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}")
    fastjobs.sqlite.configure(engine)
    return engine


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[SQLStore]:
    """A store whose tables are made, and which is closed: nobody has the file open."""
    store = SQLStore(engine)
    await store.open(["mail"])
    await store.close()
    yield store
    await store.close()


def of(found: Sequence[Finding], check: str) -> list[tuple[Level, str]]:
    return [(each.level, each.said) for each in found if each.check == check]


def change(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for each in statements:
        connection.execute(each)
    connection.close()


def files(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.glob("app.db*")}


async def test_a_file_that_is_well_has_nothing_wrong_and_nothing_is_written(
    store: SQLStore, path: Path
) -> None:
    before, changed_at = files(path), path.stat().st_mtime_ns
    found = await store.examine(["mail"], deep=True)
    assert [each for each in found if each.level is not Level.OK and each.check != "version"] == []
    assert {each.check for each in found} == {
        "version", "file", "file system", "journal", "synchronous", "engine", "log's size", "integrity", "tables",
        "plan", "unknown kinds", "paused kinds",
    }  # fmt: skip
    assert files(path) == before
    assert path.stat().st_mtime_ns == changed_at


async def test_a_log_that_a_killed_process_left_stays_as_it_is(store: SQLStore, path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE left (behind)")
    log = path.with_name("app.db-wal")
    killed = log.read_bytes()
    whole = path.read_bytes()
    holder.close()
    path.write_bytes(whole)
    log.write_bytes(killed)
    assert not [each for each in await store.examine(["mail"]) if each.level is Level.WRONG]
    assert (path.read_bytes(), log.read_bytes()) == (whole, killed)


async def test_it_looks_while_the_queue_works_and_someone_writes(store: SQLStore, path: Path) -> None:
    await store.open(["mail"])
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert not [each for each in await store.examine(["mail"]) if each.level is Level.WRONG]
    writer.execute("ROLLBACK")
    writer.close()


async def test_a_file_that_isnt_there_is_told_of_and_not_made(engine: Engine, path: Path) -> None:
    found = await SQLStore(engine).examine()
    assert of(found, "file") == [(Level.WRONG, f"{path} isn't there")]
    assert not path.exists()


async def test_missing_tables_columns_and_indexes_are_named_with_what_mends_them(
    store: SQLStore, path: Path
) -> None:
    change(
        path, "DROP INDEX fastjobs_jobs_ready", "DROP INDEX fastjobs_jobs_unique", "DROP TABLE fastjobs_names"
    )
    found = await store.examine(["mail"])
    assert of(found, "tables") == [
        (Level.WRONG, "fastjobs_jobs has no index fastjobs_jobs_ready: claims fail, or read the whole table"),
        (
            Level.WRONG,
            "fastjobs_jobs has no index fastjobs_jobs_unique: two of what may be there once can be",
        ),
        (Level.WRONG, "fastjobs_names is gone"),
    ]
    ((level, said),) = of(found, "plan")
    assert (level, said) == (Level.WRONG, "claims fail: no such index: fastjobs_jobs_ready")
    change(path, *(each.do for each in found if each.do.startswith("CREATE")))
    assert [said for _, said in of(await store.examine(["mail"]), "tables")] == ["fastjobs_names is gone"]
    change(path, "ALTER TABLE fastjobs_jobs DROP COLUMN progress")
    assert (Level.WRONG, "fastjobs_jobs lacks progress") in of(await store.examine(["mail"]), "tables")


async def test_where_there_are_no_tables_that_is_all_that_is_said_of_them(path: Path, engine: Engine) -> None:
    change(path, "CREATE TABLE users (id)")
    found = await SQLStore(engine, prefix="mail_").examine()
    assert of(found, "tables") == [(Level.WRONG, "there are none with the prefix 'mail_'")]
    assert not of(found, "plan")
    assert not of(found, "unknown kinds")


async def test_an_older_and_a_newer_version_of_the_tables_are_told_apart(store: SQLStore, path: Path) -> None:
    change(path, "UPDATE fastjobs_schema SET version = 0")
    assert of(await store.examine(["mail"]), "tables")[0][0] is Level.WRONG
    change(path, "UPDATE fastjobs_schema SET version = 99", "ALTER TABLE fastjobs_jobs ADD COLUMN more TEXT")
    ((level, said),) = of(await store.examine(["mail"]), "tables")
    assert level is Level.OK
    assert "of version 99, made by a newer fastjobs" in said


async def test_kinds_that_wait_for_a_handler_that_the_app_lacks_are_counted_and_how_long_they_wait(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = 3_600_000_000
    await store.push([NewJob(kind="mail", payload="1", after=-hour)])
    assert of(await store.examine(["mail"]), "unknown kinds")[0][0] is Level.OK
    await store.push([NewJob(kind="report", payload="1", after=-3 * hour)] * 3)
    await store.push([NewJob(kind="later", payload="1", after=hour)])
    assert of(await store.examine(["mail"]), "unknown kinds") == [
        (Level.REMARK, "1 job waits of kind 'later', which this app has no handler for; none is due yet"),
        (
            Level.WARNING,
            "3 jobs wait of kind 'report', which this app has no handler for; the first was due 3 hours ago",
        ),
    ]
    monkeypatch.setattr(inspecting, "MANY", 2)
    assert of(await store.examine(["mail", "later"]), "unknown kinds")[0][1].startswith(
        "2+ jobs wait of kind 'report'"
    )


async def test_kinds_that_are_paused_while_jobs_of_theirs_wait_are_told_of(store: SQLStore) -> None:
    await store.push([NewJob(kind="mail", payload="1")] * 3)
    await store.push([NewJob(kind="photo", payload="1")])
    for kind in ("mail", "empty"):
        await store.open([kind])
        assert await store.pause(kind, True)
    try:
        found = [each for each in await store.examine(["mail", "photo"]) if each.check == "paused kinds"]
        assert [(each.level, each.said) for each in found] == [
            (Level.REMARK, "3 jobs wait of kind 'mail', which is paused: none of them runs")
        ]
        assert "`fastjobs resume QUEUE mail`" in found[0].do
        assert await store.pause("mail", False)
        assert of(await store.examine(["mail"]), "paused kinds") == [
            (Level.OK, "no job waits as its kind is paused")
        ]
    finally:
        for _ in range(2):
            await store.close()


async def test_a_kinds_name_that_someone_else_wrote_moves_no_terminal(store: SQLStore, path: Path) -> None:
    change(
        path,
        "INSERT INTO fastjobs_kinds (kind) VALUES ('a' || char(27) || '[2J' || char(10))",
        "INSERT INTO fastjobs_jobs (kind, run_at, payload) VALUES ('a' || char(27) || '[2J' || char(10), 0, '1')",
    )
    ((_, said),) = of(await store.examine(["mail"]), "unknown kinds")
    assert "\x1b" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ((3, 34, 1), Level.WRONG),
        ((3, 40, 1), Level.WARNING),
        ((3, 44, 5), Level.WARNING),
        ((3, 44, 6), Level.OK),
        ((3, 45, 0), Level.WARNING),
        ((3, 50, 6), Level.WARNING),
        ((3, 50, 7), Level.OK),
        ((3, 51, 2), Level.WARNING),
        ((3, 51, 3), Level.OK),
        ((3, 53, 0), Level.OK),
    ],
)
async def test_versions_with_the_wal_reset_fault_are_told_of(
    store: SQLStore, version: tuple[int, int, int], level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    assert [each for each, _ in of(await store.examine(), "version")] == [level]


async def test_what_voids_a_promise_by_choice_or_by_neglect_is_a_warning(path: Path, store: SQLStore) -> None:
    bare = SQLStore(create_engine(f"sqlite:///{path}"), synchronous="NORMAL")
    change(path, "PRAGMA journal_mode = DELETE")
    found = await bare.examine()
    for check, says in (
        ("synchronous", "after a power cut the last jobs that were pushed may be gone"),
        ("engine", "the app's engine isn't configured"),
        ("journal", "journal mode delete: readers and the queue wait for each other"),
    ):
        ((level, said),) = of(found, check)
        assert (level, says in said) == (Level.WARNING, True), said


async def test_a_file_or_a_folder_that_others_may_change_is_wrong(store: SQLStore, path: Path) -> None:
    path.chmod(0o644)
    assert of(await store.examine(), "file")[0][0] is Level.WARNING
    path.chmod(0o666)
    ((level, said),) = of(await store.examine(), "file")
    assert (level, "anyone on this machine may change" in said) == (Level.WRONG, True)
    path.chmod(0o660)
    path.parent.chmod(0o777)
    ((level, said),) = of(await store.examine(), "file")
    assert (level, said.startswith("anyone may write to the folder")) == (Level.WRONG, True)
    path.parent.chmod(0o1777)
    assert of(await store.examine(), "file")[0][0] is Level.OK, "as /tmp, where nobody moves another's files"


async def test_what_this_user_cant_write_is_wrong(store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> bool:
        return False

    monkeypatch.setattr(os, "access", never)
    assert [
        level for level, said in of(await store.examine(), "file") if "this user can't write" in said
    ] == [
        Level.WRONG,
        Level.WRONG,
    ]


@pytest.mark.parametrize(
    ("kind", "level"),
    [("nfs4", Level.WRONG), ("fuse.sshfs", Level.WRONG), ("ext4", Level.OK), (None, Level.REMARK)],
)
async def test_a_network_file_system_is_wrong(
    store: SQLStore,
    path: Path,
    tmp_path: Path,
    kind: str | None,
    level: Level,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mountinfo = tmp_path / "mountinfo"
    if kind is not None:
        point = os.path.realpath(path.parent).replace(" ", "\\040")
        mountinfo.write_text(
            "21 1 8:1 / / rw shared:1 - xfs /dev/sda1 rw\n"
            f"35 21 0:31 / {point} rw shared:9 - {kind} server:/export rw\n"
            f"36 21 0:32 / {point}/deeper rw - tmpfs tmpfs rw\n"
            f"37 21 0:33 / {point[:-1]} rw - nfs other:/x rw\n"
        )
    monkeypatch.setattr(mounts, "MOUNTS", mountinfo)
    ((found, said),) = of(await store.examine(), "file system")
    assert found is level
    assert kind is None or kind in said


async def test_a_log_that_readers_keep_from_its_end_is_told_of(
    store: SQLStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.open(["mail"])
    await store.push([NewJob(kind="mail", payload="1")])
    monkeypatch.setattr(doctor, "LARGE", 1000)
    assert of(await store.examine(), "log's size")[0][0] is Level.WARNING


async def test_a_damaged_file_is_found_by_a_deep_look_alone(store: SQLStore, path: Path) -> None:
    await store.open(["mail"])
    await store.push([NewJob(kind="mail", payload='"' + "x" * 1000 + '"')] * 200)
    await store.close()
    content = bytearray(path.read_bytes())
    page = int.from_bytes(content[16:18], "big")
    last = len(content) - page
    content[last : last + 200] = bytes(200)
    path.write_bytes(content)
    assert not of(await store.examine(["mail"]), "integrity")
    ((level, said),) = of(await store.examine(["mail"], deep=True), "integrity")
    assert (level, "the file is damaged" in said) == (Level.WRONG, True)


async def test_a_check_that_fails_says_so_and_ends_no_other(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> list[Finding]:
        raise RuntimeError("no\nhope")

    some: tuple[tuple[str, Callable[..., Any]], ...] = (("broken", fails), ("version", doctor.version))
    monkeypatch.setattr(doctor, "CHECKS", some)
    found = await store.examine(["mail"])
    assert of(found, "broken") == [(Level.WARNING, "couldn't look: RuntimeError: no")]
    assert of(found, "version")
    assert of(found, "tables")[0][0] is Level.OK


async def test_what_is_no_database_is_told_of(path: Path, engine: Engine) -> None:
    path.write_bytes(b"no database at all, but a text" * 100)
    path.chmod(0o600)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        await SQLStore(engine).examine()
