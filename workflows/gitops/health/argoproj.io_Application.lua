-- The health of a child decides when the next sync wave starts. Argo CD removed this check in 1.8; without it waves wait for nothing.
-- Before its first sync an Application is Healthy or Missing, and neither Missing nor Unknown makes its parent wait.
-- After a change of chart or revision the status is that of the old one until the next comparison. A change of inline values or of
-- parameters in an overlay alone cannot be seen here: such an Application keeps its old health until it is compared.
local function pins(spec)
  local found = {}
  for _, source in ipairs((spec or {}).sources or {(spec or {}).source}) do
    found[#found + 1] = (source.chart or source.path or "") .. "@" .. (source.targetRevision or "")
  end
  return table.concat(found, " ")
end
local health, sync = (obj.status or {}).health or {}, (obj.status or {}).sync or {}
if sync.status and pins(sync.comparedTo) ~= pins(obj.spec) then
  return {status = "Progressing", message = "not compared since its last change"}
end
if health.status == "Degraded" or (sync.status == "Synced" and health.status ~= "Missing" and health.status ~= "Unknown") then
  return {status = health.status or "Progressing", message = health.message}
end
return {status = "Progressing", message = "not synced yet"}
