"""Node images at run time: the code of the tasks that build, test and publish them."""
