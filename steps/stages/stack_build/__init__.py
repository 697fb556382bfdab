"""Stage stack_build of a software stack: builds each package that the build cache lacks, and puts it there."""
