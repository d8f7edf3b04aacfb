#!/usr/bin/env bash
# Installs, builds, starts a router and two cache nodes as real processes, runs a cold and a warm pass of the workload beside this
# file, prints what came out, and ends everything. Leaves nothing but build/ behind; may be run again.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$root/deploy/install_deps.sh"
"$root/deploy/build.sh" release cistern cistern-node cistern-router
cistern=$root/build/release/bin/cistern

folder=$(mktemp -d)
clean() {
  "$cistern" down --dir "$folder/cluster" >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT TERM

port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
export CISTERN_ROUTER=127.0.0.1:$port
step "starting a router and two nodes"
"$cistern" up --nodes 2 --ram 384M --dir "$folder/cluster" --router "$CISTERN_ROUTER" --detach
for pass in cold warm; do
  step "$pass pass"
  "$cistern" replay "$root/deploy/demo_trace.jsonl" --bytes-per-block 64K --verify --json >"$folder/$pass.json"
done
python3 "$root/deploy/demo_table.py" "$folder/cold.json" "$folder/warm.json"
"$cistern" status
"$cistern" down --dir "$folder/cluster" >/dev/null
step "done, and the cluster is ended"
