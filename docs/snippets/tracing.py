from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

# In production the exporter is an OTLPSpanExporter, of opentelemetry-exporter-otlp.
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
trace.set_tracer_provider(provider)

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(
    fastjobs.SQLStore(engine), carry=[fastjobs.CarryRequestID(), fastjobs.CarryTrace()], poll=0.5
)


@q.kind("welcome-mail", backoff=1)
async def welcome(user: int) -> None:
    with trace.get_tracer("shop").start_as_current_span("smtp"):
        if fastjobs.current_job().attempt == 1:
            raise ConnectionRefusedError("the mail server is down")


app = FastAPI(lifespan=fastjobs.lifespan(q))
app.add_middleware(fastjobs.RequestIDMiddleware)


@app.post("/register")
async def register() -> dict[str, str | None]:
    return {"job": await welcome.push(7)}
