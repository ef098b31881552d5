// SPDX-License-Identifier: GPL-2.0
/*
 * Asynchronous events: what a process is told of its queue pairs, of the port and of
 * the GID table, and when.
 */
#include <poll.h>
#include <stdio.h>

#include "harness.h"
#include "rc.h"

/* How long to look for an event that must not come. */
#define QUIET_MS 300

static struct rc_pair pair;
static struct rc_plan plan;
static struct buffer source, target;

static void set_up(void)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	pair_create(&pair, &plan);
	buffer_create(&source, &ends[0], 4096, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&target, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE);
}

/* Both queue pairs go as far as this. */
static void advance(struct rc *rc, enum ibv_qp_state last)
{
	struct rc_address peer = rc_address(rc == &pair.a ? &pair.b : &pair.a);

	rc_modify(rc, IBV_QPS_INIT, &peer, &plan);
	rc_modify(rc, IBV_QPS_RTR, &peer, &plan);
	if (last == IBV_QPS_RTS)
		rc_modify(rc, IBV_QPS_RTS, &peer, &plan);
}

static void send_one(uint64_t wr_id)
{
	struct ibv_sge from = buffer_sge(&source, 0, 64);
	struct ibv_sge to = buffer_sge(&target, 0, 64);

	post_recv(&pair.b, wr_id, &to);
	post_send(&pair.a, wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
	expect_wc(pair.a.scq, wr_id, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.b.rcq, wr_id, IBV_WC_SUCCESS, SOON_MS);
}

/* The next event of this type; false if none comes in time. */
static bool next_event(struct end *end, enum ibv_event_type type, struct ibv_async_event *event,
		       int timeout_ms)
{
	struct pollfd wait = { .fd = end->context->async_fd, .events = POLLIN };
	int64_t deadline = now_ns() + timeout_ms * NS_PER_MS, left;

	while ((left = deadline - now_ns()) > 0) {
		if (poll(&wait, 1, left / NS_PER_MS + 1) != 1)
			return false;
		if (ibv_get_async_event(end->context, event))
			continue;
		ibv_ack_async_event(event);
		note("%s: %s", end->dev, ibv_event_type_str(event->event_type));
		if (event->event_type == type)
			return true;
	}
	return false;
}

/* A queue pair that waits in RTR is told when the other end speaks; once. */
TEST(communication_established)
{
	struct ibv_async_event event;

	set_up();
	advance(&pair.b, IBV_QPS_RTR);
	require(!next_event(&ends[1], IBV_EVENT_COMM_EST, &event, QUIET_MS), "nobody spoke yet");
	advance(&pair.a, IBV_QPS_RTS);
	send_one(1);
	require(next_event(&ends[1], IBV_EVENT_COMM_EST, &event, SOON_MS), "no event");
	require(event.element.qp == pair.b.qp, "of another queue pair");
	send_one(2);
	send_one(3);
	require(!next_event(&ends[1], IBV_EVENT_COMM_EST, &event, QUIET_MS), "a second event");
	require(!next_event(&ends[0], IBV_EVENT_COMM_EST, &event, QUIET_MS), "for the sender");
}

/* Who is in RTS knows that the connection stands. */
TEST(established_before)
{
	struct ibv_async_event event;

	set_up();
	advance(&pair.b, IBV_QPS_RTS);
	advance(&pair.a, IBV_QPS_RTS);
	send_one(1);
	require(!next_event(&ends[1], IBV_EVENT_COMM_EST, &event, QUIET_MS), "it was told");
}

static enum ibv_port_state port_state(struct end *end)
{
	struct ibv_port_attr port;

	require_ok(ibv_query_port(end->context, PORT, &port));
	return port.state;
}

static void expect_port_event(struct end *end, enum ibv_event_type type, enum ibv_port_state state)
{
	struct ibv_async_event event;

	require(next_event(end, type, &event, SOON_MS), "%s: no event \"%s\"", end->dev,
		ibv_event_type_str(type));
	require(event.element.port_num == PORT, "of port %d", event.element.port_num);
	require(port_state(end) == state, "%s: the port is in state %d", end->dev, port_state(end));
}

static void wait_gid(struct end *end)
{
	int64_t deadline = now_ns() + SOON_MS * NS_PER_MS;
	union ibv_gid gid;

	do {
		require(now_ns() < deadline, "%s: the GID does not come back", end->dev);
	} while (ibv_query_gid(end->context, PORT, end->gid_index, &gid) ||
		 memcmp(&gid, &end->gid, sizeof(gid)));
}

/* One end is set down: for the other that is a cable that was pulled. */
TEST(port_goes_and_comes)
{
	int i;

	name_ends_from_environment();
	for (i = 0; i < 2; i++) {
		shell("ip netns exec %s sysctl -qw net.ipv6.conf.eth0.keep_addr_on_down=1",
		      ends[i].ns);
		end_open(&ends[i], FAMILY_IPV6);
		require(port_state(&ends[i]) == IBV_PORT_ACTIVE, "not active");
	}
	shell("ip -n %s link set eth0 down", ends[1].ns);
	for (i = 0; i < 2; i++)
		expect_port_event(&ends[i], IBV_EVENT_PORT_ERR, IBV_PORT_DOWN);
	shell("ip -n %s link set eth0 up", ends[1].ns);
	for (i = 0; i < 2; i++)
		expect_port_event(&ends[i], IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE);
	for (i = 0; i < 2; i++)
		wait_gid(&ends[i]);
}

TEST(gid_changes)
{
	struct ibv_async_event event;

	name_ends_from_environment();
	open_ends();
	while (next_event(&ends[0], IBV_EVENT_GID_CHANGE, &event, QUIET_MS))
		;
	shell("ip -n %s address add 198.51.100.7/24 dev eth0", ends[0].ns);
	require(next_event(&ends[0], IBV_EVENT_GID_CHANGE, &event, SOON_MS), "a GID more: no event");
	require(event.element.port_num == PORT, "of port %d", event.element.port_num);
	shell("ip -n %s address del 198.51.100.7/24 dev eth0", ends[0].ns);
	require(next_event(&ends[0], IBV_EVENT_GID_CHANGE, &event, SOON_MS), "a GID less: no event");
	require(!next_event(&ends[1], IBV_EVENT_GID_CHANGE, &event, QUIET_MS), "at the other end");
}

TEST_HARNESS_MAIN
