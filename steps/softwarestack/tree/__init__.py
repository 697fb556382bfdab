"""Tree of a stack: its assembly from the build cache, and the checks of what stands in it."""
