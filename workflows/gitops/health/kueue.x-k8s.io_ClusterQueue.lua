-- Condition Active is false where a flavor, a topology, an admission check or a queue that it names is missing, and where somebody
-- stopped it (spec.stopPolicy), which is no fault.
for _, c in ipairs((obj.status or {}).conditions or {}) do
  if c.type == "Active" and (c.observedGeneration or obj.metadata.generation) == obj.metadata.generation then
    local health = c.status == "True" and "Healthy" or c.reason == "Stopped" and "Suspended" or "Degraded"
    return {status = health, message = c.message}
  end
end
return {status = "Progressing", message = "changed since it was reconciled"}
