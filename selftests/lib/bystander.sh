# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A bystander on the same devices that the tests must not disturb.  Source it
# after net.sh and traffic.sh:
#
#	setup()   { net_up; bystander_start; }
#	cleanup() { net_down; }
#
#	program_tests hostile/rings beside_test
#	ktap_test "a flood" beside flood
#	ktap_test "the bystander is unhurt" bystander_ends
#	ktap_main

# Of a hundred rounds that the bystander has in an interval of its own, so many must be left
# when others do their worst: they share two CPUs with it.
BYSTANDER_LEAST=1

# shellcheck disable=SC2154 # of ktap.sh
bystander_says()
{
	grep -q "^$1" "$ktap_tmp/bystander"
}

bystander_stands()
{
	bystander_says started || is_over "$bystander"
}

# Further options of the bystander.
bystander_options=()

# Its own objects are there from now on.
bystander_start()
{
	note_resources
	cp "$ktap_tmp/resources" "$ktap_tmp/resources.alone"
	cp "$ktap_tmp/pinned" "$ktap_tmp/pinned.alone"
	"$KTAP_BIN/hostile/bystander" "${bystander_options[@]}" >"$ktap_tmp/bystander" 2>&1 &
	bystander=$!
	wait_for 60 bystander_stands
	bystander_alive
	note_resources
}

bystander_alive()
{
	! is_over "$bystander" || { cat "$ktap_tmp/bystander"; ktap_fail "the bystander is hurt"; }
}

# bystander_worst_since LINES: the worst of the intervals that were whole after so many lines.
bystander_worst_since()
{
	tail -n "+$(($1 + 2))" "$ktap_tmp/bystander" | sed -n 's/^interval //p' | sort -n | head -n 1
}

# The milliseconds for which a paging bystander (--pages) may stand still.
BYSTANDER_GAP_MS=$((4000 * TIME_SCALE))

# bystander_gap_since LINES: the longest of its gaps that were over after so many lines.
bystander_gap_since()
{
	tail -n "+$(($1 + 1))" "$ktap_tmp/bystander" | sed -n 's/^gap //p' | sort -n | tail -n 1
}

bystander_gaps()
{
	grep -c '^gap' "$ktap_tmp/bystander" || true
}

bystander_has_more_gaps_than()
{
	[ "$(bystander_gaps)" -gt "$1" ] || is_over "$bystander"
}

# paged_beside COMMAND...: runs it beside a paging bystander, which must not stand still.
paged_beside()
{
	local lines gaps worst
	bystander_alive
	lines=$(wc -l <"$ktap_tmp/bystander")
	"$@"
	# Its current work began before the end.
	gaps=$(bystander_gaps)
	wait_for $((2 * BYSTANDER_GAP_MS / TIME_SCALE / 1000)) bystander_has_more_gaps_than "$gaps" ||
		ktap_fail "the bystander stands still"
	bystander_alive
	worst=$(bystander_gap_since "$lines")
	echo "the bystander stood still for $worst ms at most"
	[ "$worst" -le "$BYSTANDER_GAP_MS" ] || ktap_fail "the bystander was held up"
}

# beside COMMAND...: runs it beside a bystander, which must be fast enough. The command must leave
# no objects.
beside()
{
	local lines alone worst
	bystander_alive
	lines=$(wc -l <"$ktap_tmp/bystander")
	"$@"
	bystander_alive
	alone=$(sed -n 's/^alone //p' "$ktap_tmp/bystander")
	worst=$(bystander_worst_since "$lines")
	echo "the bystander's worst interval had ${worst:-no end}, of $alone rounds"
	[ $((${worst:-$alone} * 100)) -ge $((alone * BYSTANDER_LEAST)) ] ||
		ktap_fail "the bystander was held up"
	no_objects_left
}

# A test of a C program, for program_tests.
beside_test()
{
	beside program_test "$@"
}

# Not before its last round was right.
bystander_ends()
{
	bystander_alive
	kill -TERM "$bystander"
	wait_for 30 is_over "$bystander"
	tail -n 5 "$ktap_tmp/bystander"
	bystander_says unhurt
	mv "$ktap_tmp/resources.alone" "$ktap_tmp/resources"
	mv "$ktap_tmp/pinned.alone" "$ktap_tmp/pinned"
	no_objects_left
}
