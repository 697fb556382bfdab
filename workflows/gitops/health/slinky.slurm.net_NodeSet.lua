-- Every wanted pod runs the newest template and is ready, and Slurm holds none of its nodes for down.
hs = {status = "Progressing", message = "not reconciled yet"}
local s = obj.status or {}
if s.desired ~= nil and s.observedGeneration == obj.metadata.generation then
  local ready, updated, down = s.readyReplicas or 0, s.updatedReplicas or 0, s.slurmDown or 0
  hs.message = ready .. " of " .. s.desired .. " ready, " .. updated .. " updated, " .. down .. " down"
  if ready == s.desired and updated == s.desired and down == 0 then
    hs.status = "Healthy"
  end
end
return hs
