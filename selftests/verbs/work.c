// SPDX-License-Identifier: GPL-2.0
/*
 * Work requests: those that must be refused or fail, what happens to the others
 * when a queue pair leaves RTS, and that each completes exactly once.
 */
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"
#include "rc.h"

/* How long to look for a completion that must not come. */
#define QUIET_MS 200

static struct rc_pair pair;
static struct rc_plan plan;
static struct buffer source, target;

#define SIZE 8192

static void set_up(void)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	buffer_create(&source, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&target, &ends[1], SIZE,
		      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	memset(source.bytes, 0xaa, SIZE);
	memset(target.bytes, 0x55, SIZE);
}

static void set_up_pair(void)
{
	set_up();
	pair_open(&pair, &plan);
}

static void write_to_target(struct rc *rc, uint64_t wr_id, const struct ibv_sge *sge)
{
	post_send(rc, wr_id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, sge, (uintptr_t)target.bytes,
		  target.mr->rkey);
}

static void expect_target(uint8_t value)
{
	size_t i;

	for (i = 0; i < SIZE; i++)
		require(target.bytes[i] == value, "byte %zu of the target is 0x%02x", i,
			target.bytes[i]);
}

/* The connection still works both ways. */
static void expect_alive(struct rc_pair *alive)
{
	struct ibv_sge sge = buffer_sge(&source, 0, 100);

	write_to_target(&alive->a, 4711, &sge);
	expect_wc(alive->a.scq, 4711, IBV_WC_SUCCESS, SOON_MS);
	post_recv(&alive->a, 4712, NULL);
	post_send(&alive->b, 4713, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(alive->b.scq, 4713, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(alive->a.rcq, 4712, IBV_WC_SUCCESS, SOON_MS);
}

/* ---- posting in the wrong state ---------------------------------------- */

/* A request which was refused is not done later, either. */
/* Rules: STA-7 */
TEST(post_before_rts)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR };
	struct ibv_sge sge;
	struct rc_address a, b;
	size_t i;
	int err;

	set_up();
	pair_create(&pair, &plan);
	a = rc_address(&pair.a);
	b = rc_address(&pair.b);
	rc_connect(&pair.b, &a, &plan);
	sge = buffer_sge(&source, 0, 100);
	for (i = 0; i < ARRAY_SIZE(states); i++) {
		if (states[i] != IBV_QPS_RESET)
			rc_modify(&pair.a, states[i], &b, &plan);
		err = try_post_send(&pair.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
				    (uintptr_t)target.bytes, target.mr->rkey);
		require(err == EINVAL, "a send in state %d: %s", states[i], strerror(err));
	}
	expect_no_wc(pair.a.scq, 0);
	rc_modify(&pair.a, IBV_QPS_RTS, &b, &plan);
	expect_no_wc(pair.a.scq, QUIET_MS);
	expect_target(0x55);
	expect_alive(&pair);
	expect_no_wc(pair.a.scq, QUIET_MS);
}

/* Receives may be posted from INIT on. */
/* Rules: STA-8 */
TEST(post_recv_in_init)
{
	struct rc_address a, b;

	set_up();
	pair_create(&pair, &plan);
	a = rc_address(&pair.a);
	b = rc_address(&pair.b);
	rc_connect(&pair.b, &a, &plan);
	rc_modify(&pair.a, IBV_QPS_INIT, &b, &plan);
	post_recv(&pair.a, 1, NULL);
	expect_no_wc(pair.a.rcq, 50);
	rc_modify(&pair.a, IBV_QPS_RTR, &b, &plan);
	post_recv(&pair.a, 2, NULL);
	/* A responder needs no RTS. */
	post_send(&pair.b, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	post_send(&pair.b, 4, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(pair.b.scq, 3, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.b.scq, 4, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.a.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.a.rcq, 2, IBV_WC_SUCCESS, SOON_MS);
}

/* ---- senseless requests ------------------------------------------------ */

/*
 * Refused at once with an errno, or completed once with one of these statuses;
 * and then nothing was sent.
 */
static void expect_failure(struct rc_pair *failing, struct ibv_send_wr *wr,
			   enum ibv_wc_status status, enum ibv_wc_status or_status,
			   const char *what)
{
	struct ibv_send_wr *bad = NULL;
	struct ibv_wc wc;
	int err;

	wr->wr_id = 77;
	err = ibv_post_send(failing->a.qp, wr, &bad);
	if (err) {
		require(bad == wr || !bad, "%s: bad_wr is off", what);
	} else {
		require(poll_within(failing->a.scq, &wc, SOON_MS), "%s: no completion", what);
		require(wc.wr_id == 77, "%s: completion of 0x%llx", what,
			(unsigned long long)wc.wr_id);
		require(wc.status == status || wc.status == or_status, "%s: completed with \"%s\"",
			what, ibv_wc_status_str(wc.status));
		rc_wait_state(&failing->a, IBV_QPS_ERR, SOON_MS);
	}
	expect_no_wc(failing->a.scq, 20);
	expect_no_wc(failing->b.rcq, 0);
	expect_target(0x55);
	require(rc_state(&failing->b) == IBV_QPS_RTS, "%s: the peer's state is %d", what,
		rc_state(&failing->b));
}

/* Runs a request that must fail on a connection of its own. */
static void failing_request(struct ibv_send_wr *wr, enum ibv_wc_status status,
			    enum ibv_wc_status or_status, const char *what)
{
	struct rc_pair failing;

	pair_open(&failing, &plan);
	expect_failure(&failing, wr, status, or_status, what);
	pair_destroy(&failing);
}

static struct ibv_send_wr target_wr(enum ibv_wr_opcode opcode, struct ibv_sge *sges, int num_sge)
{
	return (struct ibv_send_wr){
		.opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = sges, .num_sge = num_sge,
		.wr.rdma = { .remote_addr = (uintptr_t)target.bytes, .rkey = target.mr->rkey },
	};
}

TEST(unknown_opcodes)
{
	static const unsigned int opcodes[] = {
		IBV_WR_TSO, IBV_WR_DRIVER1, 17, 31, 32, 99, 255, 0x100, 0x7fffffff, 0xffffffff,
	};
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	size_t i;

	set_up_pair();
	sge = buffer_sge(&source, 0, 100);
	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		note("opcode 0x%x", opcodes[i]);
		wr = target_wr(opcodes[i], &sge, 1);
		failing_request(&wr, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR, "unknown opcode");
	}
	expect_alive(&pair);
}

TEST(too_many_sges)
{
	enum { COUNT = 1000 };
	static struct ibv_sge sges[COUNT];
	struct ibv_send_wr *bad_send = NULL, send;
	struct ibv_recv_wr *bad_recv = NULL, recv = { .sg_list = sges };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	size_t i;

	set_up_pair();
	for (i = 0; i < COUNT; i++)
		sges[i] = buffer_sge(&source, i, 1);
	require_ok(ibv_query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init));
	send = target_wr(IBV_WR_RDMA_WRITE, sges, attr.cap.max_send_sge + 1);
	require(ibv_post_send(pair.a.qp, &send, &bad_send), "a send was taken");
	require(bad_send == &send, "bad_wr of the send is off");
	recv.num_sge = attr.cap.max_recv_sge + 1;
	require(ibv_post_recv(pair.a.qp, &recv, &bad_recv), "a receive was taken");
	require(bad_recv == &recv, "bad_wr of the receive is off");
	recv.num_sge = COUNT;
	require(ibv_post_recv(pair.a.qp, &recv, &bad_recv), "a receive was taken");
	expect_no_wc(pair.a.scq, 20);
	expect_target(0x55);
	expect_alive(&pair);
}

TEST(inline_too_long)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	set_up_pair();
	require_ok(ibv_query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init));
	sge = buffer_sge(&source, 0, attr.cap.max_inline_data + 1);
	wr = target_wr(IBV_WR_RDMA_WRITE, &sge, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	require(ibv_post_send(pair.a.qp, &wr, &bad), "%u bytes inline were taken", sge.length);
	expect_no_wc(pair.a.scq, 20);
	expect_target(0x55);
	expect_alive(&pair);
}

/* READ cannot be inline: its data have to go somewhere. */
TEST(inline_read)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	set_up_pair();
	sge = buffer_sge(&source, 0, 16);
	wr = target_wr(IBV_WR_RDMA_READ, &sge, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	failing_request(&wr, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_PROT_ERR, "inline READ");
	expect_alive(&pair);
}

/* The queue is full when it is full, and no sooner. */
TEST(full_queues)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	unsigned int i;
	struct ibv_recv_wr recv = {}, *bad;

	set_up_pair();
	require_ok(ibv_query_qp(pair.a.qp, &attr, IBV_QP_CAP, &init));
	/* The peer has no receives, so they wait. */
	for (i = 0; i < attr.cap.max_send_wr; i++)
		post_send(&pair.a, i, IBV_WR_SEND, 0, NULL, 0, 0);
	require(try_post_send(&pair.a, i, IBV_WR_SEND, 0, NULL, 0, 0), "a send too many was taken");
	for (i = 0; i < attr.cap.max_recv_wr; i++)
		post_recv(&pair.a, i, NULL);
	require(ibv_post_recv(pair.a.qp, &recv, &bad), "a receive too many was taken");
}

/* ---- local protection -------------------------------------------------- */

struct bad_sge {
	const char *what;
	struct ibv_sge sge;
};

/* Keys and ranges that a send may not gather from, nor a READ or a receive scatter to. */
static size_t bad_sges(struct bad_sge bad[], struct buffer *constant)
{
	static struct buffer gone, alien;
	struct ibv_pd *pd = ends[0].pd;
	size_t n = 0;

	buffer_create(&gone, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	ends[0].pd = ibv_alloc_pd(ends[0].context);
	require(ends[0].pd, "ibv_alloc_pd: %s", strerror(errno));
	buffer_create(&alien, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	ends[0].pd = pd;
	buffer_create(constant, &ends[0], SIZE, 0);

	bad[n++] = (struct bad_sge){ "an lkey that never was", buffer_sge(&source, 0, 100) };
	bad[n - 1].sge.lkey ^= 0x5a5a5a00;
	bad[n++] = (struct bad_sge){ "an lkey with another variant", buffer_sge(&source, 0, 100) };
	bad[n - 1].sge.lkey ^= 1;
	bad[n++] = (struct bad_sge){ "lkey 0", buffer_sge(&source, 0, 100) };
	bad[n - 1].sge.lkey = 0;
	bad[n++] = (struct bad_sge){ "a byte before the region", buffer_sge(&source, -1, 100) };
	bad[n++] = (struct bad_sge){ "a byte beyond the region", buffer_sge(&source, SIZE - 99, 100) };
	bad[n++] = (struct bad_sge){ "far beyond the region", buffer_sge(&source, 1 << 20, 100) };
	bad[n++] = (struct bad_sge){ "an end that wraps", buffer_sge(&source, 0, 100) };
	bad[n - 1].sge.addr = UINT64_MAX - 50;
	bad[n++] = (struct bad_sge){ "a region of another PD", buffer_sge(&alien, 0, 100) };
	bad[n++] = (struct bad_sge){ "a region that is gone", buffer_sge(&gone, 0, 100) };
	require_ok(ibv_dereg_mr(gone.mr));
	return n;
}

/* Rules: MEM-7 */
TEST(bad_gathers)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,
	};
	struct bad_sge bad[16];
	struct buffer constant;
	struct ibv_send_wr wr;
	size_t n, i, op;

	set_up_pair();
	n = bad_sges(bad, &constant);
	for (op = 0; op < ARRAY_SIZE(opcodes); op++) {
		for (i = 0; i < n; i++) {
			note("opcode %d, %s", opcodes[op], bad[i].what);
			wr = target_wr(opcodes[op], &bad[i].sge, 1);
			failing_request(&wr, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR, bad[i].what);
		}
	}
	expect_alive(&pair);
}

/* The second SGE counts as much as the first one. */
TEST(bad_second_sge)
{
	struct ibv_send_wr wr;
	struct ibv_sge sges[2];

	set_up_pair();
	sges[0] = buffer_sge(&source, 0, 100);
	sges[1] = buffer_sge(&source, SIZE - 99, 100);
	wr = target_wr(IBV_WR_RDMA_WRITE, sges, 2);
	failing_request(&wr, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR, "WRITE");
	expect_alive(&pair);
}

/* Rules: MEM-8 */
TEST(read_into_read_only)
{
	struct buffer constant;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	size_t i;

	set_up_pair();
	buffer_create(&constant, &ends[0], SIZE, 0);
	sge = buffer_sge(&constant, 0, 100);
	wr = target_wr(IBV_WR_RDMA_READ, &sge, 1);
	failing_request(&wr, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR, "READ");
	for (i = 0; i < SIZE; i++)
		require(!constant.bytes[i], "byte %zu was written", i);
	expect_alive(&pair);
}

/* The receiver's mistake: it gets to know of it, and so does the sender. */
static void bad_scatter(struct ibv_sge *sge, const char *what)
{
	struct rc_pair failing;
	struct ibv_sge from;

	note("%s", what);
	/* The receiver is on ends[0], where the bad SGEs belong. */
	pair_open(&failing, &plan);
	post_recv(&failing.a, 1, sge);
	post_recv(&failing.a, 2, NULL);
	from = buffer_sge(&target, 0, 100);
	post_send(&failing.b, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
	expect_wc(failing.b.scq, 3, IBV_WC_REM_OP_ERR, SOON_MS);
	expect_wc(failing.a.rcq, 1, IBV_WC_LOC_PROT_ERR, SOON_MS);
	expect_wc(failing.a.rcq, 2, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	rc_wait_state(&failing.a, IBV_QPS_ERR, SOON_MS);
	rc_wait_state(&failing.b, IBV_QPS_ERR, SOON_MS);
	pair_destroy(&failing);
}

/* Of a receive that passes the end of its region counts what a message fills. */
TEST(receive_beyond_region)
{
	struct ibv_sge sge, from;
	struct ibv_wc wc;

	set_up_pair();
	sge = buffer_sge(&source, SIZE - 60, 4096);
	post_recv(&pair.a, 1, &sge);
	from = buffer_sge(&target, 0, 60);
	post_send(&pair.b, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
	expect_wc(pair.b.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	wc = expect_wc(pair.a.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
	require(wc.byte_len == 60, "%u bytes", wc.byte_len);
	require(!memcmp(source.bytes + SIZE - 60, target.bytes, 60), "other bytes");
	memset(source.bytes, 0xaa, SIZE);
	bad_scatter(&sge, "40 bytes beyond the region");
	require(source.bytes[SIZE - 60] == 0xaa, "a byte was written");
	expect_alive(&pair);
}

/* Rules: MEM-7, MEM-8 */
TEST(bad_scatters)
{
	struct bad_sge bad[16];
	struct buffer constant;
	struct ibv_sge sge;
	size_t n, i;

	set_up_pair();
	n = bad_sges(bad, &constant);
	for (i = 0; i < n; i++)
		bad_scatter(&bad[i].sge, bad[i].what);
	sge = buffer_sge(&constant, 0, 100);
	bad_scatter(&sge, "a region without local write");
	for (i = 0; i < SIZE; i++)
		require(!constant.bytes[i] && source.bytes[i] == 0xaa, "byte %zu was written", i);
	expect_alive(&pair);
}

/* ---- lengths ----------------------------------------------------------- */

/* Sums of lengths that don't fit 32 bits, or are more than a message may have. */
TEST(lengths_that_overflow)
{
	static const struct { const char *what; uint32_t lengths[3]; } cases[] = {
		{ "4 GiB, which is 0 in 32 bits", { 0x80000000, 0x80000000, 0 } },
		{ "4 GiB + 100", { 0x80000000, 0x80000000, 100 } },
		{ "8 GiB - 2", { 0xffffffff, 0xffffffff, 0 } },
		{ "2 GiB + 1", { 0x80000000, 1, 0 } },
		{ "4 GiB - 1", { 0xffffffff, 0, 0 } },
	};
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};
	struct ibv_sge sges[3];
	struct ibv_send_wr wr;
	size_t i, j, op;

	set_up_pair();
	for (op = 0; op < ARRAY_SIZE(opcodes); op++) {
		for (i = 0; i < ARRAY_SIZE(cases); i++) {
			for (j = 0; j < 3; j++)
				sges[j] = buffer_sge(&source, 0, cases[i].lengths[j]);
			note("opcode %d, %s", opcodes[op], cases[i].what);
			wr = target_wr(opcodes[op], sges, 3);
			failing_request(&wr, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, cases[i].what);
		}
	}
	expect_alive(&pair);
}

/* ---- READ depth -------------------------------------------------------- */

TEST(read_at_depth_0)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	set_up_pair();
	plan.rd_atomic = 0;
	sge = buffer_sge(&source, 0, 100);
	wr = target_wr(IBV_WR_RDMA_READ, &sge, 1);
	failing_request(&wr, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR, "READ");
	expect_alive(&pair);
}

/* More READs than may be outstanding wait for their turn. */
TEST(reads_beyond_depth)
{
	struct rc_pair shallow;
	struct ibv_sge sge;
	unsigned int i;

	set_up();
	plan.rd_atomic = 1;
	pair_open(&shallow, &plan);
	for (i = 0; i < 16; i++) {
		sge = buffer_sge(&source, i * 100, 100);
		target.bytes[i] = i;
		post_send(&shallow.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)target.bytes + i, target.mr->rkey);
	}
	for (i = 0; i < 16; i++)
		expect_wc(shallow.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
	for (i = 0; i < 16; i++)
		require(source.bytes[i * 100] == i, "READ %u got 0x%02x", i, source.bytes[i * 100]);
	pair_destroy(&shallow);
}

/* ---- flushing ---------------------------------------------------------- */

#define FLUSHED 12

static void post_to_be_flushed(struct rc *rc, unsigned int first)
{
	unsigned int i;

	/* Unsignalled ones complete, too, when they fail. */
	for (i = first; i < first + FLUSHED; i++) {
		post_send(rc, i, IBV_WR_SEND, i % 2 ? IBV_SEND_SIGNALED : 0, NULL, 0, 0);
		post_recv(rc, i, NULL);
	}
}

static void expect_flushed(struct rc *rc, unsigned int first)
{
	unsigned int i;

	for (i = first; i < first + FLUSHED; i++) {
		expect_wc(rc->scq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
		expect_wc(rc->rcq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	}
}

/* The peer has no receives, so nothing can complete but by flushing. */
/* Rules: CPL-1 */
TEST(flush_in_err)
{
	set_up_pair();
	post_to_be_flushed(&pair.a, 0);
	rc_modify(&pair.a, IBV_QPS_ERR, NULL, &plan);
	expect_flushed(&pair.a, 0);
	expect_no_wc(pair.a.scq, QUIET_MS);
	expect_no_wc(pair.a.rcq, 0);
}

TEST(flush_sends_posted_in_err)
{
	unsigned int i;

	set_up_pair();
	rc_modify(&pair.a, IBV_QPS_ERR, NULL, &plan);
	for (i = 0; i < FLUSHED; i++)
		post_send(&pair.a, i, IBV_WR_SEND, i % 2 ? IBV_SEND_SIGNALED : 0, NULL, 0, 0);
	for (i = 0; i < FLUSHED; i++)
		expect_wc(pair.a.scq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	expect_no_wc(pair.a.scq, QUIET_MS);
}

TEST(flush_recvs_posted_in_err)
{
	unsigned int i;

	set_up_pair();
	rc_modify(&pair.a, IBV_QPS_ERR, NULL, &plan);
	for (i = 0; i < FLUSHED; i++)
		post_recv(&pair.a, i, NULL);
	for (i = 0; i < FLUSHED; i++)
		expect_wc(pair.a.rcq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	expect_no_wc(pair.a.rcq, QUIET_MS);
}

/* In INIT there is nothing to flush but receives. */
TEST(flush_from_init)
{
	unsigned int i;

	set_up();
	pair_create(&pair, &plan);
	rc_modify(&pair.a, IBV_QPS_INIT, NULL, &plan);
	for (i = 0; i < FLUSHED; i++)
		post_recv(&pair.a, i, NULL);
	rc_modify(&pair.a, IBV_QPS_ERR, NULL, &plan);
	for (i = 0; i < FLUSHED; i++)
		expect_wc(pair.a.rcq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	expect_no_wc(pair.a.rcq, QUIET_MS);
}

/* What was before the failing request is done, what comes after is flushed. */
TEST(flush_after_failure)
{
	struct ibv_sge good, bad;
	unsigned int i;

	set_up_pair();
	good = buffer_sge(&source, 0, 100);
	bad = good;
	bad.lkey ^= 0x5a5a5a00;
	for (i = 0; i < FLUSHED; i++)
		post_recv(&pair.a, i, NULL);
	for (i = 0; i < FLUSHED; i++)
		write_to_target(&pair.a, i, i == 5 ? &bad : &good);
	for (i = 0; i < 5; i++)
		expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.a.scq, 5, IBV_WC_LOC_PROT_ERR, SOON_MS);
	for (i = 6; i < FLUSHED; i++)
		expect_wc(pair.a.scq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	for (i = 0; i < FLUSHED; i++)
		expect_wc(pair.a.rcq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	expect_no_wc(pair.a.scq, QUIET_MS);
	expect_no_wc(pair.a.rcq, 0);
	require(rc_state(&pair.a) == IBV_QPS_ERR, "state %d", rc_state(&pair.a));
}

/* Under traffic, and again and again: each exactly once, successes first. */
TEST(flush_under_traffic)
{
	struct ibv_sge sge;
	struct ibv_wc wc;
	unsigned int round, i;
	bool flushed;

	set_up();
	sge = buffer_sge(&source, 0, SIZE);
	for (round = 0; round < 30; round++) {
		pair_open(&pair, &plan);
		for (i = 0; i < FLUSHED; i++)
			write_to_target(&pair.a, i, &sge);
		usleep(round * 50);
		rc_modify(&pair.a, IBV_QPS_ERR, NULL, &plan);
		for (i = 0, flushed = false; i < FLUSHED; i++) {
			require(poll_within(pair.a.scq, &wc, SOON_MS), "%u did not complete", i);
			require(wc.wr_id == i, "completion of %llu, not %u",
				(unsigned long long)wc.wr_id, i);
			require(wc.status == IBV_WC_WR_FLUSH_ERR ||
				(wc.status == IBV_WC_SUCCESS && !flushed), "%u completed with \"%s\"",
				i, ibv_wc_status_str(wc.status));
			flushed |= wc.status != IBV_WC_SUCCESS;
		}
		expect_no_wc(pair.a.scq, 10);
		pair_destroy(&pair);
	}
}

/* Destroys while there is work to do, in bounded time. */
TEST(destroy_under_traffic)
{
	struct ibv_sge sge;
	unsigned int round, i;
	int64_t begin;

	set_up();
	sge = buffer_sge(&source, 0, SIZE);
	for (round = 0; round < 30; round++) {
		pair_open(&pair, &plan);
		for (i = 0; i < FLUSHED; i++) {
			write_to_target(&pair.a, i, &sge);
			post_send(&pair.b, i, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		}
		usleep(round * 50);
		begin = now_ns();
		if (round % 2) {
			rc_destroy(&pair.a);
			rc_destroy(&pair.b);
		} else {
			rc_destroy(&pair.b);
			rc_destroy(&pair.a);
		}
		require(now_ns() - begin < 5 * NS_PER_S, "it took %lld ms",
			(long long)((now_ns() - begin) / NS_PER_MS));
	}
}

/* ---- draining the send queue ------------------------------------------- */

static void enter_sqd(struct rc *rc)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	require_ok(ibv_modify_qp(rc->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
}

/* From RTR there are attributes to give; from SQD there are none. */
static void leave_sqd(struct rc *rc)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	require_ok(ibv_modify_qp(rc->qp, &attr, IBV_QP_STATE));
}

/* What has begun is finished, what has not waits for RTS. */
TEST(drain_and_go_on)
{
	enum { COUNT = 8 };
	unsigned int i, done;
	struct ibv_wc wc;

	set_up_pair();
	for (i = 0; i < COUNT; i++)
		post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	post_recv(&pair.b, 0, NULL);
	expect_wc(pair.a.scq, 0, IBV_WC_SUCCESS, SOON_MS);
	/* The second one is on its way: the peer keeps it waiting for a receive. */
	enter_sqd(&pair.a);
	for (i = 1; i < 2 * COUNT; i++)
		post_recv(&pair.b, i, NULL);
	require(async_event_within(&ends[0], IBV_EVENT_SQ_DRAINED, SOON_MS), "not drained");
	rc_wait_drained(&pair.a, 0);
	for (done = 1; poll_within(pair.a.scq, &wc, 0); done++)
		require(wc.wr_id == done && wc.status == IBV_WC_SUCCESS, "%u completed as \"%s\"",
			done, ibv_wc_status_str(wc.status));

	/* Nothing moves while it is drained. */
	for (i = COUNT; i < COUNT + 4; i++)
		post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_no_wc(pair.a.scq, QUIET_MS);

	leave_sqd(&pair.a);
	for (; done < COUNT + 4; done++)
		expect_wc(pair.a.scq, done, IBV_WC_SUCCESS, SOON_MS);
	for (i = 0; i < COUNT + 4; i++)
		expect_wc(pair.b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
	expect_no_wc(pair.a.scq, 20);
	expect_no_wc(pair.b.rcq, 0);
}

TEST(drain_when_idle)
{
	unsigned int i;

	set_up_pair();
	for (i = 0; i < 20; i++) {
		enter_sqd(&pair.a);
		require(async_event_within(&ends[0], IBV_EVENT_SQ_DRAINED, SOON_MS),
			"not drained, round %u", i);
		rc_wait_drained(&pair.a, 0);
		leave_sqd(&pair.a);
		expect_alive(&pair);
	}
}

/* A responder answers in SQD. */
/* Rules: STA-13 */
TEST(respond_when_drained)
{
	struct ibv_sge sge;

	set_up_pair();
	enter_sqd(&pair.b);
	require(async_event_within(&ends[1], IBV_EVENT_SQ_DRAINED, SOON_MS), "not drained");
	sge = buffer_sge(&source, 0, SIZE);
	write_to_target(&pair.a, 1, &sge);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_target(0xaa);
}

/* It can be left for RESET or ERR at any time, even while it drains. */
TEST(leave_while_draining)
{
	unsigned int i;

	set_up();
	for (i = 0; i < 2; i++) {
		pair_open(&pair, &plan);
		post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		rc_modify(&pair.a, IBV_QPS_SQD, NULL, &plan);
		rc_modify(&pair.a, i ? IBV_QPS_ERR : IBV_QPS_RESET, NULL, &plan);
		if (i) {
			expect_wc(pair.a.scq, 1, IBV_WC_WR_FLUSH_ERR, SOON_MS);
			expect_wc(pair.a.scq, 2, IBV_WC_WR_FLUSH_ERR, SOON_MS);
		}
		expect_no_wc(pair.a.scq, QUIET_MS);
		pair_destroy(&pair);
	}
}

/* ---- one device -------------------------------------------------------- */

/* Both ends of a connection on one device, and a queue pair connected to itself. */
TEST(loopback)
{
	struct buffer into;
	struct rc self;
	struct rc_address address;
	struct ibv_sge sge;
	size_t i;

	set_up();
	buffer_create(&into, &ends[0], SIZE,
		      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	rc_create(&self, &ends[0], &plan);
	self.psn = 0xffffff;
	address = rc_address(&self);
	rc_connect(&self, &address, &plan);

	sge = buffer_sge(&source, 0, SIZE);
	post_send(&self, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)into.bytes,
		  into.mr->rkey);
	expect_wc(self.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	require(!memcmp(source.bytes, into.bytes, SIZE), "WRITE brought wrong data");

	for (i = 0; i < SIZE; i++)
		into.bytes[i] = i * 7;
	post_send(&self, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, (uintptr_t)into.bytes,
		  into.mr->rkey);
	expect_wc(self.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	require(!memcmp(source.bytes, into.bytes, SIZE), "READ brought wrong data");

	memset(into.bytes, 0, SIZE);
	sge = buffer_sge(&into, 0, SIZE);
	post_recv(&self, 3, &sge);
	sge = buffer_sge(&source, 0, SIZE);
	post_send(&self, 4, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(self.scq, 4, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(self.rcq, 3, IBV_WC_SUCCESS, SOON_MS);
	require(!memcmp(source.bytes, into.bytes, SIZE), "SEND brought wrong data");
}

TEST_HARNESS_MAIN
