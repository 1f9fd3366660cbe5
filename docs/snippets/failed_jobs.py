import asyncio

from sqlalchemy.ext.asyncio import create_async_engine

import fastjobs

engine = create_async_engine("sqlite+aiosqlite:///app.db")
fastjobs.sqlite.configure(engine)
q = fastjobs.Queue(fastjobs.SQLStore(engine))  # or the app's own


async def main() -> None:
    async with q.running(run=False):  # opens the store and closes it, and runs no job
        for job in await q.failed():  # the latest first, 100 at most
            print(
                f"{job.failed_at:%Y-%m-%d %H:%M} job {job.id}, {job.kind}, {job.attempts} attempts: {job.error}"
            )
        print("run again:", await q.run_again(kind="welcome-mail"))


if __name__ == "__main__":
    asyncio.run(main())
