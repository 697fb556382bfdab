"""Software stacks: lock files, the graph of builds, and the plan in which order what is built."""
