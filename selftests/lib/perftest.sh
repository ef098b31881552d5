# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# perftest's programs between the two ends of the wire.  Source it after net.sh.

# Prints the sizes for which a report has a row of figures. The figures are not checked: a disturbed
# measurement of the CPU's clock makes perftest take the clock rate for 0 ("Correlation
# coefficient r^2"), and all rates with it.
sizes_reported()
{
	awk '$1 ~ /^[0-9]+$/ && NF >= 5 { print $1 }' <<<"$1"
}

# value_of OPTION DEFAULT ARGUMENT...: prints the value of the option.
value_of()
{
	local option=$1 value=$2
	shift 2
	while [ $# -gt 1 ]; do
		[ "$1" != "$option" ] || value=$2
		shift
	done
	echo "$value"
}

# Without acknowledgements the sender is not slowed down, lost messages are not sent again, and
# the receiver waits forever for all of them.  So all receives are posted at the beginning, and
# the wire loses no message.  Sets the additional
# options.
without_acknowledgement()
{
	local receives
	perftest_more=()
	case $(value_of -c RC "$@") in
	UC | UD) ;;
	*) return 0 ;;
	esac
	wire_lossless
	[[ $1 == ib_send_* ]] || return 0
	receives=$(value_of -n 1000 "$@")
	# A shared receive queue has them for all queue pairs.
	[[ " $* " != *" --use-srq "* ]] || receives=$((receives * $(value_of -q 1 "$@")))
	perftest_more=(-r "$receives")
}

# perftest PROGRAM ADDRESS_A ADDRESS_B SIZES OPTION...: both ends come to their end, and it
# reports so many sizes.
perftest()
{
	local program=$1 gid_a gid_b wanted=$4 said perftest_more
	gid_a=$(gid_index "$DEV_A" "$2")
	gid_b=$(gid_index "$DEV_B" "$3")
	shift 4
	without_acknowledgement "$program" "$@"
	# -F: the clock rate of a virtual CPU may look unsteady.
	set -- -F "$@" "${perftest_more[@]}"
	said=$(pair "$program" -d "$DEV_B" -x "$gid_b" "$@" -- \
		"$program" -d "$DEV_A" -x "$gid_a" "$@" "$ADDR4_B" 2>&1) || {
		echo "$said"
		return 1
	}
	echo "$said"
	said=$(sizes_reported "$(grep -v ^server: <<<"$said")")
	[ "$(sort -u <<<"$said" | grep -c .)" -eq "$wanted" ] || ktap_fail "not $wanted sizes"
}

over4() { perftest "$1" "$ADDR4_A" "$ADDR4_B" "${@:2}"; }
over6() { perftest "$1" "$ADDR6_A" "$ADDR6_B" "${@:2}"; }
