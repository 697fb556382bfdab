-- The state of the policy and of each part is ready, notReady, ignore or error. A policy with state ignore is never reconciled, since
-- its name is not nic-cluster-policy; a part with state ignore was not requested. Newer operators report the observed generation.
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
