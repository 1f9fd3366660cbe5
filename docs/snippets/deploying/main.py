"""The app of these pages: its queue, and what a supervisor asks."""

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Response
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SHOP_")
    database_url: str = "sqlite+aiosqlite:///app.db"
    workers: int = 4


settings = Settings()
engine = create_async_engine(settings.database_url)
if engine.dialect.name == "sqlite":
    fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine), workers=settings.workers, grace=10)


@q.kind("report", timeout=300)
async def report() -> None: ...


app = FastAPI(lifespan=fastjobs.lifespan(q))


@app.get("/ready")
async def ready(response: Response) -> dict[str, Any]:
    """Whether requests and jobs are in good hands here."""
    health = q.health()
    if not health.ok:
        response.status_code = 503
    return asdict(health)


@app.get("/live")
async def live() -> dict[str, bool]:
    """Whether this process answers at all."""
    return {"alive": True}
