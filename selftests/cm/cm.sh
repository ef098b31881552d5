# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Programs that meet by rdma_cm.  Source it after net.sh.

PORT=18515

# For pair: rdma_cm's ports are not those of sockets, but some programs use either.  A server on all
# devices listens on one after the other.
listens()
{
	local device=$DEV_B
	[ "$1" != a ] || device=$DEV_A
	ip netns exec "$1" rdma resource show cm_id |
		grep -q "^link $device/.* state LISTEN .*src-addr [^ ]*:$2 " ||
		[ -n "$(ip netns exec "$1" ss -Hltnu "sport = :$2")" ]
}

# With a check of the data.
# ping_pong ADDRESS [OPTION...]
ping_pong()
{
	local address=$1
	shift
	pair rping -s -a "$address" -p "$PORT" -V -C 20 "$@" -- \
		rping -c -a "$address" -p "$PORT" -V -C 20 "$@"
}

# datagrams ADDRESS [OPTION...]: it always listens at the same port.
datagrams()
{
	local address=$1
	shift
	PAIR_PORT=7174 pair udaddy -b "$address" "$@" -- udaddy -s "$address" "$@"
}

# while_serving SERVER... -- CLIENT...: as pair, with a server that does not end by
# itself, and has not.
while_serving()
{
	local server=() pid
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	# shellcheck disable=SC2154 # ktap.sh has it
	ip netns exec b "${server[@]}" >"$ktap_tmp/server" 2>&1 &
	pid=$!
	wait_for 20 listens b "${PAIR_PORT:-$PORT}"
	"$@" || {
		sed 's/^/server: /' "$ktap_tmp/server"
		return 1
	}
	sed 's/^/server: /' "$ktap_tmp/server"
	kill "$pid" || ktap_fail "the server has ended"
	wait "$pid" || true
}

# within SECONDS COMMAND...: the command must end in that time, with any status.
within()
{
	local status=0
	timeout "$@" || status=$?
	[ "$status" -ne 124 ] || ktap_fail "not over after $1 s: ${*:2}"
	return "$status"
}

# in_group NAMESPACE GROUP: its netdev is a member.
in_group()
{
	ip -n "$1" maddr show dev eth0 | grep -qw "inet6* *$2"
}
