"""The parts of a node profile: each reads its items, changes those that differ, and reads them again."""
