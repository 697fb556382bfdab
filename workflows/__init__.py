"""Everything before submit (spec, plan, rendering), and the parts that drive a run: engines, rehearsal, commands."""
