# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Common RDMA programs, each as installed, disturbed while it runs. Source it
# after net.sh.
#
# A consumer is a function that sets these variables:
#
#	server	the command in namespace b; it listens at $port, and continues with stays=1
#	client	the command in a, which ends by itself
#	load	a command in a that takes minutes, with the same server, or load_server
#	words	the message of a client that gets an error and does not end
#
# A consumer without a server has only a client, which runs in no namespace.

# shellcheck source=selftests/cm/cm.sh
. "${BASH_SOURCE[0]%/*}/../cm/cm.sh"

# The time in which a program without a notice of the peer's end must find out.
NOTICES_S=${NOTICES_S:-90}
# The packets of a moment of traffic.
SOME_PACKETS=300

consumer()
{
	server=() client=() load=() load_server=() stays='' words='' port=$PORT
	"$@"
	[ ${#load_server[@]} -gt 0 ] || load_server=("${server[@]}")
}

# with_setting NAME=VALUE CONSUMER...: in the environment of both ends.
with_setting()
{
	local setting=$1
	"${@:2}"
	server=(env "$setting" "${server[@]}")
	client=(env "$setting" "${client[@]}")
	load=(env "$setting" "${load[@]}")
}

# Prints the number of received packets: retransmissions without a response are no traffic.
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

# on_demand CONSUMER...: it works, and its memory is brought in for its packets, which ferroce counts.
on_demand()
{
	local before
	if [ "$DRIVER" != ferroce ]; then
		works "$@"
		return
	fi
	heal
	before=$(counted page_faults)
	works "$@"
	[ "$(counted page_faults)" -gt "$before" ] || ktap_fail "no memory was brought in on demand"
}

# ---- disturbed -------------------------------------------------------------

is_over()
{
	[ ! -e "/proc/$1" ] || grep -q '^State:.*[ZX]' "/proc/$1/status"
}

# True if it has received some packets since the first look, whose count is in seen. There is no time limit: one
# acknowledgement may be for a hundred packets, and the machine may be busy.
packets_flow()
{
	local now
	now=$(packets)
	[ "$seen" -gt 0 ] || seen=$now
	[ $((now - seen)) -ge $SOME_PACKETS ]
}

# True if no process, dead ones without a name included, has objects. The kernel has some objects of its own
# for each device; their users have names in brackets.
no_objects()
{
	local kind objects
	for kind in qp cq mr pd; do
		objects=$(rdma resource show "$kind") || return 1
		[ -z "$objects" ] || ! grep -v 'comm \[' <<<"$objects" || return 1
	done
}

has_noticed()
{
	is_over "$client_pid" || { [ -n "$words" ] && grep -q "$words" "$ktap_tmp/client"; }
}

# A disturbed client must end in time, or report the error.
client_notices()
{
	wait_for "$NOTICES_S" has_noticed || ktap_fail "it did not notice"
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

# Restores the missing parts of the wire.
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

# disturbed DISTURBANCE CONSUMER...: the consumer must continue or end in time, leave nothing, and work again.
disturbed()
{
	local disturbance=$1 server client load load_server stays port server_pid client_pid seen=0
	shift
	heal
	consumer "$@"
	ip netns exec b "${load_server[@]}" >"$ktap_tmp/server" 2>&1 &
	server_pid=$!
	wait_for "${PAIR_START_S:-20}" listens b "$port"
	ip netns exec a "${load[@]}" >"$ktap_tmp/client" 2>&1 &
	client_pid=$!
	wait_for $((10 + ${PAIR_START_S:-20})) packets_flow || {
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

# standing_too: standing for a consumer that another one represents in a short run.
standing_too()
{
	ktap_test "$1" works "${@:2}"
	disturbances ktap_more "$@"
}

# ---- disks -----------------------------------------------------------------

# fio_disturbed DISK DISTURBANCE...: while it writes a disk, slowly, and reads that back; sets writer. Source
# lib/fio.sh.
fio_disturbed()
{
	fio_verifies --filename="$1" --rw=write --bs=64k --size=40m --iodepth=8 --rate=8m &
	writer=$!
	seen=0
	wait_for 30 packets_flow
	"${@:2}"
}

# fio_goes_on DISK DISTURBANCE...: data written during the disturbance must be readable later.
fio_goes_on()
{
	local writer seen
	fio_disturbed "$@"
	not is_over "$writer"
	wait "$writer"
}

# $writer has to end in time, well or not.
writer_ends()
{
	wait_for "$NOTICES_S" is_over "$writer" || ktap_fail "it neither goes on nor ends"
}

# The same, and its result is not of interest.
writer_may_fail()
{
	writer_ends
	wait "$writer" || echo "what was written failed"
}

# fio_ends DISK DISTURBANCE...: in time, with an error.
fio_ends()
{
	local writer seen
	fio_disturbed "$@"
	writer_ends
	not wait "$writer"
}
