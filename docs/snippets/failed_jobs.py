import asyncio
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
store = fastjobs.SQLStore(engine)


async def main() -> None:
    for job in await store.failed():  # the latest first, 100 at most
        when = datetime.fromtimestamp(job.failed_at / 1_000_000, UTC)
        print(f"{when:%Y-%m-%d %H:%M} job {job.id}, {job.kind}, {job.attempts} attempts: {job.error}")
    mails = await store.failed(kind="welcome-mail")
    print("run again:", sum(await store.run_again([job.id for job in mails])))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
