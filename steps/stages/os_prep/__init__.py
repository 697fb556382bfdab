"""Stage os_prep: every machine has the host settings of the OS profile, and machines are alike where they must be."""
