"""The benchmarks' own frame: what it prints is only as good as its sums."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.benchmarks.__main__ import DATABASES, wanted
from tests.benchmarks.frame import Found, Ground, NotRun, Ratio, Row, Table, run, run_table, show


@contextmanager
def nowhere() -> Generator[str]:
    yield "nowhere"


GROUND = Ground("nowhere", nowhere)


def row(name: str, module: str = "tests.benchmarks.nothing", optional: bool = False) -> Row:
    return Row(name, 160, name, (module, name), optional=optional)


def printed(ratio: Ratio, seen: dict[str, list[Found]], capsys: pytest.CaptureFixture[str]) -> str:
    show(Table("table", tuple(map(row, seen)), (("rate", "a second", "g"),), (ratio,)), seen, {}, 1)
    return capsys.readouterr().out


def test_a_ratio_is_taken_within_each_round(capsys: pytest.CaptureFixture[str]) -> None:
    seen = {"ours": [{"rate": 10}, {"rate": 50}], "raw": [{"rate": 20}, {"rate": 200}]}
    said = printed(Ratio("rate", "ours", "raw", "of raw's rate"), seen, capsys)
    assert "fastjobs: 0.25 / 0.38 / 0.50 of raw's rate" in said
    assert "| 10 / 30 / 50 |" in said


def test_a_ratio_of_ratios_is_the_first_by_the_second(capsys: pytest.CaptureFixture[str]) -> None:
    seen = {
        "many": [{"rate": 6}],
        "raw_many": [{"rate": 10}],
        "few": [{"rate": 8}],
        "raw_few": [{"rate": 10}],
    }
    ratio = Ratio("rate", "many", "raw_many", "of the ratio", beside=("few", "raw_few"))
    assert "fastjobs: 0.75 of the ratio" in printed(ratio, seen, capsys)


def test_a_difference_is_one_less_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    seen = {"ours": [{"rate": 10}], "raw": [{"rate": 4}]}
    assert "fastjobs: 6.00 more" in printed(Ratio("rate", "ours", "raw", "more", less=True), seen, capsys)


def test_a_ratio_to_one_who_did_not_run_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(Ratio("rate", "ours", "peer", "times"), {"ours": [{"rate": 1}], "peer": []}, capsys)
    assert "fastjobs:" not in said


def test_a_contestant_of_others_that_fails_is_a_row_that_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("table", (row("peer", "tests.benchmarks.postgres.peers", optional=True),), ())
    run_table("table", table, GROUND, 3, 1)
    assert "| peer (not run: KeyError: 'peer') | 160 |" in capsys.readouterr().out


def test_a_contestant_of_ours_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="KeyError"):
        run(row("peer", "tests.benchmarks.postgres.peers"), GROUND, 1)


def test_a_contestant_without_its_package_is_not_run() -> None:
    with pytest.raises(NotRun, match="not installed"):
        run(row("nothing", optional=True), GROUND, 1)


def test_the_tables_are_chosen_by_name_and_by_database() -> None:
    assert wanted(["pg-drain", "idle"], None) == {"postgres": ["drain"], "sqlite": ["idle"]}
    assert wanted(["drain", "pg-push"], "postgres") == {"postgres": ["drain", "push"]}
    assert wanted([], "sqlite") == {"sqlite": list(DATABASES["sqlite"].tables)}
    assert list(wanted([], None)) == list(DATABASES)


def test_a_table_that_is_none_is_answered_with_those_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no table pg-idle; there are pg-drain, .*pg-processes"):
        wanted(["idle"], "postgres")


def test_each_ratio_names_rows_of_its_table() -> None:
    for database in DATABASES.values():
        for table in database.tables.values():
            names = [each.name for each in table.rows]
            assert len(set(names)) == len(names)
            for ratio in table.ratios:
                assert {ratio.one, ratio.other, *(ratio.beside or ())} <= set(names)
