"""Host settings of a node profile. Each module reads its settings, changes those that differ, and returns a result for each."""
