"""The plan: spec and catalog resolved. Pure code: the same input gives the same bytes."""
