import os

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
metrics = fastjobs.PrometheusMetrics()
q = fastjobs.Queue(fastjobs.SQLStore(engine), observe=metrics)


@q.kind("welcome-mail")
async def welcome(user: int) -> None: ...


app = FastAPI(lifespan=fastjobs.lifespan(q))


@app.post("/register")
async def register() -> dict[str, str | None]:
    return {"job": await welcome.push(7)}


@app.get("/metrics")
def scraped() -> Response:  # a def: it runs in a thread, and may wait for the database
    registry = REGISTRY
    if (
        "PROMETHEUS_MULTIPROC_DIR" in os.environ
    ):  # several workers: what all of them counted, and the store's numbers
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        registry.register(metrics.gauges)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
