-- Condition Active is false where a flavor or a queue that it names is missing or stopped.
hs = {status = "Progressing", message = "not reconciled yet"}
for _, c in ipairs((obj.status or {}).conditions or {}) do
  if c.type == "Active" then
    hs = {status = c.status == "True" and "Healthy" or "Degraded", message = c.message}
  end
end
return hs
