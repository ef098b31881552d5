# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Two machines on a wire (qemu/boot-pair), with an RDMA device on each.  The names are those of
# net.sh, without namespaces.  Tests run on a.  serve.py runs programs on b: it listens there and
# runs the command in a line of text, with this file sourced.
# Source it after ktap.sh and net.sh.

CONTROL_PORT=7000

# Sets dev, address4 and address6 to those of this machine.
# shellcheck disable=SC2154 # qemu/boot-pair sets MACHINE
this_machine()
{
	local end=${MACHINE^^} name
	name=DEV_$end dev=${!name}
	name=ADDR4_$end address4=${!name}
	name=ADDR6_$end address6=${!name}
}

# The wire's end at this machine; no RDMA device.
wire_end_up()
{
	local dev address4 address6
	this_machine
	modprobe virtio_net
	wait_for 20 test -e /sys/class/net/eth0
	sysctl -qw net.ipv6.conf.eth0.accept_dad=0
	ip link set eth0 mtu "$WIRE_MTU" up
	ip address add "$address4/24" dev eth0
	ip address add "$address6/64" dev eth0 nodad
}

# device_up DRIVER: the RDMA device of this machine is one of that driver, and no other.
device_up()
{
	local dev address4 address6
	this_machine
	link_delete "$dev"
	modprobe -a "$(module_of "$1")" rdma_ucm ib_uverbs
	rdma link add "$dev" type "$1" netdev eth0
	wait_gid "$dev" "$address4"
	wait_gid "$dev" "$address6"
}

device_down()
{
	local dev address4 address6
	this_machine
	link_delete "$dev"
}

# feature NAME STATE: of the wire's end at this machine.  Fails if it does not become so.
feature()
{
	ethtool -K eth0 "$1" "$2" >/dev/null 2>&1
	ethtool -k eth0 | grep -q "^$1: $2"
}

# on_b COMMAND...: runs it on b, shows its output, and has its status.  If this ends
# early, so does the command.  The kernel of b may say what that of a may (KTAP_EXPECTED).
on_b()
{
	local fd line status=1
	{ exec {fd}<>"/dev/tcp/$ADDR4_B/$CONTROL_PORT"; } 2>/dev/null || return 1
	printf '%s\n' "KTAP_EXPECTED=${KTAP_EXPECTED@Q}; ${*@Q}" >&"$fd"
	while IFS= read -r line <&"$fd"; do
		case $line in
		"status "*) status=${line#status } ;;
		*) echo "$line" ;;
		esac
	done
	exec {fd}>&-
	return "$status"
}

# waits_for_peer PORT: a program of this machine listens there, by a socket or by rdma_cm.
waits_for_peer()
{
	[ -n "$(ss -Hltn "sport = :$1")" ] ||
		rdma resource show cm_id | grep -q "state LISTEN .*src-addr [^ ]*:$1 "
}

# between SERVER... -- CLIENT...: runs a server on b and then its client here, and succeeds
# if both do.  Shows the output of both, the client's first.
between()
{
	local server=() pid said status=0
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	# shellcheck disable=SC2154 # ktap.sh has it
	said=$ktap_tmp/server
	on_b "${server[@]}" >"$said" 2>&1 &
	pid=$!
	on_b wait_for 20 waits_for_peer 18515 || status=1
	[ "$status" -ne 0 ] || "$@" || status=$?
	if [ "$status" -ne 0 ]; then
		echo "the client failed (status $status): $*"
		kill "$pid" 2>/dev/null || true
	fi
	if ! wait "$pid"; then
		[ "$status" -ne 0 ] || echo "the server failed: ${server[*]}"
		status=1
	fi
	sed 's/^/server: /' "$said"
	return "$status"
}
