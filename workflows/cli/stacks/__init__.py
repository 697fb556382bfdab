"""Commands of `bringup stack`."""
