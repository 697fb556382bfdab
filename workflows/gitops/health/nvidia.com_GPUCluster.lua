-- status.state is ready also without any GPU node: only condition Ready with reason Reconciled says that operands run.
-- One node's failed operand is no failure of the whole: how many may be missing is the quorum's to say.
hs = {status = "Progressing", message = "not reconciled yet"}
for _, c in ipairs((obj.status or {}).conditions or {}) do
  if c.type == "Ready" and c.status == "True" then
    hs = {status = c.reason == "Reconciled" and "Healthy" or "Progressing", message = c.message}
  elseif c.type == "Error" and c.status == "True" then
    hs = {status = c.reason == "ReconcileFailed" and "Degraded" or "Progressing", message = c.message}
  end
end
return hs
