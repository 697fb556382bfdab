"""Software stacks at run time: the code of the tasks that build, check, test and publish them."""
