"""Specs of builds: the factory, and the parts that images and stacks share with it."""
