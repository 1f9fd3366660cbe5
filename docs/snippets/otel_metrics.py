from fastapi import FastAPI
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

# In production the exporter is an OTLPMetricExporter, of opentelemetry-exporter-otlp.
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(ConsoleMetricExporter())]))

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), observe=fastjobs.OTelMetrics())


@q.kind("welcome-mail")
async def welcome(user: int) -> None: ...


app = FastAPI(lifespan=fastjobs.lifespan(q))


@app.post("/register")
async def register() -> dict[str, str | None]:
    return {"job": await welcome.push(7)}
