# raybench on a GPU machine without network: what rehearsal.sh and hold_memory.sh share. Sourced; bash.
#
# The client's packages come before those of the machine, which may be older than it needs.
: "${OUT:?is not set: the folder for the results}"
gpu=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$gpu/../../.." && pwd)
home=/var/tmp/raybench-gpu
client=$home/client

raybench() { PYTHONPATH=$root:$client PYTHONUNBUFFERED=1 python3 -m raybench "$@"; }

# The sourcing script names the file in `log`.
say() { printf '%s +%ss %s\n' "$(date +%T)" "$SECONDS" "$*" | tee -a "$log"; }

# install_client RAY_ARCHIVE WHEELS_FOLDER
install_client() {
  mkdir -p "$client"
  tar -C "$client" -xJf "$1" || return 1
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$client" "$2"/*.whl
}
