"""What runs before submit: spec, plan, render; and what drives a run: engines, rehearsal, commands."""
