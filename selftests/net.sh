# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A wire for tests: two network namespaces joined by a veth pair, with an RDMA
# device on each end.  Source it after ktap.sh.
#
#	namespace   a                        b
#	netdev      eth0                     eth0        MTU 9000 (WIRE_MTU)
#	IPv4        192.0.2.1 ($ADDR4_A)     192.0.2.2 ($ADDR4_B)
#	IPv6        2001:db8::1 ($ADDR6_A)   2001:db8::2 ($ADDR6_B)
#	device      fe0 ($DEV_A)             fe1 ($DEV_B)
#	link type   $DRIVER_A                $DRIVER_B   both $DRIVER unless set
#
# Devices of all namespaces have one name space, unlike netdevs; hence fe0 and fe1.

# shellcheck disable=SC2034 # for files that source this
ADDR4_A=192.0.2.1 ADDR4_B=192.0.2.2
# shellcheck disable=SC2034
ADDR6_A=2001:db8::1 ADDR6_B=2001:db8::2
DEV_A=fe0 DEV_B=fe1
DRIVER_A=${DRIVER_A:-$DRIVER}
DRIVER_B=${DRIVER_B:-$DRIVER}
WIRE_MTU=${WIRE_MTU:-9000}

in_a()
{
	ip netns exec a "$@"
}

in_b()
{
	ip netns exec b "$@"
}

# link_local NAMESPACE: prints the address of its eth0 that the default GID has.
link_local()
{
	ip -n "$1" -oneline address show dev eth0 scope link | sed -n 's|.* inet6 \([^/]*\)/.*|\1|p'
}

# module_of DRIVER: the module that has this link type.
module_of()
{
	case $1 in
	rxe) echo rdma_rxe ;;
	*) echo "$1" ;;
	esac
}

# Tests against rdma_rxe are skipped if the kernel was built without it, like Debian's cloud kernels. The
# driver under test must be there.
has_rxe()
{
	modinfo rdma_rxe >/dev/null 2>&1 || ktap_skip "this kernel has no rdma_rxe"
}

# True if completion queues may be polled by the kernel's irq_poll (IB_POLL_SOFTIRQ). With PREEMPT_RT
# softirqs preempt each other on a CPU, which irq_poll_softirq() of 7.3.4 does not expect: two poll one queue, and
# the second one to complete corrupts the list and panics, with either driver.
# DEFECTS=1 tries it anyway.
irq_poll_is_safe()
{
	[[ $(uname -v) != *PREEMPT_RT* ]] || [ -n "${DEFECTS-}" ]
}

# For users in the kernel that have it so: nvme_rdma, ib_iser, ib_srp.
needs_irq_poll()
{
	irq_poll_is_safe || ktap_skip "the kernel's irq_poll is not safe with PREEMPT_RT"
}

load_drivers()
{
	local driver
	for driver in "$DRIVER_A" "$DRIVER_B"; do
		[ "$driver" != rxe ] || [ "$DRIVER" = rxe ] || has_rxe
		modprobe "$(module_of "$driver")"
	done
	modprobe -a rdma_ucm ib_uverbs
}

# namespace_up NAME ADDRESS4 ADDRESS6
namespace_up()
{
	ip -n "$1" link set lo up
	ip -n "$1" link set eth0 up
	ip -n "$1" address add "$2/24" dev eth0
	ip -n "$1" address add "$3/64" dev eth0 nodad
}

# first_is NAME: the first namespace is one end of the wire under that name, until net_down: for
# users in the kernel that know no other one.
first_is()
{
	first_named=$1
	ip netns attach "$1" $$
}

# wire_between NAMESPACE NAMESPACE: these two, the wire between them and its addresses; no RDMA device.
wire_between()
{
	local name
	for name; do
		[ -e "/run/netns/$name" ] || ip netns add "$name"
		# Link-local addresses stand at once, too.
		ip netns exec "$name" sysctl -qw net.ipv6.conf.default.accept_dad=0
	done
	ip link add eth0 netns "$1" mtu "$WIRE_MTU" type veth peer name eth0 netns "$2" mtu "$WIRE_MTU"
	namespace_up "$1" "$ADDR4_A" "$ADDR6_A"
	namespace_up "$2" "$ADDR4_B" "$ADDR6_B"
}

wire_up()
{
	wire_between a b
}

# Until backlog_as_before no packet is dropped as the queue of the CPU that takes it in is full.
deep_backlog()
{
	shallow_backlog=$(sysctl net.core.netdev_max_backlog | tr -d ' ')
	sysctl -qw net.core.netdev_max_backlog=100000
}

backlog_as_before()
{
	sysctl -qw "$shallow_backlog"
}

# link_add NAMESPACE DEVICE DRIVER: on its eth0.
link_add()
{
	ip netns exec "$1" rdma link add "$2" type "$3" netdev eth0
}

# link_delete DEVICE: true as well when it is not there.
link_delete()
{
	no_device "$1" || rdma link delete "$1"
}

# no_device DEVICE
no_device()
{
	[ ! -e "/sys/class/infiniband/$1" ]
}

# The GID of an IP address as sysfs writes it.
gid_of()
{
	local head=() tail=() byte
	if [[ $1 == *.* ]]; then
		IFS=. read -ra byte <<<"$1"
		printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' \
			"${byte[0]}" "${byte[1]}" "${byte[2]}" "${byte[3]}"
		return
	fi
	IFS=: read -ra head <<<"${1%%::*}"
	[[ $1 != *::* ]] || IFS=: read -ra tail <<<"${1#*::}"
	while [ $((${#head[@]} + ${#tail[@]})) -lt 8 ]; do
		head+=(0)
	done
	head+=("${tail[@]}")
	printf ':%04x' "${head[@]/#/0x}" | cut -c 2-
}

# gid_index DEVICE ADDRESS [NETDEV]: the place of the address in the GID table as a
# RoCEv2 one, of that netdev if several have it; fails when it does not stand there.
gid_index()
{
	local port=/sys/class/infiniband/$1/ports/1 gid file index
	gid=$(gid_of "$2")
	while read -r file; do
		index=${file##*/}
		[ "$(cat "$port/gid_attrs/types/$index" 2>/dev/null)" = "RoCE v2" ] || continue
		[ -z "${3-}" ] || [ "$(cat "$port/gid_attrs/ndevs/$index" 2>/dev/null)" = "$3" ] || continue
		echo "$index"
		# By itself it would be the status before a trap, where this may be called.
		return 0
	done < <(grep -lx "$gid" "$port"/gids/* 2>/dev/null)
	return 1
}

wait_gid()
{
	wait_for 10 gid_index "$1" "$2" >/dev/null || ktap_fail "$2 is not in the GID table of $1"
}

# counter_of DEVICE NAME
counter_of()
{
	cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2"
}

# counted NAME: of both ends.
counted()
{
	echo $(($(counter_of "$DEV_A" "$1") + $(counter_of "$DEV_B" "$1")))
}

# netem_both NETEM: disturbs the packets of both ends, with room for all of them.
netem_both()
{
	local name
	for name in a b; do
		# shellcheck disable=SC2086 # words
		tc -n "$name" qdisc replace dev eth0 root netem limit 10000 $1
	done
}

# Lets the packets of both ends pass again.
netem_none()
{
	local name
	for name in a b; do
		tc -n "$name" qdisc del dev eth0 root
	done
}

# softnet_stat CPU COLUMN: prints the kernel's count of packets received on the CPU; COLUMN 1 is their number,
# 12 the length of its backlog.
softnet_stat()
{
	echo $((0x$(awk -v cpu="$(printf %08x "$1")" -v column="$2" '$13 == cpu { print $column }' \
		/proc/net/softnet_stat)))
}

# backlogs_move: checks that each CPU handles the packets in its backlog.
#
# A CPU never does again if RPS put packets there when it went offline. RPS found it offline and did not wake
# it, and dev_cpu_dead() leaves the backlog marked as scheduled. So later packets do not wake it either, even
# after its return.
backlogs_move()
{
	local cpus cpu left
	mapfile -t cpus < <(awk '{ print $13 }' /proc/net/softnet_stat)
	for cpu in "${cpus[@]}"; do
		cpu=$((0x$cpu))
		! in_a taskset -c "$cpu" ping -q -c 1 -W $((5 * TIME_SCALE)) 127.0.0.1 >/dev/null || continue
		left=$(softnet_stat "$cpu" 12)
		[ "$left" -gt 0 ] || ktap_fail "CPU $cpu gets no answer from itself"
		ktap_fail "CPU $cpu takes in nothing, not even what it sends to itself: $left packets are in its" \
			"backlog. That is a defect of the kernel, not of the driver: see Documentation/testing.rst." \
			"Whatever is tried on this machine from now on fails."
	done
}

# An RDMA device on each end, once the wire is there.
links_up()
{
	link_add a "$DEV_A" "$DRIVER_A"
	link_add b "$DEV_B" "$DRIVER_B"
	wait_gid "$DEV_A" "$ADDR4_A"
	wait_gid "$DEV_A" "$ADDR6_A"
	wait_gid "$DEV_B" "$ADDR4_B"
	wait_gid "$DEV_B" "$ADDR6_B"
}

net_up()
{
	load_drivers
	wire_up
	links_up
}

# Takes down the parts of net_up that are there.
net_down()
{
	local name
	link_delete "$DEV_A"
	link_delete "$DEV_B"
	# The first namespace outlives its name.
	[ -z "${first_named-}" ] || ip link delete eth0 || true
	for name in a b; do
		[ ! -e "/run/netns/$name" ] || ip netns delete "$name"
	done
}

# listens NAMESPACE PORT
listens()
{
	[ -n "$(ip netns exec "$1" ss -Hltn "sport = :$2")" ]
}

# pair SERVER... -- CLIENT...: runs a server in b and then its client in a, and
# succeeds if both do.  ibv_rc_pingpong and perftest agree on the port;
# PAIR_PORT names another one, PAIR_SERVER and PAIR_CLIENT other namespaces, and PAIR_START_S the time in which the
# server must listen.
# Shows the output of both, the client's first.
pair()
{
	local here=${PAIR_CLIENT:-a} there=${PAIR_SERVER:-b}
	local server=() pid said status=0
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	said=$(mktemp)
	# The process to kill below must be the server itself.
	ip netns exec "$there" "${server[@]}" >"$said" 2>&1 &
	pid=$!
	wait_for "${PAIR_START_S:-20}" listens "$there" "${PAIR_PORT:-18515}" || status=1
	[ "$status" -ne 0 ] || ip netns exec "$here" "$@" || status=$?
	if [ "$status" -ne 0 ]; then
		echo "the client failed (status $status): $*"
		kill "$pid" 2>/dev/null || true
	fi
	if ! wait "$pid"; then
		[ "$status" -ne 0 ] || echo "the server failed: ${server[*]}"
		status=1
	fi
	sed 's/^/server: /' "$said"
	rm -f "$said"
	return "$status"
}

# way_in NAMESPACE CPUS: one of these CPUs (a mask; 0: whichever sent it) takes in all packets of a flow
# to that end. Not for a CPU that goes offline: see backlogs_move.
way_in()
{
	# shellcheck disable=SC2016 # for the shell within
	ip netns exec "$1" sh -c '
		for queue in /sys/class/net/eth0/queues/rx-*; do
			echo "$0" >"$queue/rps_cpus"
		done' "$2"
}

# one_way_in CPUS: way_in on both ends.
one_way_in()
{
	way_in a "$1"
	way_in b "$1"
}

wire_as_before()
{
	one_way_in 0
	backlog_as_before
}

# For the rest of the test the wire itself neither loses nor reorders packets, so
# packets without retransmission (UC, UD) arrive.  A busy machine would do both.  A veth
# device hands packets to the queue of the sending CPU.  So packets of a process that
# has moved to another CPU overtake its earlier ones, and that queue is full after
# 1000.
wire_lossless()
{
	deep_backlog
	trap wire_as_before EXIT
	one_way_in 1
}
