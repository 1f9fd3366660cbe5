"""The dashboard and the page on metrics name what the exporters really export."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fastjobs import Memory, OTelMetrics, Outcome, PrometheusMetrics, Queue

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs/grafana/fastjobs.json").read_text())
PAGE = (ROOT / "docs/guide/metrics.md").read_text()
NAME = re.compile(r"\bfastjobs_[a-z_]+")
QUERY = re.compile(r"\b(fastjobs_[a-z_]+)(?:\{([^}]*)\})?")

pytestmark = pytest.mark.anyio


@pytest.fixture
async def exported() -> tuple[dict[str, set[str]], set[str]]:
    """The labels of each of Prometheus' samples by its name, and the names of OpenTelemetry's metrics."""
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    meters: Any = reader
    otel = OTelMetrics(meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    q = Queue(Memory(), observe=[PrometheusMetrics(registry=registry), otel])

    @q.kind("mail")
    async def mail() -> None: ...

    await mail.push()
    await q.drain()
    async with q.running(run=False):
        text = (await to_thread.run_sync(generate_latest, registry)).decode()
        data = await to_thread.run_sync(meters.get_metrics_data)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    names: set[str] = {
        metric.name
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    return found, names


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


async def test_each_query_of_the_dashboard_is_of_metrics_and_labels_that_are_exported(
    exported: tuple[dict[str, set[str]], set[str]],
) -> None:
    samples, _ = exported
    asked: set[str] = set()
    for expression in expressions():
        found = QUERY.findall(expression)
        assert found, expression
        for name, matchers in found:
            assert name in samples, expression
            labels = set(re.findall(r"(\w+)\s*(?:=~|=|!=)", matchers))
            assert labels <= samples[name], expression
            asked.add(name)
        for by in re.findall(r"by \(([^)]*)\)", expression):
            assert {each.strip() for each in by.split(",")} <= {"kind", "outcome", "le"}, expression
        assert expression.count("(") == expression.count(")"), expression
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    (name,) = NAME.findall(variables["kind"]["query"]["query"])
    assert "kind" in samples[name]
    # And it shows all there is: but for what a histogram has beside its buckets.
    beside = re.compile(r".*_(count|sum|bucket|created)$")
    assert {each for each in samples if not beside.match(each)} - asked == set()


def test_the_outcomes_that_the_dashboard_asks_for_are_outcomes() -> None:
    named = re.findall(r'outcome=~?"([^"]+)"', " ".join([*expressions(), PAGE]))
    assert named
    assert {word for each in named for word in each.split("|")} <= {each.value for each in Outcome}


def test_the_dashboards_panels_are_apart_and_each_says_what_it_is() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) == 23
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)


async def test_the_page_names_all_metrics_and_none_that_there_isnt(
    exported: tuple[dict[str, set[str]], set[str]],
) -> None:
    samples, names = exported
    queries = re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)
    assert queries
    assert set(NAME.findall(" ".join(queries))) <= samples.keys()
    table = {
        name
        for line in PAGE.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([a-z_.]+)`", line)
    }
    rest = {f"fastjobs_jobs{each}" for each in table if each.startswith("_")}
    said = {each for each in table if each.startswith("fastjobs_")} | rest
    families = {re.sub(r"_(bucket|count|sum|created)$", "", each) for each in samples}
    families = {each for each in families if each + "_total" not in families}
    assert said == families
    ours = {f"fastjobs.jobs{each}" for each in table if each.startswith(".")}
    ours |= {each for each in table if each.startswith("fastjobs.") and each != "fastjobs.outcome"}
    assert ours | set(re.findall(r"`(messaging\.[a-z.]+(?:duration|messages))`", PAGE)) == names
