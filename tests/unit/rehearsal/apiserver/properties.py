"""How property tests run here: the same examples each time, and no deadline, as machines are shared."""

from hypothesis import settings

repeatable = settings(derandomize=True, database=None, deadline=None, max_examples=60)
