#!/usr/bin/env bash
# Real SGLang on a GPU machine without network, measured by raybench with a Ray on the same machine. See GPU.md.
#
#   rehearsal.sh unpack RAY_ARCHIVE WHEELS_FOLDER          the client's packages; a run on the simulated engine
#   rehearsal.sh run SGLANG_ARCHIVE MODEL [SECONDS [SET-UP...]]
#                                                          the named set-ups, or the first four of GPU.md, that are not
#                                                          done yet and fit into SECONDS (570); called again, it goes on
#                                                          and needs neither file
#
# A set-up is done when its server came up and every run of it came to its end.
# Results go to $OUT, one archive a set-up. What was unpacked stays in /var/tmp/raybench-gpu for the next call; the scenarios
# name the servers' logs there.
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/client.sh"
server=$home/server
log=$OUT/rehearsal.log
#: The first start compiles kernels; later ones on the same machine take half of it.
START_LIMIT_S=240
RUN_LIMIT_S=170
#: Below this no set-up is begun.
SETUP_NEEDS_S=150

unpack() {
  install_client "$1" "$2" || return 1
  mkdir -p "$home/done"
  { nvidia-smi; python3 --version; nproc; ulimit -n; free -m; } > "$OUT/machine.txt" 2>&1
  say "unpacked; a run on the simulated engine"
  raybench run "$root/scenarios/demo.yaml" --runs-dir "$home/sim-demo" 2>&1 | tee -a "$log"
  keep sim-demo
}

# keep NAME: the results of one set-up as one archive; the parts are in the Parquet files.
keep() { tar -C "$home" --exclude parts -czf "$OUT/$1.tar.gz" "$1" && ls -l "$OUT/$1.tar.gz"; }

mark() { printf '%s,%s\n' "$(date +%s.%N)" "$*" >> "$work/marks.csv"; }

# serve OPTIONS...: SGLang in a session of its own, up or not within the limit.
serve() {
  mark "start $*"
  PYTHONPATH=$server PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false \
    setsid python3 "$gpu/../sglang_server.py" --gpu --model-path "$model" "$@" > "$work/server.log" 2>&1 &
  server_pid=$!
  for _ in $(seq "$START_LIMIT_S"); do
    sleep 1
    grep -q "fired up" "$work/server.log" && { mark up; say "$setup: up"; return 0; }
    kill -0 "$server_pid" 2>/dev/null || break
  done
  say "$setup: not up"
  tail -c 3000 "$work/server.log" | tee -a "$log"
  return 1
}

stop_server() {
  mark stop
  kill -- "-$server_pid" 2>/dev/null
  sleep 2
  kill -9 -- "-$server_pid" 2>/dev/null
  sleep 1
  mark stopped
}

# measure SCENARIO [RUNS_FOLDER]: raybench came to its end when it says whether all points are valid (0) or not (1).
measure() {
  local runs=$work/${2:-runs} run code
  mark "run $1"
  timeout -s INT -k 10 "$RUN_LIMIT_S" bash -c 'exec "$@"' _ env PYTHONPATH="$root:$client" PYTHONUNBUFFERED=1 \
    python3 -m raybench run "$gpu/$1.yaml" --runs-dir "$runs" 2>&1 | tee -a "$log"
  code=${PIPESTATUS[0]}
  mark "ended $1"
  [ "$code" -le 1 ] || { complete=no; say "$setup: $1 ended with exit code $code"; }
  for run in "$runs"/*/manifest.json; do
    raybench reconcile "$(dirname "$run")" 2>&1 | tee -a "$log"
  done
  return 0
}

setup_hicache() {
  serve --max-total-tokens 65536 --context-length 8000 --page-size 64 --decode-log-interval 10 \
    --enable-hierarchical-cache --hicache-size 1 --hicache-write-policy write_through \
    --hicache-storage-backend file --hicache-storage-prefetch-policy wait_complete || return 1
  measure hicache
  measure poisoned first
  measure poisoned second
}

setup_saturation() {
  serve --mem-fraction-static 0.85 --max-running-requests 512 --incremental-streaming-output \
    --cuda-graph-max-bs 32 || return 1
  measure saturation
}

setup_retract() {
  serve --max-total-tokens 4096 --context-length 4096 --schedule-conservativeness 0.01 --decode-log-interval 10 \
    || return 1
  measure retract
}

setup_spec() {
  serve --max-total-tokens 262144 --speculative-algorithm NGRAM --speculative-num-draft-tokens 8 \
    --decode-log-interval 10 || return 1
  measure spec
}

#: With more options: more HTTP processes, or an eighth of the events. The load is the same.
serve_http() { serve --max-total-tokens 262144 --max-running-requests 512 --incremental-streaming-output \
  --cuda-graph-max-bs 32 --gc-warning-threshold-secs 0.05 "$@"; }

stamps() {
  python3 "$gpu/stamps.py" http://127.0.0.1:18010 64 128 256 > "$work/stamps-$1.csv" 2> >(tee -a "$OUT/rehearsal.log" >&2) \
    || { complete=no; say "$setup: stamps ended with an error"; }
}

# The second half with the heap of the server's process frozen: no collection of garbage walks through it any more.
setup_http() {
  serve_http || return 1
  measure http
  stamps collected
  python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' \
    http://127.0.0.1:18010/freeze_gc 2>&1 | tee -a "$OUT/rehearsal.log"
  measure http frozen
  stamps frozen
}

setup_http_workers() {
  serve_http --tokenizer-worker-num 4 || return 1
  measure http
  stamps workers
}

setup_http_interval() {
  serve_http --stream-interval 8 || return 1
  measure http
  stamps interval
}

run_setups() {
  local archive=$1 limit=${3:-570} timeline complete
  local setups=("${@:4}")
  [ "${#setups[@]}" -gt 0 ] || setups=(hicache saturation retract spec)
  model=$home/model
  [ -d "$model" ] || cp -r "$2" "$model" || return 1
  [ -d "$server" ] || { mkdir -p "$server" && tar -C "$server" -xJf "$archive"; } || return 1
  CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  export CUDA_HOME
  for setup in "${setups[@]}"; do
    [ -e "$home/done/$setup" ] && continue
    if [ $((limit - SECONDS)) -lt "$SETUP_NEEDS_S" ]; then
      say "$setup: left for the next call"
      continue
    fi
    work=$home/$setup
    rm -rf "$work"
    mkdir -p "$work"
    PYTHONPATH=$root:$client python3 "$gpu/timeline.py" "$work" 0.05 &
    timeline=$!
    sleep 2
    say "$setup: starting the server"
    complete=yes
    "setup_$setup" || complete=no
    [ "$complete" = yes ] && touch "$home/done/$setup"
    stop_server
    sleep 2
    kill "$timeline"
    wait "$timeline"
    say "$setup: $(python3 -c 'import json, sys; told = json.load(open(sys.argv[1])); told.pop("processes"); print(told)' \
      "$work/timeline.json")"
    keep "$setup"
  done
}

case ${1:-} in
  unpack) unpack "$2" "$3" ;;
  run) run_setups "${@:2}" ;;
  *) sed -n '2,12p' "$0"; exit 2 ;;
esac
