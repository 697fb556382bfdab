-- Condition Active is false if a flavor, topology, admission check or queue that the object names is missing, and if the queue was
-- stopped on purpose (spec.stopPolicy), which is not a failure.
for _, c in ipairs((obj.status or {}).conditions or {}) do
  if c.type == "Active" and (c.observedGeneration or obj.metadata.generation) == obj.metadata.generation then
    local health = c.status == "True" and "Healthy" or c.reason == "Stopped" and "Suspended" or "Degraded"
    return {status = health, message = c.message}
  end
end
return {status = "Progressing", message = "changed since it was reconciled"}
