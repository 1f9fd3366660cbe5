"""The public list: a change of it is a change of this file, and each name is there, documented and behind its door."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import fastjobs

ROOT = Path(__file__).parent.parent.parent

PUBLIC = """
    Cancelled Carrier CarryError CarryRequestID CarryTrace ClaimLost Cron Every Extra FastjobsError Follower Health
    InTx JobInfo JobState Kind KindInfo Kinds Limiter LostWorker Memory NotAwaited NotCommitted OutOfAttempts Outcome
    PayloadError Permanent PushError Queue QueueError Ran RegistrationError RequestIDMiddleware Retry SQLStore
    Schedule ScheduleError Snooze Store StoreError StoreTimeout SyncInTx Throttle Unique current_job
    add_log_fields jobs_in_tx lifespan raw request_id sqlite supports LogFilter
    OTelMetrics PrometheusMetrics
"""


def test_the_public_list_is_this() -> None:
    assert sorted(fastjobs.__all__) == sorted(PUBLIC.split())


@pytest.mark.parametrize("name", fastjobs.__all__)
def test_each_public_name_is_there_and_says_what_it_promises(name: str) -> None:
    found = getattr(fastjobs, name)
    assert name in dir(fastjobs)
    assert inspect.getdoc(found)


@pytest.mark.parametrize(
    "name", [name for name in fastjobs.__all__ if inspect.isclass(getattr(fastjobs, name))]
)
def test_each_public_method_says_what_it_promises(name: str) -> None:
    found: type[object] = getattr(fastjobs, name)
    methods: dict[str, object] = {
        each: value for each, value in vars(found).items() if inspect.isfunction(value)
    }
    bare = [
        method
        for method in methods
        if not method.startswith("_")
        and not hasattr(fastjobs.Follower, method)  # what its Protocol says holds for it
        and not inspect.getdoc(getattr(found, method))
    ]
    assert bare == []


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'fastjobs' has no attribute 'nothing'"):
        _ = fastjobs.nothing


def test_a_star_import_gives_the_public_list() -> None:
    names: dict[str, object] = {}
    exec("from fastjobs import *", names)
    assert set(fastjobs.__all__) <= set(names)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("SQLStore", "sqlalchemy", "sqlite"), ("CarryTrace", "opentelemetry", "otel")],
)
def test_a_missing_package_names_the_extra_to_install(name: str, package: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules['{package}'] = None\n"  # as where it isn't installed
        "import fastjobs\n"
        f"try: fastjobs.{name}\n"
        "except ImportError as error: print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout
    assert (
        told == f'fastjobs.{name} needs {package}, which isn\'t installed: pip install "fastjobs[{extra}]"\n'
    )


def test_a_mistake_inside_fastjobs_is_not_told_as_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastjobs, "_DOORS", {"gone": ("fastjobs.web.gone", "", "fastapi")})
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'fastjobs\.web\.gone'"):
        _ = fastjobs.gone
