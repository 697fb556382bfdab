"""Stage reset: removes RKE2 from the hosts and proves that nothing of it is left."""
