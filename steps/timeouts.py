"""Every wait of a step, in seconds, each with its reason. Deadlines of gates are in the task, not here."""

from typing import Final

API_CONNECT: Final = 5.0
"""TCP and TLS to an API server: a healthy one answers in milliseconds, a failing-over VIP within 3 s."""

API_READ: Final = 30.0
"""One LIST page of 500 nodes takes 0.2 s; 30 s covers an API server that is busy starting."""

API_TRIES: Final = 5
"""Tries of one request on 429, 5xx or a broken connection, before the step ends as temporary."""

API_BACKOFF_FIRST: Final = 0.2
API_BACKOFF_MAX: Final = 5.0
"""Waits between those tries grow from the first to the second; a Retry-After header wins."""

POLL_FIRST: Final = 2.0
POLL_MAX: Final = 15.0
POLL_FACTOR: Final = 1.5
"""Between two observations of a waiting gate: quick at first, then at most four reads a minute, which a busy API server bears."""

JOB_DELETE: Final = 30.0
"""Deletion of a finished check's objects; longer means a finalizer hangs, which is reported, not waited for."""

STORE_TRIES: Final = 3
STORE_BACKOFF: Final = 0.5
"""A network file system may refuse a write for a moment while its server fails over."""

TARGET_LEASE: Final = 6 * 3600
"""How long the target stays reserved for a run after its last write: longer than the tasks of any stage between two writes may
take together (DCGM's level 4 alone has three hours; a test adds them up). A run that died frees the target after that, a sealed
one at once."""

FAIL_CONFIRM: Final = 10.0
"""A final failure must be seen again after this long: operators report a failed state for a moment while they restart."""

DIAGNOSIS: Final = 60.0
"""Collecting what a person would look at next: the engine leaves a task 15 minutes beyond its deadline, for clean-up too."""
