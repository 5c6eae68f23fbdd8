#!/usr/bin/env bash
# GPU memory that comes back late and not at all, on a GPU machine without network: does the next arm wait for it?
#
#   hold_memory.sh RAY_ARCHIVE WHEELS_FOLDER      about 2 minutes; neither is needed when rehearsal.sh has unpacked them
#
# Three arms of hold_memory.yaml, launched by one `raybench run` (simulated engines beside processes that hold 8 GB each).
# The run has to end with exit code 4 at the third. $OUT/hold_memory.txt is the result, $OUT/hold_memory.tar.gz the run.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/client.sh"
log=$OUT/hold_memory.txt
hold=$home/hold runs=$home/hold-runs

[ -d "$client" ] || install_client "$1" "$2" || exit 1
rm -rf "$hold" "$runs"
mkdir -p "$hold/container" "$hold/keeps"
holders=()
for name in container keeps; do
  python3 "$gpu/hold_memory.py" container "$hold/$name" 8 12 > "$hold/$name/out" 2>&1 &
  holders+=($!)
done
while sleep 0.2; do
  printf '%s,%s\n' "$(date +%s.%N)" "$(nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits)"
done > "$hold/timeline.csv" &
sampler=$!
say "raybench run"
raybench run "$gpu/hold_memory.yaml" --runs-dir "$runs" 2>&1 | tee -a "$log"
code=${PIPESTATUS[0]}
say "raybench ended with exit code $code (4 is right: the third arm keeps its memory)"
touch "$hold"/{container,keeps}/{run,stop}
wait "${holders[@]}"
sleep 1
kill "$sampler"
for run in "$runs"/*/manifest.json; do
  python3 "$gpu/hold_memory.py" tell "$(dirname "$run")" "$hold/timeline.csv" 2>&1 | tee -a "$log"
done
tar -C "$runs" --exclude parts -czf "$OUT/hold_memory.tar.gz" .
cat "$hold"/*/out
[ "$code" -eq 4 ]
