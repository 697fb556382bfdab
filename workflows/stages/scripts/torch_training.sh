# Check `training`: torchrun on two nodes with all their GPUs: all_reduce of a large tensor, and some steps of a small model, whose loss must
# fall. The debug lines of NCCL go to files, and channels between nodes are counted in them.
# In: NODE_NAME, JOB_COMPLETION_INDEX, JOB, SERVICE, SECONDS_A_RUN. Out: {"node","exit":code,"result":{…},"channels":{"gdr","rdma","socket"}}
cat >/tmp/train.py <<'PYTHON'
import json, math, os, time
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank, world, device = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
tensor = torch.ones(1 << 28, device="cuda")
for _ in range(3):
    dist.all_reduce(tensor)
torch.cuda.synchronize()
dist.barrier()
began = time.time()
for _ in range(10):
    dist.all_reduce(tensor)
torch.cuda.synchronize()
seconds = (time.time() - began) / 10
busbw = tensor.numel() * 4 / seconds * 2 * (world - 1) / world / 1e9
torch.manual_seed(1)
layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[device])
data = torch.randn(512, 1024, device="cuda")
target = data[:, :1] - data[:, 1:2]
optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
for _ in range(50):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
if device == 0:
    # JSON has no NaN, which a loss becomes where a GPU computes wrongly
    first, last = (loss if math.isfinite(loss) else None for loss in (losses[0], losses[-1]))
    result = {"ranks": world, "busbw": round(busbw, 2), "first_loss": first, "last_loss": last, "torch": torch.__version__}
    json.dump(result, open("/tmp/result", "w"))
dist.destroy_process_group()
PYTHON
rm -f /tmp/result /tmp/nccl.*
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_DEBUG_FILE=/tmp/nccl.%h.%p NCCL_SOCKET_IFNAME=eth0
timeout "$SECONDS_A_RUN" torchrun --nnodes 2 --nproc-per-node gpu --node-rank "$JOB_COMPLETION_INDEX" \
  --master-addr "$JOB-0.$SERVICE" --master-port 29500 /tmp/train.py 2>&1
code=$?
lines() { cat /tmp/nccl.* 2>/dev/null | grep -c "$1"; }
printf '{"node":"%s","exit":%s,"result":%s,"channels":{"gdr":%s,"rdma":%s,"socket":%s}}' "$NODE_NAME" "$code" "$(cat /tmp/result || echo '{}')" \
  "$(lines 'via NET/.*/GDRDMA')" "$(lines 'via NET/[^S]')" "$(lines 'via NET/Socket')" >/dev/termination-log
