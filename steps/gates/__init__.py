"""Gates judge observations against expectations; they are pure and do no I/O."""
