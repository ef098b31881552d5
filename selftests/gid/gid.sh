# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# GIDs: their addresses, traffic between two of them, and its form on the
# wire.  Source it after net.sh.

# shellcheck source=selftests/lib/program.sh
. "${BASH_SOURCE[0]%/*}/../lib/program.sh"

# link_local NAMESPACE: the address that the MAC address of eth0 makes, whether or not
# anybody has it.
link_local()
{
	local mac byte
	read -r _ _ mac _ < <(ip -n "$1" -brief link show dev eth0)
	IFS=: read -ra byte <<<"$mac"
	byte=("${byte[@]/#/0x}")
	printf 'fe80::%x:%x:%x:%x\n' $(((byte[0] ^ 2) << 8 | byte[1])) \
		$((byte[2] << 8 | 0xff)) $((0xfe00 | byte[3])) $((byte[4] << 8 | byte[5]))
}

mac_of()
{
	ip -n "$1" -brief link show dev eth0 | awk '{ print $3 }'
}

# gid_at DEVICE INDEX
gid_at()
{
	cat "/sys/class/infiniband/$1/ports/1/gids/$2"
}

# The GID of the netdev's own MAC address is the first one, as a RoCEv2 one.
has_default_gid()
{
	[ "$(gid_at "$2" 0)" = "$(gid_of "$(link_local "$1")")" ] &&
		[ "$(cat "/sys/class/infiniband/$2/ports/1/gid_attrs/types/0")" = "RoCE v2" ]
}

wait_default_gids()
{
	wait_for 10 has_default_gid a "$DEV_A"
	wait_for 10 has_default_gid b "$DEV_B"
}

# pingpong INDEX_A INDEX_B OPTION...: by GID indices.  The program says that data
# were wrong, but ends well then, too.
pingpong()
{
	local gid_a=$1 gid_b=$2 said
	shift 2
	said=$(pair ibv_rc_pingpong -d "$DEV_B" -g "$gid_b" -c -n 100 "$@" -- \
		ibv_rc_pingpong -d "$DEV_A" -g "$gid_a" -c -n 100 "$@" "$ADDR4_B" 2>&1) || {
		echo "$said"
		return 1
	}
	echo "$said"
	[ "$(grep -c "iters in .* usec/iter" <<<"$said")" -eq 2 ]
	not grep -q "invalid data" <<<"$said"
}

# pingpong_between ADDRESS_A ADDRESS_B OPTION...
pingpong_between()
{
	local gid_a gid_b
	gid_a=$(gid_index "$DEV_A" "$1")
	gid_b=$(gid_index "$DEV_B" "$2")
	shift 2
	pingpong "$gid_a" "$gid_b" "$@"
}

# The defaults of a user without knowledge of GIDs.
defaults()
{
	pair ib_send_bw -d "$DEV_B" -F -n 100 -- ib_send_bw -d "$DEV_A" -F -n 100 "$ADDR4_B"
}

# integrity OPTION...: a little of everything, both ways.
integrity()
{
	"$KTAP_BIN/traffic/integrity" -q 2 -n 2 -o 16 -s 0,1,m+1,65537 -x 20000 "$@"
}

# ---- captures --------------------------------------------------------------

is_marked()
{
	[ -n "$(tcpdump -r "$1" -n udp dst port 9 2>/dev/null)" ]
}

# capture FILE COMMAND...: all that goes through b's eth0 while the command runs.  Each packet
# takes as much of the buffer as the longest may have, a train of them.
capture()
{
	local file=$1 log=$ktap_tmp/tcpdump pid
	shift
	ip netns exec b tcpdump -i eth0 --immediate-mode -U -B 65536 -s 65600 -Z root -w "$file" 2>"$log" &
	pid=$!
	wait_for 10 grep -q 'listening on' "$log"
	"$@"
	# When this one is in the file, all are.
	in_a bash -c "echo end >/dev/udp/$ADDR4_B/9"
	wait_for 10 is_marked "$file"
	kill -INT "$pid"
	wait "$pid"
	grep -q '^0 packets dropped by kernel' "$log" || ktap_fail "$(<"$log")"
}

# Payloads are random: tshark must not guess a protocol from them.
tshark_options=(-n)
for heuristic in {smcr,smb_direct,rpcrdma,iser,sdp,fc}_infiniband nvme_rdma lnet_ib eth_over_ib \
	mellanox_eoib; do
	tshark_options+=(--disable-heuristic "$heuristic")
done

# flows FILE FIELD...: the fields of RoCEv2 packets, each combination once.  Fails when
# tshark finds a packet malformed.
flows()
{
	local file=$1 field fields=()
	shift
	for field; do
		fields+=(-e "$field")
	done
	tshark "${tshark_options[@]}" -r "$file" -Y 'udp.dstport == 4791' -T fields -E separator=' ' \
		"${fields[@]}" >"$ktap_tmp/flows" 2>"$ktap_tmp/tshark" || {
		cat "$ktap_tmp/tshark"
		ktap_fail "tshark cannot read the capture"
	}
	tshark "${tshark_options[@]}" -r "$file" -Y 'udp.dstport == 4791 && (_ws.malformed || !infiniband)' \
		>"$ktap_tmp/malformed" 2>/dev/null
	not grep -m 20 . "$ktap_tmp/malformed"
	sort -u "$ktap_tmp/flows" >"$ktap_tmp/seen"
	cat "$ktap_tmp/seen"
}

# A capture shows the packets of a real wire, without the stack's aggregation.
no_offloads()
{
	in_a ethtool -K "$1" gro off tx-udp-segmentation off
	in_b ethtool -K "$1" gro off tx-udp-segmentation off
}
