// SPDX-License-Identifier: GPL-2.0
/*
 * The transports that acknowledge nothing: datagrams with their address handles
 * and Q_Keys, and what unreliable connections do otherwise than reliable ones.
 */
#include <arpa/inet.h>
#include <rdma/rdma_user_rxe.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "rc.h"
#include "ud.h"

#define QKEY 0x11223344
#define GRH 40
#define DEPTH 16
#define LENGTH 100

/* How long nothing has to come. */
#define SILENCE_MS 300

static struct rc ud_a, ud_b;
static struct ibv_ah *ah_to_b, *ah_to_a;
static struct buffer source, target;
static struct rc_pair pair;
static struct rc_plan plan;

/* ---- datagrams --------------------------------------------------------- */

static const struct ibv_qp_cap cap = {
	.max_send_wr = DEPTH, .max_recv_wr = DEPTH,
	.max_send_sge = 2, .max_recv_sge = 2,
	.max_inline_data = 64,
};

static int ud_try_modify(struct rc *ud, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = to, .port_num = PORT, .qkey = QKEY, .sq_psn = ud->psn,
	};

	return ibv_modify_qp(ud->qp, &attr, mask | IBV_QP_STATE);
}

static struct ibv_qp_attr ud_query(struct rc *ud)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	require_ok(ibv_query_qp(ud->qp, &attr, IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_SQ_PSN, &init));
	return attr;
}

static void open_family(enum family family)
{
	name_ends_from_environment();
	end_open(&ends[0], family);
	end_open(&ends[1], family);
}

static void create_buffers(struct end *receiver)
{
	int i;

	buffer_create(&source, &ends[0], 8192, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&target, receiver, 8192, IBV_ACCESS_LOCAL_WRITE);
	for (i = 0; i < 8192; i++)
		source.bytes[i] = i * 7 + i / 256;
}

static void set_up(enum family family)
{
	open_family(family);
	ud_create(&ud_a, &ends[0], &cap, 2 * DEPTH);
	ud_create(&ud_b, &ends[1], &cap, 2 * DEPTH);
	ud_start(&ud_a, QKEY);
	ud_start(&ud_b, QKEY);
	ah_to_b = ah_create(&ends[0], &ends[1]);
	ah_to_a = ah_create(&ends[1], &ends[0]);
	create_buffers(&ends[1]);
}

static void ud_recv(struct rc *ud, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = buffer_sge(&target, 0, length);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	require_ok(ibv_post_recv(ud->qp, &wr, &bad));
}

static int ud_try_send(struct rc *ud, uint64_t wr_id, struct ibv_ah *ah, uint32_t qpn,
		       uint32_t qkey, uint32_t length)
{
	struct ibv_sge sge = buffer_sge(&source, 0, length);
	struct ibv_send_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(0x01020304),
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = qkey },
	}, *bad;

	return ibv_post_send(ud->qp, &wr, &bad);
}

static void send_to_b(uint64_t wr_id, uint32_t qkey, uint32_t length)
{
	require_ok(ud_try_send(&ud_a, wr_id, ah_to_b, ud_b.qp->qp_num, qkey, length));
}

static void expect_message(uint64_t wr_id, uint32_t length)
{
	struct ibv_wc wc = expect_wc(ud_b.rcq, wr_id, IBV_WC_SUCCESS, SOON_MS);

	require(wc.byte_len == GRH + length, "%u bytes, not %u", wc.byte_len, GRH + length);
	require(wc.src_qp == ud_a.qp->qp_num, "it comes from QP %#x", wc.src_qp);
	require(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM), "the flags are %#x", wc.wc_flags);
	require(wc.imm_data == htonl(0x01020304), "wrong immediate data");
	require(!memcmp(target.bytes + GRH, source.bytes, length), "wrong data");
}

static void one_message(uint64_t wr_id, uint32_t length)
{
	memset(target.bytes, 0xee, target.size);
	ud_recv(&ud_b, wr_id, GRH + length);
	send_to_b(wr_id, QKEY, length);
	expect_wc(ud_a.scq, wr_id, IBV_WC_SUCCESS, SOON_MS);
	expect_message(wr_id, length);
	require(target.bytes[GRH + length] == 0xee, "more was written than said");
}

static uint32_t port_mtu(void)
{
	return 128 << ends[0].port.active_mtu;
}

static void all_lengths(void)
{
	uint64_t wr_id = 0;

	one_message(wr_id++, 0);
	one_message(wr_id++, 1);
	one_message(wr_id++, 3);
	one_message(wr_id++, LENGTH);
	one_message(wr_id++, port_mtu() - 1);
	one_message(wr_id++, port_mtu());
}

/* The kind of network header, where mlx5 has it and UCX looks for it: behind "there is UDP". */
enum header_kind { HEADER_IPV6 = 1, HEADER_IPV4 = 2, HEADER_UDP = 8 };

static void says_header(enum header_kind kind)
{
	const char *driver = getenv("DRIVER");
	struct ibv_wc wc;

	if (driver && !strcmp(driver, "rxe"))
		return;
	ud_recv(&ud_b, 1, GRH + LENGTH);
	send_to_b(1, QKEY, LENGTH);
	wc = expect_wc(ud_a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	require(!wc.sl, "a SEND's sl is %#x", wc.sl);
	wc = expect_wc(ud_b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
	require(wc.sl == (kind | HEADER_UDP), "sl is %#x", wc.sl);
}

/* Rules: ENC-10, UDX-4 */
TEST(over_ipv4)
{
	set_up(FAMILY_IPV4);
	all_lengths();
	/* The IP header is in the second half of the space for a GRH. */
	require(target.bytes[20] == 0x45, "no IPv4 header at byte 20");
	require(!memcmp(target.bytes + 32, ends[0].gid.raw + 12, 4), "wrong source");
	require(!memcmp(target.bytes + 36, ends[1].gid.raw + 12, 4), "wrong destination");
	says_header(HEADER_IPV4);
}

/* Rules: UDX-4 */
TEST(over_ipv6)
{
	set_up(FAMILY_IPV6);
	all_lengths();
	require(target.bytes[0] >> 4 == 6, "no IPv6 header at byte 0");
	require(!memcmp(target.bytes + 8, ends[0].gid.raw, 16), "wrong source");
	require(!memcmp(target.bytes + 24, ends[1].gid.raw, 16), "wrong destination");
	says_header(HEADER_IPV6);
}

TEST(to_oneself)
{
	open_family(FAMILY_IPV4);
	ud_create(&ud_a, &ends[0], &cap, 2 * DEPTH);
	ud_start(&ud_a, QKEY);
	ud_b = ud_a;
	ah_to_b = ah_create(&ends[0], &ends[0]);
	create_buffers(&ends[0]);
	all_lengths();
}

/* A completion is all that is needed to answer. */
TEST(answer_by_completion)
{
	struct ibv_grh *grh;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	set_up(FAMILY_IPV6);
	ud_recv(&ud_b, 1, GRH + LENGTH);
	send_to_b(1, QKEY, LENGTH);
	wc = expect_wc(ud_b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
	grh = (void *)target.bytes;
	end_enter(&ends[1]);
	ah = ibv_create_ah_from_wc(ends[1].pd, &wc, grh, PORT);
	require(ah, "ibv_create_ah_from_wc: %s", strerror(errno));
	require_ok(ibv_destroy_ah(ah));
}

/*
 * A library that knows nothing of the numbers of address handles says in each
 * request where it goes.  This one does so when it has got no number: its object is
 * made to look like that.
 */
static struct rxe_av *address_vector(struct ibv_ah *ah)
{
	struct rxe_ah {
		struct ibv_ah ah;
		struct rxe_av av;
		int number;
	} *rxe = (void *)ah;
	struct rxe_av *av = &rxe->av;

	if (rxe->number < 1 || rxe->number > 0x7fff)
		skip("the library has other objects: %d is no number", rxe->number);
	rxe->number = 0;
	/* What the driver has to know better is wrong. */
	memset(av, 0x5a, sizeof(*av));
	av->port_num = PORT;
	memcpy(&av->grh.dgid, ends[1].gid.raw, sizeof(av->grh.dgid));
	av->grh.sgid_index = ends[0].gid_index;
	av->grh.flow_label = 0;
	av->grh.hop_limit = 64;
	av->grh.traffic_class = 0;
	return av;
}

static void address_in_request(enum family family)
{
	uint64_t wr_id;

	set_up(family);
	address_vector(ah_to_b);
	for (wr_id = 0; wr_id < 40; wr_id++)
		one_message(wr_id, LENGTH);
	require(!memcmp(target.bytes + (family == FAMILY_IPV4 ? 32 : 8),
			ends[0].gid.raw + (family == FAMILY_IPV4 ? 12 : 0), 4),
		"it does not come from the GID");
}

TEST(address_in_request_ipv4) { address_in_request(FAMILY_IPV4); }
TEST(address_in_request_ipv6) { address_in_request(FAMILY_IPV6); }

TEST(wrong_address_in_request)
{
	struct rxe_av *av, good;
	unsigned int round;

	set_up(FAMILY_IPV4);
	av = address_vector(ah_to_b);
	good = *av;
	for (round = 0; round < 4; round++) {
		*av = good;
		switch (round) {
		case 0: av->port_num = 2; break;
		case 1: av->grh.sgid_index = 255; break;
		/* From IPv4 to IPv6. */
		case 2: memset(&av->grh.dgid, 0x20, sizeof(av->grh.dgid)); break;
		case 3: memset(&av->grh.dgid, 0xff, sizeof(av->grh.dgid)); break;
		}
		send_to_b(round, QKEY, LENGTH);
		expect_wc(ud_a.scq, round, IBV_WC_LOC_QP_OP_ERR, SOON_MS);
		require_ok(ud_try_modify(&ud_a, IBV_QPS_RTS, 0));
	}
	*av = good;
	one_message(10, LENGTH);
	/* In the error state no address is known, but the request is flushed. */
	require_ok(ud_try_modify(&ud_a, IBV_QPS_ERR, 0));
	av->grh.hop_limit = 1;
	send_to_b(11, QKEY, LENGTH);
	expect_wc(ud_a.scq, 11, IBV_WC_WR_FLUSH_ERR, SOON_MS);
}

static unsigned int qkey_violations(struct end *end)
{
	struct ibv_port_attr port;

	require_ok(ibv_query_port(end->context, PORT, &port));
	return port.qkey_viol_cntr;
}

/* Rules: KEY-6 */
TEST(wrong_qkey)
{
	unsigned int before;

	set_up(FAMILY_IPV4);
	before = qkey_violations(&ends[1]);
	ud_recv(&ud_b, 1, GRH + LENGTH);
	send_to_b(1, QKEY + 1, LENGTH);
	send_to_b(2, 0, LENGTH);
	expect_wc(ud_a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(ud_a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	expect_no_wc(ud_b.rcq, SILENCE_MS);
	require(qkey_violations(&ends[1]) == before + 2, "%u violations, not 2",
		qkey_violations(&ends[1]) - before);
	/* The sender's own key, which is the right one. */
	send_to_b(3, 0x80000000, LENGTH);
	expect_message(1, LENGTH);
}

TEST(too_long_for_the_receive)
{
	set_up(FAMILY_IPV4);
	ud_recv(&ud_b, 1, GRH + LENGTH);
	send_to_b(1, QKEY, LENGTH + 1);
	expect_wc(ud_a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_no_wc(ud_b.rcq, SILENCE_MS);
	send_to_b(2, QKEY, LENGTH);
	expect_message(1, LENGTH);
	require(ud_query(&ud_b).qp_state == IBV_QPS_RTS, "the receiver is not in RTS any more");
}

/* The send queue stops, receives go on, and so does the send queue once it is told to. */
/* Rules: ERR-12 */
static void stopped_and_resumed(enum ibv_wc_status status, const char *why)
{
	struct ibv_sge sge = buffer_sge(&target, 0, GRH + LENGTH);
	struct ibv_recv_wr wr = { .wr_id = 77, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct buffer from;

	expect_wc(ud_a.scq, 1, status, SOON_MS);
	require(ud_query(&ud_a).qp_state == IBV_QPS_SQE, "%s: the state is not SQE", why);
	send_to_b(2, QKEY, LENGTH);
	expect_wc(ud_a.scq, 2, IBV_WC_WR_FLUSH_ERR, SOON_MS);

	buffer_create(&from, &ends[1], LENGTH, 0);
	sge = buffer_sge(&source, 0, GRH + LENGTH);
	require_ok(ibv_post_recv(ud_a.qp, &wr, &bad));
	sge = buffer_sge(&from, 0, LENGTH);
	require_ok(ibv_post_send(ud_b.qp, &(struct ibv_send_wr){
		.wr_id = 78, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { ah_to_a, ud_a.qp->qp_num, QKEY },
	}, &(struct ibv_send_wr *){ NULL }));
	expect_wc(ud_a.rcq, 77, IBV_WC_SUCCESS, SOON_MS);
	buffer_destroy(&from);

	require_ok(ud_try_modify(&ud_a, IBV_QPS_RTS, 0));
	require(ud_query(&ud_a).qp_state == IBV_QPS_RTS, "%s: the state is not RTS", why);
	one_message(3, LENGTH);
}

TEST(too_long_for_the_port)
{
	set_up(FAMILY_IPV4);
	send_to_b(1, QKEY, port_mtu() + 1);
	stopped_and_resumed(IBV_WC_LOC_LEN_ERR, "a message above the MTU");
}

/* Rules: UDX-13 */
TEST(address_of_another_pd)
{
	struct ibv_pd *pd;
	struct ibv_ah *ah;

	set_up(FAMILY_IPV4);
	pd = ibv_alloc_pd(ends[0].context);
	require(pd, "ibv_alloc_pd: %s", strerror(errno));
	ah = ah_create_in(pd, &ends[0], &ends[1]);
	require_ok(ud_try_send(&ud_a, 1, ah, ud_b.qp->qp_num, QKEY, LENGTH));
	stopped_and_resumed(IBV_WC_LOC_QP_OP_ERR, "an address handle of another PD");
	require_ok(ibv_destroy_ah(ah));
	require_ok(ibv_dealloc_pd(pd));
}

/* Its address vector lives on in the library's object, its number does not. */
/* Rules: UDX-13 */
TEST(address_that_is_gone)
{
	struct { struct ibv_ah ah; uint8_t rest[256]; } copy = {};

	set_up(FAMILY_IPV4);
	memcpy(&copy, ah_to_b, sizeof(struct ibv_ah) + 88 + sizeof(int));
	require_ok(ibv_destroy_ah(ah_to_b));
	ah_to_b = ah_create(&ends[0], &ends[1]);
	require_ok(ud_try_send(&ud_a, 1, &copy.ah, ud_b.qp->qp_num, QKEY, LENGTH));
	stopped_and_resumed(IBV_WC_LOC_QP_OP_ERR, "an address handle that was destroyed");
}

TEST(attributes)
{
	struct ibv_qp_attr attr;

	open_family(FAMILY_IPV4);
	ud_create(&ud_a, &ends[0], &cap, 2 * DEPTH);
	require(ud_try_modify(&ud_a, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT) == EINVAL,
		"INIT without a Q_Key");
	require(ud_try_modify(&ud_a, IBV_QPS_INIT,
			      IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY |
			      IBV_QP_ACCESS_FLAGS) == EINVAL,
		"INIT with access flags");
	ud_start(&ud_a, QKEY);
	attr = ud_query(&ud_a);
	require(attr.qkey == QKEY, "the Q_Key is %#x", attr.qkey);
	require(attr.sq_psn == 0xfffffe, "sq_psn is %#x", attr.sq_psn);
	require(ud_try_modify(&ud_a, IBV_QPS_RTS, IBV_QP_SQ_PSN) == EINVAL, "a PSN in RTS");
	require_ok(ud_try_modify(&ud_a, IBV_QPS_SQD, 0));
	require_ok(ud_try_modify(&ud_a, IBV_QPS_RTS, IBV_QP_QKEY));
}

/* ---- unreliable connections -------------------------------------------- */

static void set_up_uc(void)
{
	open_family(FAMILY_ANY);
	plan = default_plan;
	plan.unreliable = true;
	pair_open(&pair, &plan);
	buffer_create(&source, &ends[0], 8192, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&target, &ends[1], 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	memset(source.bytes, 0x5a, source.size);
}

static void uc_message(uint64_t wr_id, bool post)
{
	struct ibv_sge sge = buffer_sge(&target, 0, LENGTH);

	memset(target.bytes, 0, LENGTH);
	if (post)
		post_recv(&pair.b, wr_id, &sge);
	sge = buffer_sge(&source, 0, LENGTH);
	post_send(&pair.a, wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(pair.a.scq, wr_id, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.b.rcq, wr_id, IBV_WC_SUCCESS, SOON_MS);
	require(!memcmp(target.bytes, source.bytes, LENGTH), "wrong data");
}

/* The sender is done all the same, and the receive is for the next message. */
TEST(uc_dropped_messages)
{
	struct ibv_sge sge;

	set_up_uc();
	sge = buffer_sge(&source, 0, LENGTH);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_no_wc(pair.b.rcq, SILENCE_MS);

	sge = buffer_sge(&target, 0, LENGTH);
	post_recv(&pair.b, 2, &sge);
	sge = buffer_sge(&source, 0, 8192);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	post_send(&pair.a, 3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)target.bytes + 1, target.mr->rkey);
	post_send(&pair.a, 4, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)target.bytes, target.mr->rkey + 1);
	expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.a.scq, 3, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.a.scq, 4, IBV_WC_SUCCESS, SOON_MS);
	expect_no_wc(pair.b.rcq, SILENCE_MS);
	uc_message(2, false);
	require(rc_state(&pair.b) == IBV_QPS_RTS, "the receiver is not in RTS any more");
}

static void uc_stopped(void (*fail_one)(void))
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_sge sge;

	set_up_uc();
	uc_message(1, true);
	fail_one();
	rc_wait_state(&pair.a, IBV_QPS_SQE, SOON_MS);
	sge = buffer_sge(&source, 0, LENGTH);
	post_send(&pair.a, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(pair.a.scq, 3, IBV_WC_WR_FLUSH_ERR, SOON_MS);

	/* Receives go on. */
	post_recv(&pair.a, 4, &sge);
	sge = buffer_sge(&target, 0, LENGTH);
	post_send(&pair.b, 4, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(pair.b.scq, 4, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.a.rcq, 4, IBV_WC_SUCCESS, SOON_MS);

	require_ok(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE));
	uc_message(5, true);
}

static void bad_key(void)
{
	struct ibv_sge sge = buffer_sge(&source, 0, LENGTH);

	sge.lkey ^= 1;
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(pair.a.scq, 2, IBV_WC_LOC_PROT_ERR, SOON_MS);
}

static void a_read(void)
{
	struct ibv_sge sge = buffer_sge(&source, 0, LENGTH);

	post_send(&pair.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)target.bytes, target.mr->rkey);
	expect_wc(pair.a.scq, 2, IBV_WC_LOC_QP_OP_ERR, SOON_MS);
}

TEST(uc_bad_key_stops) { uc_stopped(bad_key); }
TEST(uc_read_stops) { uc_stopped(a_read); }

TEST_HARNESS_MAIN
