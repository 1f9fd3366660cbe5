"""StoreSuite: each promise of a Store as a test, a file per subject."""

from __future__ import annotations

from fastjobs.testing.suite.at_once import AtOnce
from fastjobs.testing.suite.cancel import Cancels
from fastjobs.testing.suite.carrying import Carrying
from fastjobs.testing.suite.claiming import Claiming
from fastjobs.testing.suite.combined import Combined
from fastjobs.testing.suite.counts import Counts
from fastjobs.testing.suite.done_in import DoneIn
from fastjobs.testing.suite.failed import Failed
from fastjobs.testing.suite.fence import Fence
from fastjobs.testing.suite.hold_back import HoldingBack
from fastjobs.testing.suite.holds import Holds
from fastjobs.testing.suite.keys_in_transactions import KeysInTransactions
from fastjobs.testing.suite.latest import Latest
from fastjobs.testing.suite.lifecycle import Lifecycle
from fastjobs.testing.suite.listening import Listening
from fastjobs.testing.suite.looks_in_transactions import LooksInTransactions
from fastjobs.testing.suite.marks import Marks
from fastjobs.testing.suite.names import Names
from fastjobs.testing.suite.one_at_a_time import OneAtATime
from fastjobs.testing.suite.others import Others
from fastjobs.testing.suite.pause import Pause
from fastjobs.testing.suite.progress import Progress
from fastjobs.testing.suite.prune import Prune
from fastjobs.testing.suite.pushing import Pushing
from fastjobs.testing.suite.schedules import Schedules
from fastjobs.testing.suite.stops import Stops
from fastjobs.testing.suite.throttle import Throttle
from fastjobs.testing.suite.transactions import Transactions
from fastjobs.testing.suite.unique import Unique


class StoreSuite(
    Pushing,
    Claiming,
    Others,
    Holds,
    Fence,
    Marks,
    Failed,
    Carrying,
    Unique,
    Latest,
    OneAtATime,
    AtOnce,
    HoldingBack,
    Names,
    Throttle,
    Schedules,
    Counts,
    Cancels,
    Stops,
    Pause,
    Progress,
    Prune,
    Combined,
    Transactions,
    KeysInTransactions,
    DoneIn,
    LooksInTransactions,
    Lifecycle,
    Listening,
):
    """Checks every promise of whatever a store says it has; subclass it, and give it the store.

    ```python
    class TestMine(StoreSuite):
        @pytest.fixture
        async def store(self, clock: Clock) -> AsyncIterator[MyStore]:
            yield MyStore(clock=clock)
    ```

    Each test gets a store with no jobs, on a clock that the test moves. A test of an extra that the store lacks
    is skipped, with the extra's name. `races` is how many tasks a race has, `histories` how many random histories
    are tried, `time_limit` how many seconds a test may take. A store with TRANSACTIONS gives `engine` and
    `async_engine` fixtures as well (`InTransactions`), one with LISTEN an `other` store of the same jobs.
    The tests are run by anyio's pytest plugin, which comes with anyio.
    """
