-- state is ready, notReady, ignore or error, of the whole and of each part.
local known, state = {ready = "Healthy", error = "Degraded"}, (obj.status or {}).state or ""
return {status = known[state] or "Progressing", message = (obj.status or {}).reason or state}
