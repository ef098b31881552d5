// SPDX-License-Identifier: GPL-2.0
/*
 * Connections made by rdma_cm, one event at a time: private data both ways, what a
 * refusal says, and how each end learns that the other one is gone.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "rc.h"

#define SERVICE 18516
#define DEPTH 8
#define LENGTH 3000

/* How much private data goes with each message of the CM, as rdma_cm has its own part. */
#define REQUEST_DATA 56
#define REPLY_DATA 196
#define REJECT_DATA 148

/* Reasons of a refusal: no such service, and the peer's own. */
#define REJ_NO_SERVICE 8
#define REJ_CONSUMER 28

/* An end of a connection. */
struct side {
	struct end *end;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
};

/* What an event said. */
struct said {
	int status;
	struct rdma_cm_id *id;
	uint8_t data[256];
	unsigned int data_len;
};

static struct side client, server, listener;
static union {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
} address;

static struct rdma_event_channel *open_channel(struct end *end)
{
	struct rdma_event_channel *channel;

	end_enter(end);
	channel = rdma_create_event_channel();
	require(channel, "rdma_create_event_channel: %s", strerror(errno));
	require_sys(fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	return channel;
}

static void open_side(struct side *side, struct end *end)
{
	side->end = end;
	side->channel = open_channel(end);
	end_enter(end);
	require_sys(rdma_create_id(side->channel, &side->id, NULL, RDMA_PS_TCP));
}

/* The server's, as the environment has it. */
static void find_address(enum family family)
{
	const char *name = family == FAMILY_IPV4 ? "ADDR4_B" : "ADDR6_B";
	const char *text = getenv(name);
	int parsed;

	require(text, "$%s is not set", name);
	memset(&address, 0, sizeof(address));
	if (family == FAMILY_IPV4) {
		address.v4.sin_family = AF_INET;
		address.v4.sin_port = htons(SERVICE);
		parsed = inet_pton(AF_INET, text, &address.v4.sin_addr);
	} else {
		address.v6.sin6_family = AF_INET6;
		address.v6.sin6_port = htons(SERVICE);
		parsed = inet_pton(AF_INET6, text, &address.v6.sin6_addr);
	}
	require(parsed == 1, "%s is no address", text);
}

static void set_up(enum family family)
{
	name_ends_from_environment();
	end_open(&ends[0], family);
	end_open(&ends[1], family);
	find_address(family);
}

static bool event_within(struct side *side, struct rdma_cm_event **event, int timeout_ms)
{
	struct pollfd wait = { .fd = side->channel->fd, .events = POLLIN };

	return poll(&wait, 1, timeout_ms) == 1 && !rdma_get_cm_event(side->channel, event);
}

/* The next event must be this one. */
static struct said expect(struct side *side, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct said said = {};

	require(event_within(side, &event, SOON_MS), "no event \"%s\"", rdma_event_str(type));
	require(event->event == type, "\"%s\" (status %d) and not \"%s\"",
		rdma_event_str(event->event), event->status, rdma_event_str(type));
	said.status = event->status;
	said.id = event->id;
	said.data_len = event->param.conn.private_data_len;
	if (event->param.conn.private_data)
		memcpy(said.data, event->param.conn.private_data, said.data_len);
	require_sys(rdma_ack_cm_event(event));
	return said;
}

static void fill(uint8_t *data, unsigned int length, uint8_t seed)
{
	unsigned int i;

	for (i = 0; i < length; i++)
		data[i] = seed + i * 3;
}

static void expect_data(const struct said *said, unsigned int length, uint8_t seed)
{
	uint8_t data[256];

	fill(data, length, seed);
	require(said->data_len >= length, "%u bytes of private data", said->data_len);
	require(!memcmp(said->data, data, length), "wrong private data");
}

static void make_qp(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	require_sys(rdma_create_qp(side->id, NULL, &init));
}

static void start_listening(void)
{
	open_side(&listener, &ends[1]);
	require_sys(rdma_bind_addr(listener.id, &address.any));
	require_sys(rdma_listen(listener.id, 4));
}

/* As far as to know the way. */
static void find_server(void)
{
	open_side(&client, &ends[0]);
	require_sys(rdma_resolve_addr(client.id, NULL, &address.any, 2000));
	expect(&client, RDMA_CM_EVENT_ADDR_RESOLVED);
	require_sys(rdma_resolve_route(client.id, 2000));
	expect(&client, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(&client);
}

static void ask(void)
{
	uint8_t data[REQUEST_DATA];
	struct rdma_conn_param param = {
		.private_data = data, .private_data_len = sizeof(data),
		.responder_resources = 1, .initiator_depth = 1,
		.retry_count = 5, .rnr_retry_count = 7,
	};

	fill(data, sizeof(data), 10);
	require_sys(rdma_connect(client.id, &param));
}

/* What the listener is asked has an identity of its own, and events on the same channel. */
static void take_request(void)
{
	struct said said = expect(&listener, RDMA_CM_EVENT_CONNECT_REQUEST);

	expect_data(&said, REQUEST_DATA, 10);
	server = listener;
	server.id = said.id;
}

static void accept_request(void)
{
	uint8_t data[REPLY_DATA];
	struct rdma_conn_param param = {
		.private_data = data, .private_data_len = sizeof(data),
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7,
	};

	fill(data, sizeof(data), 20);
	make_qp(&server);
	require_sys(rdma_accept(server.id, &param));
}

static void connect_both(void)
{
	struct said said;

	start_listening();
	find_server();
	ask();
	take_request();
	accept_request();
	said = expect(&client, RDMA_CM_EVENT_ESTABLISHED);
	expect_data(&said, REPLY_DATA, 20);
	expect(&server, RDMA_CM_EVENT_ESTABLISHED);
}

/* One message over the queue pairs, which are in the domains that rdma_cm has made. */
static void send_message(struct side *from, struct side *to)
{
	static uint8_t out[LENGTH], in[LENGTH];
	struct ibv_mr *out_mr = rdma_reg_msgs(from->id, out, sizeof(out));
	struct ibv_mr *in_mr = rdma_reg_msgs(to->id, in, sizeof(in));

	require(out_mr && in_mr, "rdma_reg_msgs: %s", strerror(errno));
	fill(out, sizeof(out), 30);
	memset(in, 0, sizeof(in));
	require_sys(rdma_post_recv(to->id, NULL, in, sizeof(in), in_mr));
	require_sys(rdma_post_send(from->id, NULL, out, sizeof(out), out_mr, IBV_SEND_SIGNALED));
	expect_wc(from->id->send_cq, 0, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(to->id->recv_cq, 0, IBV_WC_SUCCESS, SOON_MS);
	require(!memcmp(in, out, sizeof(out)), "wrong data");
	require_sys(rdma_dereg_mr(out_mr));
	require_sys(rdma_dereg_mr(in_mr));
}

static enum ibv_qp_state state_of(struct side *side)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	require_ok(ibv_query_qp(side->id->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

static void close_side(struct side *side)
{
	rdma_destroy_qp(side->id);
	require_sys(rdma_destroy_id(side->id));
}

/* The end that was told has to agree before the other one is told. */
static void disconnect(struct side *first, struct side *second)
{
	require_sys(rdma_disconnect(first->id));
	expect(second, RDMA_CM_EVENT_DISCONNECTED);
	require_sys(rdma_disconnect(second->id));
	expect(first, RDMA_CM_EVENT_DISCONNECTED);
}

static void connected(enum family family)
{
	set_up(family);
	connect_both();
	send_message(&client, &server);
	send_message(&server, &client);
	disconnect(&client, &server);
	require(state_of(&client) == IBV_QPS_ERR, "the client's queue pair goes on");
	close_side(&client);
	close_side(&server);
	require_sys(rdma_destroy_id(listener.id));
}

TEST(connected_ipv4) { connected(FAMILY_IPV4); }
TEST(connected_ipv6) { connected(FAMILY_IPV6); }

TEST(disconnected_by_server)
{
	set_up(FAMILY_IPV4);
	connect_both();
	disconnect(&server, &client);
}

TEST(refused_with_data)
{
	uint8_t data[REJECT_DATA];
	struct said said;

	set_up(FAMILY_IPV4);
	start_listening();
	find_server();
	ask();
	take_request();
	fill(data, sizeof(data), 40);
	require_sys(rdma_reject(server.id, data, sizeof(data)));
	said = expect(&client, RDMA_CM_EVENT_REJECTED);
	require(said.status == REJ_CONSUMER, "reason %d", said.status);
	expect_data(&said, REJECT_DATA, 40);
	require_sys(rdma_destroy_id(server.id));
	/* The client may try again with another identity. */
	close_side(&client);
	find_server();
	ask();
	take_request();
	accept_request();
	expect(&client, RDMA_CM_EVENT_ESTABLISHED);
}

TEST(nobody_listens)
{
	struct said said;

	set_up(FAMILY_IPV6);
	find_server();
	ask();
	said = expect(&client, RDMA_CM_EVENT_REJECTED);
	require(said.status == REJ_NO_SERVICE, "reason %d", said.status);
}

/* The kernel says good-bye for a process that cannot any more. */
TEST(peer_killed)
{
	pid_t child;
	int ready[2];
	char byte;

	set_up(FAMILY_IPV4);
	require_sys(pipe(ready));
	child = fork();
	require_sys(child);
	if (!child) {
		require(read(ready[0], &byte, 1) == 1, "pipe: %s", strerror(errno));
		find_server();
		ask();
		expect(&client, RDMA_CM_EVENT_ESTABLISHED);
		pause();
		_exit(1);
	}
	start_listening();
	require(write(ready[1], "x", 1) == 1, "pipe: %s", strerror(errno));
	take_request();
	accept_request();
	expect(&server, RDMA_CM_EVENT_ESTABLISHED);
	require_sys(kill(child, SIGKILL));
	require_sys(waitpid(child, NULL, 0));
	expect(&server, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_HARNESS_MAIN
