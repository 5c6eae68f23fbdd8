#!/bin/bash
# A run on the nodes of a Slurm allocation, all of which send load:  sbatch clusters/slurm.sh SCENARIO
#
# The engine runs elsewhere (another job, say) and the scenario names its URL. Its GPUs are sampled there by
# `raybench monitor`, whose file `raybench merge RUN --monitor FILE` takes in afterwards.
# Needs a file system that all nodes share, for .venv, the scenario and the run directory.
#
#SBATCH --job-name=raybench
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=08:00:00
set -euo pipefail
scenario=${1:?usage: sbatch clusters/slurm.sh SCENARIO}
export PATH="$PWD/.venv/bin:$PATH"

# Whoever reaches Ray's ports without a token can run code. srun hands the environment on to every node.
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
others=$((SLURM_JOB_NUM_NODES - 1))
on_head=(srun --overlap --nodes=1 --ntasks=1 --nodelist="$head")
address=$("${on_head[@]}" hostname --ip-address | awk '{print $1}')
export RAY_ADDRESS="$address:6379"

wait_for_nodes() { # the layout is decided from the nodes that are there when the run begins
    timeout 300 python - "$1" <<'PYTHON'
import sys, time, ray

while True:
    try:
        ray.init(log_to_driver=False)
        break
    except ConnectionError:
        time.sleep(1)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(1)
PYTHON
}

"${on_head[@]}" ray start --head --block --node-ip-address="$address" --port=6379 --include-dashboard=false &
wait_for_nodes 1
if ((others > 0)); then
    srun --overlap --nodes="$others" --ntasks="$others" --exclude="$head" ray start --block --address="$RAY_ADDRESS" &
    wait_for_nodes "$SLURM_JOB_NUM_NODES"
fi

# Its time may run out before its end: it goes on with `raybench run --resume runs/RUN` in the place of this line.
"${on_head[@]}" raybench run "$scenario" --runs-dir runs
