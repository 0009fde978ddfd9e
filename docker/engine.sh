#!/usr/bin/env bash
# Runs a command with a container engine: the one that answers, or else Debian's, which it installs if it is
# missing, starts for the command and stops afterwards.
#
# usage: docker/engine.sh run -- COMMAND...
#
# It exits with the command's exit code. Where no engine can be started it says why in one line, and runs the
# command anyway with FLOODMARK_NO_ENGINE set to that line; the command then skips what needs an engine.
#
#   DOCKER_HOST             where the engine listens (default unix:///var/run/docker.sock)
#   FLOODMARK_ENGINE_DIR    a short path for images, state, sockets and log of a started engine (default
#                           /var/lib/floodmark-docker)
#   FLOODMARK_DOCKERD_ARGS  more arguments for dockerd
#
# Rules
# 1. Never a second dockerd in a network namespace: it would take the first one's bridge and chains.
# 2. An engine that was there before is used and left alone.
# 3. Runs at the same time share the engine that the first of them started: each holds the lock shared, and
#    the one that gets it exclusively stops the engine. A guard process waits for that as well, in case a run
#    ends by SIGKILL.
# 4. When the engine stops, the changes that dockerd made to the network are undone: docker0, its chains, the
#    policy of FORWARD, forwarding. The state before is written to a file first, in case a run is killed.
# 5. Images are kept for the next time; containers, networks and volumes are removed.
set -euo pipefail

export DOCKER_HOST=${DOCKER_HOST:-unix:///var/run/docker.sock}
dir=$(realpath --canonicalize-missing "${FLOODMARK_ENGINE_DIR:-/var/lib/floodmark-docker}")
command_pid=
command_code=

say() { echo "docker/engine.sh: $*" >&2; }

answers() { timeout 10 docker info >/dev/null 2>&1; }

# Whether the engine that answers was started here. No other engine is ever emptied or stopped.
ours() { [ "$(timeout 10 docker info --format '{{.DockerRootDir}}' 2>/dev/null)" = "$dir/root" ]; }

alive() { # FILE with the process id of one of the engine's daemons
  local pid
  pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] || return 1
  # Not a zombie, and not another program: process ids are reused.
  grep -qsE '^(dockerd|containerd)$' "/proc/$pid/comm" && ! grep -qs '^State:.*Z' "/proc/$pid/status"
}

# -- starting an engine ----------------------------------------------------------------------------------

installed() { command -v dockerd && command -v docker && command -v iptables; } >/dev/null

# Prints the process id of a dockerd in this network namespace, if there is one.
dockerd_here() {
  local process
  for process in $(pgrep -x dockerd 2>/dev/null); do
    [ "$(readlink "/proc/$process/ns/net")" = "$(readlink /proc/self/ns/net)" ] && echo "$process" && return
  done
  return 1
}

# Prints why no engine can be started here; nothing if one can.
why_not() {
  local error other
  if [[ $DOCKER_HOST != unix://* ]]; then
    echo "nothing answers at DOCKER_HOST=$DOCKER_HOST, and only at a unix:// socket could one be started"
  elif [ "$(id -u)" != 0 ]; then
    error=$(timeout 10 docker info 2>&1 >/dev/null | tail -n 1) || true
    command -v docker >/dev/null || error="there is no docker command"
    echo "starting one takes root, and none answers at $DOCKER_HOST: ${error:-no reason was given}"
  elif other=$(dockerd_here); then
    echo "dockerd runs here already (process $other), and does not answer at $DOCKER_HOST"
  elif ! mountpoint -q /sys/fs/cgroup; then
    echo "no cgroup file system is mounted at /sys/fs/cgroup"
  elif ! installed && ! command -v apt-get >/dev/null; then
    echo "dockerd, docker or iptables is missing, and there is no apt-get to install it"
  fi
}

install() {
  installed && return
  say "installing docker.io and iptables"
  local apt=(apt-get -qq -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  export DEBIAN_FRONTEND=noninteractive
  "${apt[@]}" update >&2 && "${apt[@]}" install --no-install-recommends docker.io iptables >/dev/null
}

# Starts dockerd and waits until it answers. dockerd must not inherit lock 8, or it would keep it.
start() {
  local file
  for file in "$dir/pid" "$dir"/exec/containerd/*.pid; do
    alive "$file" || rm -f "$file" # of an engine that was killed: dockerd would wait for the dead
  done
  # shellcheck disable=SC2086  # several words
  setsid dockerd --host "$DOCKER_HOST" --data-root "$dir/root" --exec-root "$dir/exec" \
    --pidfile "$dir/pid" --ip 127.0.0.1 ${FLOODMARK_DOCKERD_ARGS:-} >"$dir/log" 2>&1 </dev/null 8>&- &
  local daemon=$! deadline=$((SECONDS + 60))
  until answers; do
    kill -0 "$daemon" 2>/dev/null || return 1
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.2
  done
}

# Where the kernel has no nf_tables: uses iptables-legacy, for dockerd and for this script.
use_legacy_iptables() {
  command -v iptables-legacy >/dev/null && grep -q iptables "$dir/log" || return 1
  local tool
  mkdir -p "$dir/legacy"
  for tool in iptables{,-save,-restore} ip6tables{,-save,-restore}; do
    ln -sf "$(command -v "${tool/tables/tables-legacy}")" "$dir/legacy/$tool"
  done
  PATH=$dir/legacy:$PATH
}

start_or_say_why() {
  install || { echo "docker.io could not be installed: apt-get install docker.io says why" && return; }
  answers && return # on machines that run services, the installation has started one: it is the machine's own
  note_network
  start && return
  stop_daemon
  use_legacy_iptables && start && return
  local last
  last=$(grep -E 'level=(error|fatal)|^failed' "$dir/log" | tail -n 1) || true
  stop_daemon
  restore_network
  echo "dockerd did not come up (its log: $dir/log): ${last:-it said nothing}"
}

# -- stopping it -----------------------------------------------------------------------------------------

stop_daemon() {
  local pid deadline=$((SECONDS + 30))
  alive "$dir/pid" || return 0
  pid=$(cat "$dir/pid")
  kill -TERM "$pid" 2>/dev/null || true
  while alive "$dir/pid"; do
    if [ $SECONDS -ge $deadline ]; then
      say "dockerd has not stopped in 30 s: killed"
      kill -KILL "$pid" 2>/dev/null || true
      break
    fi
    sleep 0.1
  done
}

empty_engine() {
  timeout 120 docker ps --all --quiet | xargs --no-run-if-empty timeout 120 docker rm --force --volumes
  timeout 60 docker network prune --force
  timeout 60 docker volume ls --quiet | xargs --no-run-if-empty timeout 60 docker volume rm --force
} >/dev/null 2>&1

# Writes down the network's state before dockerd starts, unless a killed run of this boot has done so.
note_network() {
  local boot
  boot="boot $(cat /proc/sys/kernel/random/boot_id)"
  grep -qsx "$boot" "$dir/before" && return
  {
    echo "$boot"
    ip link show docker0 && echo bridge
    iptables-save | grep '^:DOCKER' && echo chains
    iptables -S FORWARD | sed -n 's/^-P FORWARD /policy /p'
    echo "forward $(cat /proc/sys/net/ipv4/ip_forward)"
  } >"$dir/before" 2>/dev/null || true
}

noted() { sed -n "s/^$1 //p" "$dir/before"; }

restore_network() {
  [ -e "$dir/before" ] || return 0
  local family rules
  if ! grep -qx chains "$dir/before"; then
    for family in iptables ip6tables; do
      # Replace all tables at once, without Docker's lines.
      rules=$("$family-save" 2>/dev/null) || continue
      [[ $rules != *DOCKER* ]] ||
        grep -vE '^:DOCKER|^-A DOCKER| -j DOCKER| docker0( |$)| br-[0-9a-f]{12}( |$)' <<<"$rules" |
        "$family-restore" || true
    done
  fi
  [ -z "$(noted policy)" ] || iptables -P FORWARD "$(noted policy)" || true
  noted forward >/proc/sys/net/ipv4/ip_forward || true
  grep -qx bridge "$dir/before" || ip link delete docker0 2>/dev/null || true
  rm -f "$dir/before"
}

# The caller holds lock 8 exclusively.
stop_engine() {
  if ours; then empty_engine || true; fi
  stop_daemon
  restore_network
}

guard() {
  set +e
  trap '' INT TERM HUP
  exec 8>>"$dir/lock"
  flock --exclusive 8 # for as long as a run uses the engine
  stop_engine
}

let_go() {
  if flock --nonblock --exclusive 8; then
    alive "$dir/pid" && say "stopping the engine"
    stop_engine
  elif ! flock --nonblock --shared 8; then # the guard was quicker and is stopping the engine
    flock --timeout 120 --shared 8 || say "the guard has been stopping the engine for 120 s"
  fi # else other runs still use it
}

# -- the command -----------------------------------------------------------------------------------------

ended() {
  command_code=${command_code:-$?}
  trap '' INT TERM HUP
  trap - EXIT
  set +e
  let_go
  exit "$command_code"
}

interrupted() { # SIGNAL CODE
  trap '' INT TERM HUP
  command_code=$2
  if [ -n "$command_pid" ]; then
    # A terminal sends Ctrl-C to the command, too, and a second one would interrupt its cleanup.
    { [ "$1" = INT ] && [ -t 0 ]; } || kill "-$1" "$command_pid" 2>/dev/null || true
    local deadline=$((SECONDS + 60))
    while kill -0 "$command_pid" 2>/dev/null && [ $SECONDS -lt $deadline ]; do sleep 0.1; done
    kill -KILL "$command_pid" 2>/dev/null || true
  fi
  exit "$command_code"
}

with_started() { # COMMAND...
  [ -e /dev/fd/0 ] || exec </dev/null
  # In the background, because bash handles a signal only after a command in the foreground has ended; signals
  # and input are set as for a command in the foreground.
  env --default-signal=INT,QUIT "$@" <&0 8>&- &
  command_pid=$!
  wait "$command_pid" && command_code=0 || command_code=$?
  command_pid=
}

without() { # REASON COMMAND...
  say "no engine: $1"
  export FLOODMARK_NO_ENGINE=$1
  shift
  exec "$@"
}

run() { # COMMAND...
  local why
  # An engine that was started here may be about to stop; only the lock prevents that.
  if [ ! -e "$dir/lock" ] || [ "$(id -u)" != 0 ]; then
    if answers; then exec "$@"; fi
    why=$(why_not)
    [ -z "$why" ] || without "$why" "$@"
  fi
  mkdir -p "$dir"
  exec 8>>"$dir/lock" 9>>"$dir/starting"
  if ! { flock --timeout 300 9 && flock --timeout 300 --shared 8; }; then
    say "another run has been starting or stopping its engine for 300 s"
    exit 4
  fi
  trap ended EXIT
  trap 'interrupted INT 130' INT
  trap 'interrupted TERM 143' TERM
  trap 'interrupted HUP 129' HUP
  setsid "$0" guard >>"$dir/guard.log" 2>&1 </dev/null 8>&- 9>&- &
  if ! answers; then
    why=$(why_not)
    if [ -z "$why" ]; then
      say "starting an engine (its log: $dir/log)"
      start_or_say_why >"$dir/why" 9>&-
      why=$(cat "$dir/why")
    fi
    [ -z "$why" ] || without "$why" "$@" 8>&- 9>&-
  fi
  exec 9>&-
  if ! ours; then exec "$@" 8>&-; fi
  with_started "$@"
}

if [ "${1:-}" = run ] && [ "${2:-}" = -- ] && [ $# -gt 2 ]; then
  shift 2
  run "$@"
elif [ "${1:-}" = guard ] && [ -e "$dir/lock" ]; then # called by `run` alone
  guard
else
  echo "usage: docker/engine.sh run -- COMMAND..." >&2
  exit 2
fi
