"""Stage stack_test of a software stack: loads every module of the installed tree and runs the tests of the spec in it."""
