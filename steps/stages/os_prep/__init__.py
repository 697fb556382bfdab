"""Stage os_prep: every machine is prepared as the profile says, and machines are alike where they must be."""
