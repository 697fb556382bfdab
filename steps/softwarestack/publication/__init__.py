"""Publication, rollback and export of software stacks."""
