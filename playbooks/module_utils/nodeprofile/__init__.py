"""The parts of a node profile. Each part reads its items, changes those that differ, and reads them again."""
