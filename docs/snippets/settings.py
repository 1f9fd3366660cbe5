"""An app whose environment says where its database is, and how many jobs run at once."""

from typing import Annotated

from fastapi import FastAPI
from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import fastjobs


class Jobs(BaseModel):
    workers: Annotated[int, Field(ge=0)] = 4
    grace: float = 10
    hold: float = 120


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SHOP_", env_nested_delimiter="__", env_file=".env")
    database_url: str = "sqlite+aiosqlite:///app.db"
    migrate: bool = True
    jobs: Jobs = Jobs()


def engine_of(settings: Settings) -> AsyncEngine:
    engine = create_async_engine(settings.database_url)
    if engine.dialect.name == "sqlite":
        fastjobs.sqlite.configure(engine)
    return engine


def queue_of(settings: Settings, engine: AsyncEngine) -> fastjobs.Queue:
    store = fastjobs.SQLStore(engine, migrate=settings.migrate)
    return fastjobs.Queue(store, **settings.jobs.model_dump())


settings = Settings()
engine = engine_of(settings)
q = queue_of(settings, engine)


@q.kind("report")
async def report() -> None: ...


app = FastAPI(lifespan=fastjobs.lifespan(q))
