// SPDX-License-Identifier: GPL-2.0
/*
 * Connections between the same two ports, one after the other:
 *
 *	reconnect -s ADDRESS PORT			accepts all that come
 *	reconnect SOURCE SOURCE_PORT ADDRESS PORT	connects, sends, and disconnects
 *	reconnect -h SOURCE SOURCE_PORT ADDRESS PORT	connects, sends, and holds the connection
 *
 * A client that is refused says why: the reason that the kernel's connection manager gives.
 */
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESOLVE_MS 2000
#define REASON_STALE 10
#define BYTES 64

static char buffer[BYTES];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* For calls that return -1 and set errno when they fail. */
static void ok(int result, const char *what)
{
	if (result < 0)
		die(what);
}

static struct sockaddr_storage address_of(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM }, *found;
	struct sockaddr_storage address = {};

	if (getaddrinfo(host, port, &hints, &found))
		die(host);
	memcpy(&address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return address;
}

/* With a receive that takes a message. */
static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_mr *mr;

	ok(rdma_create_qp(id, NULL, &init), "rdma_create_qp");
	mr = rdma_reg_msgs(id, buffer, BYTES);
	if (!mr)
		die("rdma_reg_msgs");
	id->context = mr;
	ok(rdma_post_recv(id, NULL, buffer, BYTES, mr), "rdma_post_recv");
}

static void handle(struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	enum rdma_cm_event_type type = event->event;

	ok(rdma_ack_cm_event(event), "rdma_ack_cm_event");
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		make_qp(id);
		ok(rdma_accept(id, NULL), "rdma_accept");
	} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
		rdma_disconnect(id);
		rdma_dereg_mr(id->context);
		rdma_destroy_qp(id);
		rdma_destroy_id(id);
	}
}

static void serve(struct sockaddr_storage address)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *listener;

	if (!channel)
		die("rdma_create_event_channel");
	ok(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	ok(rdma_bind_addr(listener, (struct sockaddr *)&address), "rdma_bind_addr");
	ok(rdma_listen(listener, 8), "rdma_listen");
	for (;;) {
		ok(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
		handle(event);
	}
}

static void refused(struct rdma_cm_id *id)
{
	if (id->event && id->event->event == RDMA_CM_EVENT_REJECTED)
		fprintf(stderr, "rejected, reason %d%s\n", id->event->status,
			id->event->status == REASON_STALE ? ": a stale connection" : "");
	die("rdma_connect");
}

/* A connection that carries a message. */
static struct rdma_cm_id *connect_to(struct sockaddr_storage from, struct sockaddr_storage to)
{
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *id;
	struct ibv_wc wc;

	ok(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	ok(rdma_bind_addr(id, (struct sockaddr *)&from), "rdma_bind_addr");
	ok(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, RESOLVE_MS), "rdma_resolve_addr");
	ok(rdma_resolve_route(id, RESOLVE_MS), "rdma_resolve_route");
	make_qp(id);
	if (rdma_connect(id, &param))
		refused(id);
	ok(rdma_post_send(id, NULL, buffer, BYTES, id->context, IBV_SEND_SIGNALED), "rdma_post_send");
	ok(rdma_get_send_comp(id, &wc), "rdma_get_send_comp");
	if (wc.status) {
		fprintf(stderr, "the message: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	puts("connected");
	fflush(stdout);
	return id;
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *id;
	int hold = argc == 6 && !strcmp(argv[1], "-h");

	if (argc == 4 && !strcmp(argv[1], "-s")) {
		serve(address_of(argv[2], argv[3]));
	} else if (argc == 5 + hold) {
		argv += hold;
		id = connect_to(address_of(argv[1], argv[2]), address_of(argv[3], argv[4]));
		while (hold)
			pause();
		ok(rdma_disconnect(id), "rdma_disconnect");
	} else {
		fprintf(stderr, "usage: reconnect -s ADDRESS PORT | [-h] SOURCE SOURCE_PORT ADDRESS PORT\n");
		return 2;
	}
	return 0;
}
