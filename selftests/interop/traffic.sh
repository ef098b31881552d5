# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Traffic between two drivers, from a, which connects and requests, to b, which listens
# and responds.  The programs that source it after net.sh choose the drivers.
#
# rdma_rxe limits the tests. As a responder it stalls on fenced and on empty operations,
# and with requests in both directions.  With a short timer its requester gives up on an
# emulated CPU.  So there is one direction, without these operations, and timeout 18 is
# 1.07 s.  DRIVER=rxe tests it at both ends, to distinguish its defects from those of
# ferroce.

# shellcheck source=selftests/lib/program.sh
. "${BASH_SOURCE[0]%/*}/../lib/program.sh"
# shellcheck source=selftests/lib/perftest.sh
. "${BASH_SOURCE[0]%/*}/../lib/perftest.sh"
# shellcheck source=selftests/lib/narrow.sh
. "${BASH_SOURCE[0]%/*}/../lib/narrow.sh"

setup()
{
	modprobe sch_netem
	load_narrow
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

# The disturbances of packets, in both directions.
declare -A NETEM=(
	[loss]="loss 1%"
	[reordering]="delay 1ms reorder 97% 50%"
	[duplication]="duplicate 2%"
)

# wire_does WHAT: selects one of these; "": none.
wire_does()
{
	netem_both "${1:+${NETEM[$1]}}"
}

# requests WHAT OPTION...: sends requests from a to b over this wire, and compares every byte.
requests()
{
	wire_does "$1"
	shift
	"$KTAP_BIN/traffic/integrity" -D a --no-fences --no-empty -T 18 "$@"
}

SIZES=1,m-1,m,m+1,65535,65536,65537

# congested VERB: requests whose data, those of a READ from b, pass a narrow network.  It marks the
# packets of a driver that reacts to marks, and drops those of rdma_rxe, which cannot be marked.  rdma_rxe
# as a receiver tells nobody of marks.
congested()
{
	local verb=$1 sender=$DRIVER_A fate=marked
	wire_does ""
	case $verb in
	read) narrow a; sender=$DRIVER_B ;;
	*) narrow b ;;
	esac
	[ "$sender" != rxe ] || fate=early
	"$KTAP_BIN/traffic/integrity" -D a --no-fences --no-empty -T 18 -k "$verb" -q 2 -s 65536 \
		-B 8000000 -n 2
	show_queue
	[ "$(queue_count "$fate")" -gt 0 ] || ktap_fail "there was no congestion"
}

# operations WHAT NAME: runs one of the tests of atomics.c over this wire.  FLUSH is left out:
# rdma_rxe computes its ICRC with the headers twice, so no other driver accepts the packet, nor does
# rdma_rxe accept theirs.
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

# SEND, WRITE and READ are separate with losses: with mixed operations rdma_rxe's requester sometimes
# fails.  A repeated acknowledgement between the responses to a READ, one of which was lost,
# counts as the end of the response for it.  The rest is then unexpected, and the READ completes as if
# all of it were there.
#
# rdma_rxe sends no ATOMIC_WRITE that may need a retransmission: it gives the second one the
# address 0.
#
# disturbed_tests WHAT ROWS: tests over this wire; the first ROWS represent the others.
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
	for verb in send write read; do
		ktap_test "$verb compared, congestion" congested "$verb"
	done
}
