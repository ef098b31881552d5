# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What goes between two drivers, from a, which connects and asks, to b, which listens
# and answers.  The programs that source it after net.sh differ in who is who.
#
# rdma_rxe sets limits to what can be asked of it: as a responder it stalls on fenced
# and on empty operations and with requests coming both ways, and a timer that is short
# for an emulated CPU has its requester give up.  So there is one direction, without
# these, and timeout 18 is 1.07 s.  DRIVER=rxe has it at both ends, to tell its
# defects from others.

# shellcheck source=selftests/lib/program.sh
. "${BASH_SOURCE[0]%/*}/../lib/program.sh"
# shellcheck source=selftests/lib/perftest.sh
. "${BASH_SOURCE[0]%/*}/../lib/perftest.sh"

setup()
{
	modprobe sch_netem
	net_up
}

cleanup()
{
	net_down
}

# It says that data were wrong, but ends well then, too.
# pingpong TRANSPORT OPTION...
pingpong()
{
	local program=ibv_$1_pingpong gid_a gid_b said
	[ "$1" = rc ] || wire_lossless
	gid_a=$(gid_index "$DEV_A" "$ADDR4_A")
	gid_b=$(gid_index "$DEV_B" "$ADDR4_B")
	shift
	said=$(pair "$program" -d "$DEV_B" -g "$gid_b" -c -n 50 "$@" -- \
		"$program" -d "$DEV_A" -g "$gid_a" -c -n 50 "$@" "$ADDR4_B" 2>&1) || {
		echo "$said"
		return 1
	}
	echo "$said"
	[ "$(grep -c "iters in .* usec/iter" <<<"$said")" -eq 2 ]
	not grep -q "invalid data" <<<"$said"
}

# measured PROGRAM OPTION...
measured()
{
	over4 "$1" 1 -u 18 "${@:2}"
}

# What the wire may do to packets, in both directions.
declare -A NETEM=(
	[loss]="loss 1%"
	[reordering]="delay 1ms reorder 97% 50%"
	[duplication]="duplicate 2%"
)

# wire_does WHAT: one of these from now on; "": none.
wire_does()
{
	netem_both "${1:+${NETEM[$1]}}"
}

# requests WHAT OPTION...: from a to b, every byte compared, over a wire that does that.
requests()
{
	wire_does "$1"
	shift
	"$KTAP_BIN/traffic/integrity" -D a --no-fences --no-empty -T 18 "$@"
}

SIZES=1,m-1,m,m+1,65535,65536,65537

# operations WHAT NAME: one of the tests of atomics.c, over a wire that does that.  Not the
# one of FLUSH: over such a packet rdma_rxe computes an ICRC in which the headers come
# twice, so that nobody else takes it, nor it theirs.
operations()
{
	wire_does "$1"
	DRIVER_A=$DRIVER_A DRIVER_B=$DRIVER_B ACK_TIMEOUT=18 \
		program_test "$KTAP_BIN/traffic/atomics" "$2"
}

# Not the packets of a connection's end that come after it.
no_error_sent()
{
	local device counters
	for device in "$DEV_A" "$DEV_B"; do
		counters=/sys/class/infiniband/$device/ports/1/hw_counters
		[ -e "$counters/send_inv_req_err" ] || continue
		grep -H . "$counters"/{send_inv_req_err,send_access_err,send_op_err,drop_bad_*}
		[ "$(cat "$counters"/{send_inv_req_err,send_access_err,send_op_err,drop_bad_*} |
			sort -u)" = 0 ] || ktap_fail "$device has refused something"
	done
}

VERBS='send,send_imm write,write_imm read'
ATOMICS='results compare_and_swap scattered_result order atomic_write one_counter'

# SEND, WRITE and READ apart when packets are lost: mixed, rdma_rxe's requester fails now
# and then.  It takes an acknowledgement that comes a second time, between the responses
# to a READ of which one was lost, for the end of the response: the rest is unexpected
# then, and the READ completes as if all of it were there.
#
# And from rdma_rxe no ATOMIC_WRITE that may have to be sent again: to the second one it
# gives the address 0.
#
# disturbed_tests WHAT ROWS: on a wire that does that; the first ROWS stand for the others.
disturbed_tests()
{
	local verb name mtu add=ktap_test rows=$2
	for mtu in 4096 256 512 1024 2048; do
		for verb in $VERBS; do
			$add "$verb compared, MTU $mtu, $1" requests "$1" \
				-k "$verb" -m "$mtu" -s $SIZES -B 500000 -n 1
			[ $((--rows)) -gt 0 ] || add=ktap_more
		done
	done
	for name in $ATOMICS; do
		[ "$DRIVER_A:$name" != rxe:atomic_write ] || [ "$1" = duplication ] || continue
		$add "atomics: $name, $1" operations "$1" "$name"
	done
	ktap_test "nothing was refused, with $1" no_error_sent
}

# The tests, one after the other.
interop_tests()
{
	local mtu verb name mtus='256 512 1024 2048 4096'
	[ -z "${QUICK-}" ] || mtus=1024
	ktap_require ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ib_send_bw ib_send_lat tc \
		traffic/integrity traffic/atomics
	for mtu in $mtus; do
		ktap_test "pingpong, MTU $mtu" pingpong rc -m "$mtu" -s 10000
		for verb in $VERBS; do
			ktap_test "$verb compared, MTU $mtu" requests "" \
				-k "$verb" -m "$mtu" -s $SIZES -B 1000000 -n 2
		done
	done
	ktap_test "all compared, IPv6" requests "" -6 -s $SIZES -B 1000000 -n 2
	ktap_test "8 MiB messages compared" requests "" -s 8388609 -q 1 -B 16777216 -n 1
	for verb in send write read; do
		ktap_test "ib_${verb}_bw" measured "ib_${verb}_bw" -s 65536 -n 50
		ktap_more "ib_${verb}_lat" measured "ib_${verb}_lat" -s 64 -n 100
	done
	ktap_test "pingpong, UC" pingpong uc -m 1024 -s 10000
	ktap_test "pingpong, UD" pingpong ud -s 2048
	for verb in send write; do
		ktap_test "ib_${verb}_bw, UC" measured "ib_${verb}_bw" -c UC -s 65536 -n 50
		ktap_more "ib_${verb}_lat, UC" measured "ib_${verb}_lat" -c UC -s 64 -n 100
	done
	ktap_test "ib_send_bw, UD" measured ib_send_bw -c UD -s 2048 -n 100
	ktap_more "ib_send_lat, UD" measured ib_send_lat -c UD -s 64 -n 100
	for name in $ATOMICS; do
		ktap_test "atomics: $name" operations "" "$name"
	done
	ktap_test "nothing was refused" no_error_sent
	disturbed_tests loss 3
	disturbed_tests reordering 1
	disturbed_tests duplication 1
}
