"""Stage gang: simulated gang schedulers Volcano, KAI and Kueue."""
