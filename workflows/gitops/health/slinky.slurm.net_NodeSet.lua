-- Healthy if every desired pod runs the newest template and is ready, and Slurm counts none of its nodes as down.
-- The status omits counts of 0. Zero desired pods are healthy only if the spec asks for zero; else no node matches yet.
local s, spec, health = obj.status or {}, obj.spec or {}, "Progressing"
if s.observedGeneration ~= obj.metadata.generation then
  return {status = health, message = "changed since it was reconciled"}
end
local want, ready, new, down = s.desired or 0, s.readyReplicas or 0, s.updatedReplicas or 0, s.slurmDown or 0
local fits = want > 0 or spec.replicas == 0 and spec.scalingMode ~= "DaemonSet"
if fits and ready == want and new == want and down == 0 then
  health = "Healthy"
end
return {status = health, message = ready .. " of " .. want .. " ready, " .. new .. " updated, " .. down .. " down"}
