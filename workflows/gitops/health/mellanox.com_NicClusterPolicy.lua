-- state is ready, notReady, ignore or error, of the whole and of each part. Only the policy named nic-cluster-policy is looked at:
-- ignore of the whole is for good, of a part it means that nobody asked for it. Newer operators say which generation they saw.
local s, waits = obj.status or {}, nil
for _, c in ipairs(s.conditions or {}) do
  if c.type == "Ready" and (c.observedGeneration or obj.metadata.generation) ~= obj.metadata.generation then
    return {status = "Progressing", message = "changed since it was reconciled"}
  end
end
for _, part in ipairs(s.appliedStates or {}) do
  if part.state ~= "ready" and part.state ~= "ignore" then
    waits = (waits and waits .. ", " or "") .. part.name .. " is " .. part.state
  end
end
local known = {ready = "Healthy", error = "Degraded", ignore = "Degraded"}
return {status = known[s.state or ""] or "Progressing", message = s.reason or waits or s.state}
