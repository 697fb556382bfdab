"""The local engine: runs a rendered workflow on this machine, with each step in a subprocess and a durable journal."""
