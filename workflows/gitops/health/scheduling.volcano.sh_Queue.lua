-- state is Open, Closing, Closed or Unknown; only an open queue takes jobs.
local known, state = {Open = "Healthy", Closing = "Suspended", Closed = "Suspended"}, (obj.status or {}).state or ""
return {status = known[state] or "Progressing", message = state}
