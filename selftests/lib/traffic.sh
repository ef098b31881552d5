# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Traffic under disturbance, and the checks afterwards.  Source it after net.sh.
#
# The times of disturbances are random: $STRESS_SEED repeats them, and each test
# prints its own.  ROUNDS is the number of disturbances (3; 20 with LONG=1,
# 1 with QUICK=1).

# shellcheck source=selftests/lib/program.sh
. "${BASH_SOURCE[0]%/*}/program.sh"

# shellcheck disable=SC2034 # of ktap.sh
KTAP_TIMEOUT=240
ROUNDS=${ROUNDS:-${QUICK:+1}}
ROUNDS=${ROUNDS:-${LONG:+20}}
ROUNDS=${ROUNDS:-3}

# For traffic that is to break: seven retries of 34 ms, as a CPU of a virtual machine stands still
# for some where others want the host's.
# shellcheck disable=SC2034 # of the tests
IMPATIENT=(-T $((13 + SLOWER)) -R 7)

# The seconds for an action that must end at once.  On a busy host that is hundreds of milliseconds of
# an emulated CPU; an action that waits for a process or a peer never ends.
AT_ONCE_S=10

is_whole()
{
	[ -e "/sys/class/infiniband/$DEV_A" ] && [ -e "/sys/class/infiniband/$DEV_B" ]
}

# Restores the state after earlier tests: one failure must not cause others.
whole()
{
	if is_whole; then
		in_a ip link set eth0 up mtu "$WIRE_MTU"
	else
		net_down
		net_up
	fi
}

# Each test calls it first.
seed()
{
	local seed=${STRESS_SEED:-$((SRANDOM % 1000000))}
	whole
	echo "STRESS_SEED=$seed"
	RANDOM=$seed
}

# Up to so many milliseconds.
random_delay()
{
	local ms=$((RANDOM % $1))
	echo "after $ms ms"
	sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
}

# The addresses of a, as net.sh gave them; setting them anew does no harm.
addresses_back()
{
	in_a ip address replace "$ADDR4_A/24" dev eth0
	in_a ip address replace "$ADDR6_A/64" dev eth0 nodad
}

# link_flaps MS: the netdev of a is down for up to so many milliseconds.
link_flaps()
{
	in_a ip link set eth0 down
	random_delay "$1"
	in_a ip link set eth0 up
	addresses_back
}

# traffic_start OPTION...: the integrity program, in the background, once its first round
# is over: sets $traffic, $side_a and $side_b, its processes, and $said, its output.
traffic_start()
{
	said=$(mktemp "$ktap_tmp/traffic.XXXXXX")
	"$KTAP_BIN/traffic/integrity" --tolerate --stall 30 -q 4 -o 32 -x 20000 \
		-s 0,1,m+1,65537 "$@" >"$said" 2>&1 &
	traffic=$!
	wait_for 60 traffic_is "started" || { cat "$said"; ktap_fail "no traffic"; }
	read -r side_a side_b < <(sed -n 's/^pids //p' "$said")
}

traffic_is()
{
	grep -q "^$1" "$said"
}

# seconds_since START: of $EPOCHREALTIME.
seconds_since()
{
	awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f\n", to - from }'
}

# at_once COMMAND...: it succeeds, and within the time that this may take.
at_once()
{
	local start=$EPOCHREALTIME took
	"$@"
	took=$(seconds_since "$start")
	echo "$took s: $*"
	awk -v took="$took" -v limit=$((AT_ONCE_S * TIME_SCALE)) 'BEGIN { exit !(took < limit) }' ||
		ktap_fail "$took s are too long: $*"
}

is_over()
{
	[ ! -d "/proc/$1" ] || grep -q '^State:.*zombie' "/proc/$1/status" 2>/dev/null
}

# traffic_ends STATUS: by itself, soon, and with this status.
traffic_ends()
{
	local status=0
	wait_for 30 is_over "$traffic" || { cat "$said"; ktap_fail "the traffic goes on"; }
	wait "$traffic" || status=$?
	cat "$said"
	[ "$status" -eq "$1" ] || ktap_fail "the traffic ended with status $status, not $1"
	traffic=
}

# With an error of the connection or the device, as it should be: status 3.
traffic_breaks()
{
	traffic_ends 3
}

traffic_kill()
{
	kill -KILL "$side_a" "$side_b" 2>/dev/null || true
	wait "$traffic" || true
}

received_bytes()
{
	counter_of "$DEV_A" rcvd_bytes
}

# Two rounds are so many bytes at most.
TWO_ROUNDS=4000000

# Whether the traffic has ended, or gone on since so many bytes had been received.
has_moved()
{
	is_over "$traffic" || [ $(($(received_bytes) - $1)) -ge $TWO_ROUNDS ]
}

# traffic_goes_on: for a whole round at least, with the look at all memory at its end.
traffic_goes_on()
{
	wait_for 60 has_moved "$(received_bytes)" || { cat "$said"; ktap_fail "no traffic"; }
	! is_over "$traffic" || { cat "$said"; ktap_fail "the traffic is over"; }
}

device_goes()
{
	at_once wait_for "$AT_ONCE_S" no_device "$1"
}

# The objects of all devices, without the devices' numbers.
resources()
{
	rdma -d resource show | sed -n "s/^[0-9]*: \($DEV_A\|$DEV_B\):/\1/p" | sort
}

note_resources()
{
	resources >"$ktap_tmp/resources"
	pinned_pages >"$ktap_tmp/pinned"
}

same_resources()
{
	diff "$ktap_tmp/resources" <(resources)
}

# A short exchange between both ends, from scratch.
still_works()
{
	"$KTAP_BIN/traffic/integrity" -q 2 -n 1 -s 1,70000 -o 8
}

# Restores the parts that a test has removed, and tries them.
restore()
{
	net_down
	net_up
	same_resources
	still_works
}

MODULE=$(module_of "$DRIVER")

module_is_loaded()
{
	[ -e "/sys/module/$MODULE" ]
}

module_refs()
{
	cat "/sys/module/$MODULE/refcnt"
}

module_is_free()
{
	[ "$(module_refs)" -eq 0 ]
}

# Prints the number of pinned pages.
pinned_pages()
{
	# CPUs count for themselves, and report now and then, or when this is read.
	cat /proc/sys/vm/stat_refresh
	awk '$1 == "nr_foll_pin_acquired" { pins += $2 }
		$1 == "nr_foll_pin_released" { pins -= $2 }
		END { print pins + 0 }' /proc/vmstat
}

nothing_in_use()
{
	same_resources && [ "$(pinned_pages)" -eq "$(<"$ktap_tmp/pinned")" ]
}

# All objects of processes that are gone are gone, too, and their memory is not pinned.
no_objects_left()
{
	wait_for 30 nothing_in_use >"$ktap_tmp/in_use" || {
		tail -n 10 "$ktap_tmp/in_use"
		ktap_fail "something is in use: $(pinned_pages) pages are pinned"
	}
}

# For the end of a program: no links, so no objects; no use of the module; and it goes.
module_goes()
{
	no_objects_left
	net_down
	wait_for 20 module_is_free
	at_once rmmod "$MODULE"
	not module_is_loaded
	not grep "$MODULE" /proc/vmallocinfo
}
