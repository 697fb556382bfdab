"""Use cases of software stacks."""
