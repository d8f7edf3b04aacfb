# Runs in the guest (busybox's shell): $BIN has the project's programs, $TESTS the tests'. Each step says what it saw; the first
# that falls short ends it.
set -u
fail() {
  echo "FAILED: $*"
  for log in /tmp/cluster/logs/*.log; do echo "--- $log"; tail -n 20 "$log"; done
  exit 1
}
step() { echo "[$(cut -d' ' -f1 /proc/uptime) s] $*"; }
HOST=10.77.0.1
RC="--fabric-transports rc_v,ud_v --fabric-devices rxe0:1"
ROUTER=127.0.0.1:7400

suites() {
  step "suites over rc"
  "$TESTS/ucx_transport_suite_test" --gtest_filter='*/rc' --gtest_brief=1 || fail "the transport suite over rc"
  "$TESTS/ucx_test" --gtest_filter='*/rc' --gtest_brief=1 || fail "the transport's own tests over rc"
  "$TESTS/fabric_cluster_test" --gtest_filter='*/rc' --gtest_brief=1 || fail "node and client over rc"
}

cluster() {
  step "two nodes and a client"
  "$BIN/cistern" up --nodes 2 --ram 64M --dir /tmp/cluster --transport ucx --fabric $HOST:0 $RC --require-rdma --detach \
    --deadline-s 120 --json > /tmp/up.json || fail "up: $(cat /tmp/up.json)"
  "$BIN/cistern" peers --transport ucx $RC --json > /tmp/peers.json || fail "peers"
  grep -q 'rc_verbs/rxe0:1' /tmp/peers.json || fail "no connection over rc: $(cat /tmp/peers.json)"
  "$BIN/cistern" status --json | grep -q '"transport":"socket"\|"peers"' || fail "status"
  PIDS=$(tr ',{' '\n\n' < /tmp/up.json | sed -n 's/.*"pid":\([0-9]*\).*/\1/p')
  NODES=$(echo $PIDS | awk '{ for (i = 1; i <= NF; ++i) print $i }' | while read -r pid; do
    grep -q cistern-node /proc/$pid/cmdline && echo $pid; done)
  set -- $NODES
  [ $# -eq 2 ] || fail "two nodes: $NODES of $PIDS"

  step "a replay with every byte compared"
  "$BIN/cistern" replay "$TRACE" --bytes-per-block 64K --requests 12 --verify --transport ucx $RC --json > /tmp/replay.json
  code=$?
  cat /tmp/replay.json; echo
  [ $code -eq 0 ] || fail "replay: exit $code"
  grep -q '"wrong_parts":0' /tmp/replay.json || fail "wrong parts"
  grep -q '"verified_parts":0' /tmp/replay.json && fail "nothing was loaded"

  step "F27: the link flaps, and its GIDs go and come"
  ip link set eth0 down
  ip addr flush dev eth0
  ip link set eth0 up
  ip addr add $HOST/24 dev eth0
  tries=0
  until "$BIN/cistern" replay "$TRACE" --bytes-per-block 64K --requests 4 --verify --transport ucx $RC --json > /tmp/flap.json &&
    ! grep -q '"verified_parts":0' /tmp/flap.json; do
    tries=$((tries + 1))
    [ $tries -lt 10 ] || fail "nothing is served after the flap: $(cat /tmp/flap.json)"
  done
  grep -q '"wrong_parts":0' /tmp/flap.json || fail "wrong parts after the flap"

  step "gets under one lease, with the nodes awake, stopped and killed"
  mkfifo /tmp/in
  "$TESTS/test_client" leased --router $ROUTER --transport ucx --fabric-transports rc_v,ud_v --fabric-devices rxe0:1 \
    --blocks 16 --part 65536 --deadline-ms 10000 --lease-ms 30000 < /tmp/in > /tmp/out &
  exec 3> /tmp/in
  # Answer number $1.
  answer() {
    tries=0
    while [ "$(grep -c . /tmp/out)" -lt "$1" ]; do
      tries=$((tries + 1))
      [ $tries -lt 600 ] || fail "no answer $1: $(cat /tmp/out)"
      usleep 100000
    done
    sed -n "$1p" /tmp/out
}
answer 1 | grep -q '"planned": 16' || fail "plan: $(cat /tmp/out)"
ticks() { awk '{ print $14 + $15 }' /proc/$1/stat; }
from=$(($(ticks $1) + $(ticks $2)))
begin=$(cut -d' ' -f1 /proc/uptime)
for i in 2 3 4 5 6; do
  echo load >&3
  answer $i | grep -q '"ok": 16, "asked": 16, "wrong": 0' || fail "load with nodes awake: $(cat /tmp/out)"
done
end=$(cut -d' ' -f1 /proc/uptime)
echo "nodes' CPU while 80 parts were got: $(($(ticks $1) + $(ticks $2) - from)) ticks of 10 ms, from $begin to $end s"
kill -STOP $1 $2
for i in 7 8 9; do
  echo load >&3
  answer $i | grep -q '"ok": 16, "asked": 16, "wrong": 0' || fail "load with nodes stopped: $(cat /tmp/out)"
done
step "gets went on while both nodes were stopped"
kill -CONT $1 $2
kill -9 $1
echo load >&3
answer 10
answer 10 | grep -q '"wrong": 0' || fail "load after kill -9"
answer 10 | grep -q '"ok": 16' && fail "a dead node's parts counted"
echo load >&3
answer 11 | grep -q '"wrong": 0' || fail "load after kill -9, again"
exec 3>&-
wait $!

step "the RDMA device goes away"
rdma link delete rxe0
"$BIN/cistern" replay "$TRACE" --bytes-per-block 64K --requests 4 --verify --json > /tmp/gone.json
[ $? -eq 0 ] || fail "replay over sockets after the device went: $(cat /tmp/gone.json)"
grep -q '"wrong_parts":0' /tmp/gone.json || fail "wrong parts after the device went"
"$BIN/cistern-node" --data-dir /tmp/third --router $ROUTER --cluster-key /tmp/cluster/cluster.key --fabric $HOST:0 --require-rdma \
  --ram 16M 2> /tmp/refused && fail "a node started without RDMA"
grep -q 'missing: ' /tmp/refused || fail "what is missing was not told: $(cat /tmp/refused)"
tail -n 1 /tmp/refused
"$BIN/cistern" down --dir /tmp/cluster > /dev/null
}

for part in $PARTS; do $part; done
step "all well"
