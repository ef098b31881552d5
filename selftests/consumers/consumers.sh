# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Programs that people run over RDMA, each as it is installed, and disturbed while it runs. Source it
# after net.sh.
#
# A consumer is a function that says what is run, in these variables:
#
#	server	in namespace b; it listens at $port, and goes on with stays=1
#	client	in a: a run that ends
#	load	in a: one that takes minutes. The server's is the same, or load_server
#
# A consumer without a server has a client alone, which runs in no namespace.

# shellcheck source=selftests/cm/cm.sh
. "${BASH_SOURCE[0]%/*}/../cm/cm.sh"

# Who is not told that the peer is gone notices it in that time, whatever the program.
NOTICES_S=${NOTICES_S:-90}
# What is sent in a moment of traffic.
SOME_PACKETS=300

consumer()
{
	server=() client=() load=() load_server=() stays='' port=$PORT
	"$@"
	[ ${#load_server[@]} -gt 0 ] || load_server=("${server[@]}")
}

# Those that came: what is only sent again and again is no traffic.
packets()
{
	local came
	came=$(cat "/sys/class/infiniband/$DEV_A/ports/1/hw_counters/rcvd_pkts" 2>/dev/null) || came=0
	echo "$came"
}

run_once()
{
	if [ ${#server[@]} -eq 0 ]; then
		"${client[@]}"
	elif [ -n "$stays" ]; then
		PAIR_PORT=$port while_serving "${server[@]}" -- in_a "${client[@]}"
	else
		PAIR_PORT=$port pair "${server[@]}" -- "${client[@]}"
	fi
}

# works CONSUMER...: it does, and by RDMA.
works()
{
	local server client load load_server stays port before
	heal
	consumer "$@"
	before=$(packets)
	run_once
	[ $(($(packets) - before)) -ge 20 ] || ktap_fail "it did not use $DEV_A"
}

# ---- disturbed -------------------------------------------------------------

is_over()
{
	[ ! -e "/proc/$1" ] || grep -q '^State:.*[ZX]' "/proc/$1/status"
}

# It receives, from one look to the next.
packets_flow()
{
	local before=$seen
	seen=$(packets)
	[ $((seen - before)) -ge $SOME_PACKETS ] && [ "$before" -gt 0 ]
}

# Of processes, also of those that are gone, of which no name is known. The kernel has some objects of its own
# for each device, whose users have names in brackets.
no_objects()
{
	local kind objects
	for kind in qp cq mr pd; do
		objects=$(rdma resource show "$kind") || return 1
		[ -z "$objects" ] || ! grep -v 'comm \[' <<<"$objects" || return 1
	done
}

# Who is disturbed is over in time.
client_notices()
{
	wait_for "$NOTICES_S" is_over "$client_pid" || ktap_fail "it did not notice"
}

# A server may have a process for each client.
peer_dies()
{
	local family
	mapfile -t family < <(family_of "$server_pid")
	kill -KILL "${family[@]}"
	client_notices
}

goes_on_or_ends()
{
	is_over "$client_pid" || packets_flow
}

# bounce SECONDS: the link is down for so long.
bounce()
{
	ip -n a link set eth0 down
	sleep "$1"
	ip -n a link set eth0 up
	ip -n a address replace "$ADDR6_A/64" dev eth0 nodad
}

link_bounces()
{
	bounce 0.5
	seen=0
	wait_for "$NOTICES_S" goes_on_or_ends || ktap_fail "it neither goes on nor ends"
}

link_is_deleted()
{
	within 20 rdma link delete "$DEV_A"
	client_notices
}

# Whatever of the wire is not there.
heal()
{
	[ -e "/sys/class/infiniband/$DEV_A" ] || link_add a "$DEV_A" "$DRIVER_A"
	[ -e "/sys/class/infiniband/$DEV_B" ] || link_add b "$DEV_B" "$DRIVER_B"
	wait_gid "$DEV_A" "$ADDR4_A"
	wait_gid "$DEV_A" "$ADDR6_A"
	wait_gid "$DEV_B" "$ADDR4_B"
	wait_gid "$DEV_B" "$ADDR6_B"
}

# A process and all that it has started.
family_of()
{
	local child
	echo "$1"
	for child in $(pgrep -P "$1"); do
		family_of "$child"
	done
}

end_process()
{
	local pid family=()
	for pid; do
		mapfile -t -O ${#family[@]} family < <(family_of "$pid")
		kill "$pid" 2>/dev/null || true
	done
	for pid; do
		wait_for 10 is_over "$pid" || kill -KILL "$pid"
		wait "$pid" || echo "it ended with status $?"
	done
	for pid in "${family[@]}"; do
		kill -KILL "$pid" 2>/dev/null || true
	done
}

# disturbed DISTURBANCE CONSUMER...: it goes on or ends in time, leaves nothing, and works again.
disturbed()
{
	local disturbance=$1 server client load load_server stays port server_pid client_pid seen=0
	shift
	heal
	consumer "$@"
	ip netns exec b "${load_server[@]}" >"$ktap_tmp/server" 2>&1 &
	server_pid=$!
	wait_for 20 listens b "$port"
	ip netns exec a "${load[@]}" >"$ktap_tmp/client" 2>&1 &
	client_pid=$!
	wait_for 30 packets_flow || {
		cat "$ktap_tmp/client" "$ktap_tmp/server"
		return 1
	}
	"$disturbance"
	end_process "$client_pid" "$server_pid"
	tail -n 5 "$ktap_tmp/client" "$ktap_tmp/server"
	heal
	wait_for 20 no_objects
	works "$@"
}

# disturbances HOW NAME CONSUMER...: one of each kind; HOW, ktap_test or ktap_more, says whether a short run
# has the loss of the device.
disturbances()
{
	local how=$1 name=$2
	shift 2
	ktap_more "$name, the peer's process is killed" disturbed peer_dies "$@"
	ktap_more "$name, the link goes down and up" disturbed link_bounces "$@"
	"$how" "$name, the link is deleted" disturbed link_is_deleted "$@"
}

# standing NAME CONSUMER...: all tests of one.
standing()
{
	ktap_test "$1" works "${@:2}"
	disturbances ktap_test "$@"
}

# standing_too: likewise, where another one stands for it in a short run.
standing_too()
{
	ktap_test "$1" works "${@:2}"
	disturbances ktap_more "$@"
}
