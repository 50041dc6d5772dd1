# shellcheck shell=bash disable=SC2034
# Sourced by every script: versions, addresses, locks, the watch over the owner.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${ESFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/esfleet}
K8S_VERSION=$(sed -n 's/^require k8s.io\/kubernetes //p' "$HERE/tools/go.mod")
ZK_VERSION=$(sed -n 's/.*<zookeeper.version>\([^<]*\)<.*/\1/p' "$HERE/zookeeper/pom.xml")
BIN=$CACHE/bin/$K8S_VERSION-$(cat "$HERE"/tools/go.* "$HERE"/tools/coredns/* | sha256sum | cut -c1-8)
ZK_LIB=$CACHE/zookeeper/$ZK_VERSION
BRIDGE=esfleet0 HOST_IP=10.250.0.1
LOCKS=/run/lock # machine-wide, as the bridge, the addresses and the ports are
MAX=50          # cluster N: API and node 10.250.0.(10+N), pods 10.244.N.0/24
# Written before the request is answered, so that no answered write is missing after a kill; one file, never rotated or removed.
AUDIT=(--audit-policy-file="$HERE/audit-policy.yaml" --audit-log-format=json --audit-log-mode=blocking
  --audit-log-maxsize=0 --audit-log-maxage=0 --audit-log-maxbackup=0)
case $(stat -fc %T /sys/fs/cgroup 2> /dev/null) in cgroup2fs) CGROUP=v2 ;; *) CGROUP=v1 ;; esac
CGROUPS="cpu cpuacct cpuset memory devices freezer blkio pids systemd" # the hierarchies of v1

node_ip() { echo "10.250.0.$((10 + $1))"; }
die() { echo "${0##*/}: $*" >&2; exit 1; }
state_dir() { mkdir -p "${1:-$CACHE/state}" && realpath "${1:-$CACHE/state}"; }

# Locks are held on descriptors: the kernel drops them with the last holder, however that died.
# Children that outlive their starter must therefore be started with the descriptor closed.
lock() { # lock VAR FILE [flock options]: false if it is taken
  local -n fd=$1; local file=$2; shift 2
  exec {fd}> "$file"
  flock "$@" "$fd" || { exec {fd}>&-; return 1; }
}
# N is ours while its lock is; whatever a dead holder left behind is swept before it is used again.
claim() { # claim PREFIX MAX: sets N and N_FD
  for N in $(seq "$2"); do lock N_FD "$LOCKS/esfleet-$1-$N" -n && return; done
  die "all $2 numbers for $1 are in use"
}
# Everybody who needs the bridge holds its lock shared; who gets it exclusively is the last one.
bridge_up() {
  lock BRIDGE_FD "$LOCKS/esfleet-bridge" -s
  ip link add $BRIDGE type bridge 2>/dev/null || true
  ip addr add $HOST_IP/24 dev $BRIDGE 2>/dev/null || true
  ip link set $BRIDGE up
}
bridge_release() {
  [ -z "${BRIDGE_FD:-}" ] || exec {BRIDGE_FD}>&-
  local FD; lock FD "$LOCKS/esfleet-bridge" -n || return 0
  ip link del $BRIDGE 2>/dev/null || true
  exec {FD}>&-
}
# Sleeps without forking, until the owner or one of our own is gone. OWNER 0 or 1: nobody to wait for.
# A poll and not a death signal: that one fires when the *thread* ends which forked us (thread pools!).
watch_owner() { # watch_owner OWNER PID...
  local owner=$1 never; shift
  exec {never}<> <(:)
  while :; do
    [ "$owner" -le 1 ] || kill -0 "$owner" 2>/dev/null || return 0
    for p; do kill -0 "$p" 2>/dev/null || return 0; done
    read -rt 0.5 -u "$never" _ || true
  done
}
# Version 1: below the caller's own cgroups, so that what limits the caller limits the cluster.
enter_cgroups_v1() { # enter_cgroups_v1 N: the calling process and all that it starts
  local c p g dirs=()
  for c in $CGROUPS; do
    p=/sys/fs/cgroup/$c$(cgroup_of_caller "$c"); g=${p%/}/esfleet-$1; mkdir -p "$g"; dirs+=("$g")
    if [ "$c" = cpuset ]; then # an empty cpuset takes no process
      for f in cpus mems; do cat "$p/cpuset.$f" > "$g/cpuset.$f"; done; echo 1 > "$g/cgroup.clone_children"
    fi
  done
  for g in "${dirs[@]}"; do echo $BASHPID > "$g/cgroup.procs"; done
}
# Version 2 (by the kernel's cgroup-v2 document): at the top of what is mounted, as the caller's own group holds
# processes and can therefore not delegate. In a container the top holds processes as well: they move to a leaf first.
delegate() { # delegate GROUP: the controllers that a kubelet uses, to the groups below
  local c want=""
  for c in cpu cpuset io memory pids hugetlb; do
    ! grep -qw "$c" "$1/cgroup.controllers" || want+=" +$c"
  done
  echo "${want# }" > "$1/cgroup.subtree_control"
}
prepare_cgroup_v2() { # prepare_cgroup_v2 N: creates the cluster's group with its leaf
  local top=/sys/fs/cgroup p
  if ! delegate $top 2> /dev/null; then
    mkdir -p $top/init
    while read -r p; do echo "$p" > $top/init/cgroup.procs 2> /dev/null || true; done < $top/cgroup.procs
    delegate $top
  fi
  mkdir -p "$top/esfleet-$1/system"
}
settle_cgroup_v2() { # settle_cgroup_v2 N: once the namespaces exist, everything moves to the leaf and the controllers go down
  local g=/sys/fs/cgroup/esfleet-$1 p
  while [ -n "$(< "$g/cgroup.procs")" ]; do
    while read -r p; do echo "$p" > "$g/system/cgroup.procs" 2> /dev/null || true; done < "$g/cgroup.procs"
  done
  delegate "$g"
}
cgroup_of_caller() { local c=$1; [ "$c" != systemd ] || c=name=systemd; awk -F: -v c="$c" '$2==c{print $3}' /proc/self/cgroup; }
sweep() { # sweep N: all that the kernel does not remove together with the namespaces
  local dirs tries=0
  ip link del "esf$1" 2>/dev/null || true
  ip route del "10.244.$1.0/24" 2>/dev/null || true
  while dirs=$(find /sys/fs/cgroup -mindepth 1 -type d \( -name "esfleet-$1" -o -path "*/esfleet-$1/*" \) 2>/dev/null | sort -r) && [ -n "$dirs" ]; do
    [ $((tries++)) -lt 100 ] || { echo "left: $dirs" >&2; return 1; }
    xargs -r rmdir 2>/dev/null <<< "$dirs" || sleep 0.1 # busy until the last process is reaped
  done
}
# cluster-up and zookeeper-up fork a supervisor that inherits the lock on its directory, holds it as long as it lives,
# and cleans up before it lets go. The lock, not a pid, tells whether something runs.
start_supervisor() { # start_supervisor DIR READY_FILE ARG...: this script with --supervise, unless it runs; waits for the file
  local dir=$1 ready=$1/$2 s="" FD; shift 2; mkdir -p "$dir"
  if lock FD "$dir/lock" -n; then
    find "$dir" -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf --one-file-system {} +; mkdir -p "$dir/logs"
    setsid bash "$HERE/${0##*/}" --supervise "$FD" "${ESFLEET_OWNER:-$PPID}" "$dir" "$@" > "$dir/logs/supervisor.log" 2>&1 < /dev/null &
    s=$!; exec {FD}>&-
    trap 'kill -TERM '$s'; exit 130' INT TERM
  fi
  for _ in $(seq 1200); do
    [ ! -e "$ready" ] || return 0
    if [ -n "$s" ]; then kill -0 "$s" 2> /dev/null || break
    elif lock FD "$dir/lock" -n; then exec {FD}>&-; break; fi # the one that was faster failed
    sleep 0.1
  done
  [ -z "$s" ] || kill -TERM "$s" 2> /dev/null || true
  tail -n 5 "$dir"/logs/*.log "$dir"/*/log 2> /dev/null >&2 || true; die "did not start, logs in $dir"
}
stop_servers() { # stop_servers DIR: what runs by DIR/*/run; known by its directory, as a pid file may name another process by now
  local f p
  for f in "$1"/*/pid; do
    p=$(cat "$f" 2> /dev/null) || continue
    [ "$(readlink "/proc/$p/cwd")" != "${f%/pid}" ] || kill -KILL "$p" 2> /dev/null || true
  done
}
stop_supervisor() { # stop_supervisor DIR
  local FD
  [ -e "$1/lock" ] || return 0
  if ! lock FD "$1/lock" -n; then
    kill -TERM "$(< "$1/supervisor")" 2> /dev/null || true
    lock FD "$1/lock" -w 30 || die "supervisor $(< "$1/supervisor") did not end"
  fi
  exec {FD}>&-
}
