import logging
from collections.abc import Mapping, MutableMapping

import structlog
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

JSON = structlog.processors.JSONRenderer()
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        fastjobs.add_log_fields,
        structlog.processors.add_log_level,
        JSON,
    ]
)
log = structlog.get_logger()

# The lines of libraries, and of the queue itself, which log by logging.
output = logging.StreamHandler()
output.setFormatter(
    structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.ExtraAdder(),
            fastjobs.add_log_fields,
            structlog.stdlib.add_log_level,
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, JSON],
    )
)
logging.basicConfig(level=logging.INFO, handlers=[output])


class CarryTenant:
    """The tenant that is bound as a job is pushed is bound as it runs."""

    def carry(self, into: MutableMapping[str, str]) -> None:
        tenant = structlog.contextvars.get_contextvars().get("tenant")
        if isinstance(tenant, str):
            into["tenant"] = tenant

    def restore(self, carried: Mapping[str, str]) -> None:
        tenant = carried.get("tenant", "")
        if tenant.isalnum():  # it has been in the database, so it's checked as what a client sends
            structlog.contextvars.bind_contextvars(tenant=tenant)


engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), carry=[fastjobs.CarryRequestID(), CarryTenant()])


@q.kind("welcome-mail", attempts=1)
async def welcome(user: int) -> None:
    log.info("sending", user=user)
    raise ConnectionRefusedError("the mail server is down")


app = FastAPI(lifespan=fastjobs.lifespan(q))
app.add_middleware(fastjobs.RequestIDMiddleware)


@app.post("/{tenant}/register")
async def register(tenant: str) -> dict[str, str | None]:
    with structlog.contextvars.bound_contextvars(tenant=tenant):
        log.info("registering")
        return {"job": await welcome.push(7)}
