-- status.state is ready also without any GPU node: only condition Ready with reason Reconciled says that operands run.
-- One node's failed operand is no failure of the whole: how many may be missing is the quorum's to say.
-- Of two such objects the operator looks at the older one only; what an ignored one still says is old.
local s, on = obj.status or {}, {}
for _, c in ipairs(s.conditions or {}) do
  on[c.type] = c.status == "True" and c or nil
end
local c, known = on.Error or on.Ready or {}, {Reconciled = "Healthy", ReconcileFailed = "Degraded"}
if s.state == "ignored" then
  return {status = "Degraded", message = "another one is older"}
end
return {status = known[c.reason or ""] or "Progressing", message = c.message or "not reconciled yet"}
