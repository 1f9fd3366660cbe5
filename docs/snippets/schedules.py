import asyncio
from datetime import datetime

from pydantic import BaseModel

import fastjobs
from fastjobs import Cron, Every

q = fastjobs.Queue(fastjobs.Memory())


class Report(BaseModel):
    to: str


@q.kind("report")
async def report(job: Report) -> None:
    print(f"a report for {job.to}")


@q.kind("refresh-rates")
async def refresh_rates() -> None:
    print(f"refreshed at {datetime.now():%S.%f}"[:-5])


report.schedule(Cron("0 9 * * MON-FRI", "Europe/Paris"), Report(to="team@example.com"))
report.schedule(Cron("@monthly"), Report(to="board@example.com"), name="report-monthly", jitter=600)
refresh_rates.schedule(Every(seconds=0.2), missed="skip")


async def main() -> None:
    async with q.running():
        await asyncio.sleep(0.5)
