// SPDX-License-Identifier: GPL-2.0
/*
 * What librpma makes of an RDMA device:
 *
 *	rpma -s ADDRESS PORT		the server, of one client
 *	rpma ADDRESS PORT ROUNDS	the client
 *
 * The client writes to the server's memory, flushes, writes a word atomically, and reads back what it then
 * compares. In the end a message says what the server is to find in its memory. Where a device has no FLUSH
 * and no atomic WRITE the library does with READs and WRITEs; here that is a failure.
 */
#include <librpma.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM (1 << 20)
#define CHUNK (ROOM / 8)
#define ALWAYS RPMA_F_COMPLETION_ALWAYS
#define USAGE (RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |		\
	       RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_SEND |	\
	       RPMA_MR_USAGE_RECV)

/* Fails with what the library calls the error. */
#define ok(call)								\
	do {									\
		int err_ = (call);						\
		if (err_)							\
			die(#call, rpma_err_2str(err_));			\
	} while (0)

static struct rpma_peer *peer;
static struct rpma_conn *conn;
/* All of it is registered. */
static struct {
	unsigned char out[ROOM], in[ROOM];
	unsigned int said;
} memory;
static struct rpma_mr_local *mr;
#define OUT offsetof(typeof(memory), out)
#define IN offsetof(typeof(memory), in)
#define SAID offsetof(typeof(memory), said)

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static void open_peer(const char *address, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *context;

	ok(rpma_utils_get_ibv_context(address, type, &context));
	ok(rpma_peer_new(context, &peer));
	ok(rpma_mr_reg(peer, &memory, sizeof(memory), USAGE, &mr));
}

static void expect_event(enum rpma_conn_event wanted)
{
	enum rpma_conn_event event;

	ok(rpma_conn_next_event(conn, &event));
	if (event != wanted)
		die("an event", rpma_utils_conn_event_2str(event));
}

/* Sleeps until there is a completion, which must be a success. */
static void complete(enum ibv_wc_opcode opcode)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;
	int err;

	ok(rpma_conn_get_cq(conn, &cq));
	while ((err = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		ok(rpma_cq_wait(cq));
	ok(err);
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode)
		die("a completion", wc.status ? ibv_wc_status_str(wc.status) : "of another operation");
}

static unsigned char byte_of(unsigned int round, size_t at)
{
	return at * 7 + at / 251 + round * 13;
}

static void compare(void)
{
	for (size_t at = 0; at < ROOM; at++)
		if (memory.in[at] != byte_of(memory.said, at))
			die("memory", "it does not hold what was written");
}

static void run_round(struct rpma_mr_remote *there)
{
	for (size_t at = 0; at < ROOM; at++)
		memory.out[at] = byte_of(memory.said, at);
	for (size_t at = 0; at < ROOM; at += CHUNK) {
		ok(rpma_write(conn, there, IN + at, mr, OUT + at, CHUNK, RPMA_F_COMPLETION_ON_ERROR, NULL));
		ok(rpma_flush(conn, there, IN + at, CHUNK, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, NULL));
		complete(IBV_WC_FLUSH);
	}
	ok(rpma_atomic_write(conn, there, IN + CHUNK, (char *)memory.out + CHUNK, ALWAYS, NULL));
	complete(IBV_WC_ATOMIC_WRITE);
	ok(rpma_read(conn, mr, IN, there, IN, ROOM, ALWAYS, NULL));
	complete(IBV_WC_RDMA_READ);
	compare();
}

static void serve(const char *address, const char *port)
{
	unsigned char name[256];
	struct rpma_conn_private_data offered = { .ptr = name };
	struct rpma_conn_req *request;
	struct rpma_ep *endpoint;
	size_t length;

	open_peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	ok(rpma_mr_get_descriptor_size(mr, &length));
	ok(rpma_mr_get_descriptor(mr, name));
	offered.len = length;
	ok(rpma_ep_listen(peer, address, port, &endpoint));
	ok(rpma_ep_next_conn_req(endpoint, NULL, &request));
	ok(rpma_conn_req_recv(request, mr, SAID, sizeof(memory.said), NULL));
	ok(rpma_conn_req_connect(&request, &offered, &conn));
	expect_event(RPMA_CONN_ESTABLISHED);
	complete(IBV_WC_RECV);
	compare();
	expect_event(RPMA_CONN_CLOSED);
}

static void use(const char *address, const char *port, unsigned int rounds)
{
	struct rpma_conn_private_data offered;
	struct rpma_conn_req *request;
	struct rpma_mr_remote *there;

	open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	ok(rpma_conn_req_new(peer, address, port, NULL, &request));
	ok(rpma_conn_req_connect(&request, NULL, &conn));
	expect_event(RPMA_CONN_ESTABLISHED);
	ok(rpma_conn_get_private_data(conn, &offered));
	ok(rpma_mr_remote_from_descriptor(offered.ptr, offered.len, &there));
	while (memory.said < rounds) {
		memory.said++;
		run_round(there);
	}
	ok(rpma_send(conn, mr, SAID, sizeof(memory.said), ALWAYS, NULL));
	complete(IBV_WC_SEND);
	ok(rpma_conn_disconnect(conn));
	expect_event(RPMA_CONN_CLOSED);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		die("usage", "rpma -s ADDRESS PORT | ADDRESS PORT ROUNDS");
	if (!strcmp(argv[1], "-s"))
		serve(argv[2], argv[3]);
	else
		use(argv[1], argv[2], atoi(argv[3]));
	return 0;
}
