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
# The transports are the default: what RDMA there is, without UD.
RC='--fabric-devices rxe0:1'
ROUTER=127.0.0.1:7400

suite() {
  step "the transport suite over rc"
  "$TESTS/ucx_transport_suite_test" --gtest_filter='*/rc' --gtest_brief=1 || fail "the transport suite over rc"
}

# Leases and tickets that end, a node that sleeps, and one that dies, with time in the test's hand.
fabric() {
  step "a node's shard and a client's core over rc"
  "$TESTS/fabric_cluster_test" --gtest_filter='*/rc' --gtest_brief=1 || fail "node and client over rc"
}

own() {
  step "the transport's own tests over rc"
  "$TESTS/ucx_test" --gtest_filter='*/rc' --gtest_brief=1 || fail "the transport's own tests over rc"
}

# Runs a command until its output (in $OUT) holds $1, at most 20 times: in emulation a handshake may miss its deadline.
OUT=/tmp/out.json
until_says() {
  wanted=$1
  shift
  tries=0
  until "$@" > $OUT && grep -q "$wanted" $OUT; do
    tries=$((tries + 1))
    [ $tries -lt 20 ] || fail "$1 $2 does not say $wanted: $(cat $OUT)"
  done
}
# A replay over the fabric with every byte compared: never wrong, and something was loaded. Paced by the trace's clock, so that a
# connection that has to be tried twice is there for most of it; calls may be late here.
replays() {
  tries=0
  while :; do
    "$BIN/cistern" replay "$TRACE" --bytes-per-block 64K --requests "$1" --speed 4 --verify --transport ucx $RC --json \
      > $OUT 2> /tmp/replay.err
    [ $? -le 1 ] || fail "replay: $(cat $OUT /tmp/replay.err)"
    grep -q '"wrong_parts":0' $OUT || fail "wrong parts: $(cat $OUT)"
    grep -q '"verified_parts":0' $OUT || break
    tries=$((tries + 1))
    [ $tries -lt 5 ] || fail "nothing is loaded: $(cat $OUT)"
  done
  cat $OUT
  echo
}

# What a node is refused: memory that it may not lock, an address that no device has, queue pairs.
limits() {
  "$BIN/cistern" up --nodes 1 --ram 32M --dir /tmp/limits --transport ucx --fabric $HOST:0 $RC --require-rdma --detach \
    --deadline-s 120 --json > /tmp/up.json 2> /tmp/up.err || fail "up: $(cat /tmp/up.json /tmp/up.err)"
  NODES=$(sed 's/.*"nodes"//; s/.*"pid":\([0-9]*\).*/\1/' /tmp/up.json)
  step "F56: a node that may not lock its memory, and one with an address of no device, say so at start"
  chmod 666 /dev/infiniband/*
  cp /tmp/limits/cluster.key /tmp/nobody.key
  chown nobody /tmp/nobody.key
  flags="--router $ROUTER --cluster-key /tmp/nobody.key --require-rdma --ram 16M"
  su -s /bin/sh nobody -c "ulimit -l 64; exec $BIN/cistern-node --data-dir /tmp/low $flags --fabric $HOST:0" 2> /tmp/refused \
    && fail "a node started without memory to lock"
  grep '^cistern-node: .*the lock limit (ulimit -l) is 64 KiB' /tmp/refused || fail "the lock limit was not told: $(cat /tmp/refused)"
  timeout 60 "$BIN/cistern-node" --data-dir /tmp/wrong $flags --fabric 10.99.0.1:0 2> /tmp/refused && fail "a node started on an address of nobody"
  grep '^cistern-node: .*it has to be an address of a fabric device' /tmp/refused || fail "the address was not told: $(cat /tmp/refused)"
  timeout 60 "$BIN/cistern" peers --transport ucx --fabric 10.99.0.1 $RC --json > $OUT 2> /dev/null
  grep '"path":"down"' $OUT || fail "a client with an address of nobody: $(cat $OUT)"

  step "F59: the device gives the node no queue pair more: refused, missed, and well again"
  mount -t cgroup2 none /sys/fs/cgroup
  echo +rdma > /sys/fs/cgroup/cgroup.subtree_control
  mkdir /sys/fs/cgroup/node
  echo "$NODES" > /sys/fs/cgroup/node/cgroup.procs
  echo "rxe0 hca_object=0" > /sys/fs/cgroup/node/rdma.max
  until_says '"path":"down"' "$BIN/cistern" peers --transport ucx $RC --json
  "$BIN/cistern" replay "$TRACE" --bytes-per-block 64K --requests 4 --verify --transport ucx $RC --json > $OUT 2> /dev/null
  [ $? -le 1 ] || fail "replay without queue pairs: $(cat $OUT)"
  grep -q '"verified_parts":0,"wrong_parts":0,.*"reasons":{"PEER_GONE"' $OUT || fail "not all missed, or not by name: $(cat $OUT)"
  echo "rxe0 hca_object=max" > /sys/fs/cgroup/node/rdma.max
  replays 4
  kill -0 "$NODES" || fail "the node did not live through it"
  "$BIN/cistern" down --dir /tmp/limits > /dev/null
}

cluster() {
  step "two nodes and a client"
  "$BIN/cistern" up --nodes 2 --ram 32M --dir /tmp/cluster --transport ucx --fabric $HOST:0 $RC --require-rdma --detach \
    --deadline-s 120 --json > /tmp/up.json 2> /tmp/up.err || fail "up: $(cat /tmp/up.json /tmp/up.err)"
  until_says '"device":"rc_verbs/rxe0:1.*"device":"rc_verbs/rxe0:1' "$BIN/cistern" peers --transport ucx $RC --json
  cat $OUT
  echo
  NODES=$(tr '{' '\n' < /tmp/up.json | sed -n 's/.*"pid":\([0-9]*\).*/\1/p' | while read -r pid; do
    grep -q cistern-node /proc/$pid/cmdline && echo $pid
  done)
  set -- $NODES
  [ $# -eq 2 ] || fail "two nodes: $NODES of $(cat /tmp/up.json)"

  step "a replay with every byte compared"
  replays 12

  step "F27: the link flaps, and its GIDs go and come"
  ip link set eth0 down
  ip addr flush dev eth0
  ip link set eth0 up
  ip addr add $HOST/24 dev eth0
  replays 6

  step "gets under one lease, with the nodes awake, stopped and killed"
  leased "$1" "$2"

  step "the RDMA device goes away"
  rdma link delete rxe0
  "$BIN/cistern" replay "$TRACE" --bytes-per-block 64K --requests 4 --verify --json > $OUT 2> /dev/null
  [ $? -le 1 ] || fail "replay over sockets after the device went: $(cat $OUT)"
  grep -q '"wrong_parts":0' $OUT || fail "wrong parts after the device went"
  "$BIN/cistern-node" --data-dir /tmp/third --router $ROUTER --cluster-key /tmp/cluster/cluster.key --fabric $HOST:0 \
    --require-rdma --ram 16M 2> /tmp/refused && fail "a node started without RDMA"
  grep -q 'missing: ' /tmp/refused || fail "what is missing was not told: $(cat /tmp/refused)"
  tail -n 1 /tmp/refused
  "$BIN/cistern" down --dir /tmp/cluster > /dev/null
}

# Line $1 of what test_client said.
answer() {
  tries=0
  while [ "$(grep -c . /tmp/said)" -lt "$1" ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || fail "no answer $1: $(cat /tmp/said)"
    sleep 0.1
  done
  sed -n "$1p" /tmp/said
}
# Loads all parts $1 times, from answer $2 on; every byte is compared.
loads() {
  for i in $(seq "$2" $(($2 + $1 - 1))); do
    echo load >&3
    answer "$i" | grep -q '"ok": 16, "asked": 16, "wrong": 0' || fail "load with nodes $3: $(cat /tmp/said)"
  done
}
# The processes' CPU so far in microseconds, and how often their threads went to sleep.
cpu_of() {
  for pid in "$@"; do
    for task in /proc/$pid/task/*; do
      echo "$(cat $task/schedstat) $(awk '/^voluntary/ { print $2 }' $task/status)"
    done
  done | awk '{ us += $1 / 1000; sleeps += $4 } END { printf "%d %d\n", us, sleeps }'
}
# What they have of a core, in hundredths of a percent, while "$2" runs; says so, with $1 in front. $NODES are the processes.
CPU=
measure() {
  set -- "$1" "$2" $(cpu_of $NODES) "$(now_ms)"
  eval "$2"
  set -- "$1" "$3" "$4" "$(($(now_ms) - $5))" $(cpu_of $NODES)
  CPU=$((($5 - $2) * 10 / $4))
  echo "both nodes' CPU $1: $(awk -v c=$CPU 'BEGIN { print c / 100 }') % of a core in $4 ms, $((($6 - $3) * 1000 / $4)) sleeps a second"
}
now_ms() { awk '{ print int($1 * 1000) }' /proc/uptime; }

leased() {
  rm -f /tmp/in
  mkfifo /tmp/in
  "$TESTS/test_client" leased --router $ROUTER --transport ucx $RC \
    --blocks 16 --part 65536 --deadline-ms 10000 --lease-ms 30000 < /tmp/in > /tmp/said &
  exec 3> /tmp/in
  answer 1 | grep -q '"planned": 16' || fail "plan: $(cat /tmp/said)"
  loads 10 2 awake
  # In emulation all CPU is too much: what gets cost is the difference to the same cluster without them.
  measure "without gets" 'sleep 4'
  idle=$CPU
  measure "while 1600 parts of 64 KiB are got" 'echo 100 >&3; answer 12 > /dev/null'
  answer 12 | grep -q '"ok": 1600, "asked": 1600, "wrong": 0' || fail "1600 gets: $(cat /tmp/said)"
  echo "the gets' share of it: $(awk -v c=$((CPU - idle)) 'BEGIN { print c / 100 }') % of a core"
  kill -STOP $1 $2
  loads 2 13 stopped  # No more: the router drops silent nodes, and then their parts do not count.
  step "gets went on while both nodes were stopped"
  kill -CONT $1 $2
  kill -9 $1
  for i in 15 16; do
    echo load >&3
    answer $i | grep -q '"wrong": 0' || fail "load after kill -9: $(cat /tmp/said)"
  done
  answer 16 | grep -q '"ok": 16' && fail "a dead node's parts counted: $(cat /tmp/said)"
  exec 3>&-
  wait $!
}

for part in $PARTS; do $part; done
step "all well"
