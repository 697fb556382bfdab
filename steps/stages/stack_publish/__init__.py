"""Stage stack_publish of a software stack: publishes the tested tree as a version and switches the pointer to it."""
