"""The plan: a spec resolved with the catalog into stages, tasks and hosts. Pure code: the same input gives the same bytes."""
