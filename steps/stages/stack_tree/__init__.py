"""Stage stack_tree of a software stack: installs its packages from the build cache into a tree, and checks that."""
