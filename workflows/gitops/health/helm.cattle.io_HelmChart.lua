-- The status of a HelmChart shows only that its Job exists or failed, never that the workloads of the chart run.
local health = {status = "Progressing", message = "the install Job has not been made"}
for _, c in ipairs((obj.status or {}).conditions or {}) do
  if c.type == "Failed" and c.status == "True" then
    return {status = "Degraded", message = c.message}
  elseif c.type == "JobCreated" and c.status == "True" then
    health = {status = "Healthy", message = c.message}
  end
end
return health
