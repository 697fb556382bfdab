"""Results of tests of nodes and of facts that nodes share, before a gate judges them."""
