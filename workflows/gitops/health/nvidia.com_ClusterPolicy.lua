-- status.state is ready even without any GPU node: only condition Ready with reason Reconciled says that operands run.
-- A failed operand on one node does not fail the policy, since the quorum decides how many nodes may fail.
-- The operator reconciles only the oldest object; the status of an ignored one is stale.
local s, on = obj.status or {}, {}
for _, c in ipairs(s.conditions or {}) do
  on[c.type] = c.status == "True" and c or nil
end
local c, known = on.Error or on.Ready or {}, {Reconciled = "Healthy", ReconcileFailed = "Degraded"}
if s.state == "ignored" then
  return {status = "Degraded", message = "another one is older"}
end
return {status = known[c.reason or ""] or "Progressing", message = c.message or "not reconciled yet"}
