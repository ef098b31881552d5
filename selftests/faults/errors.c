// SPDX-License-Identifier: GPL-2.0
/*
 * What the peer does wrong, and how it ends: a receiver that is late, a peer
 * that is gone, access that was not granted, messages that don't fit.
 */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"
#include "rc.h"
#include "stream.h"

#define QUIET_MS 200
#define SIZE 65536

static struct rc_pair pair;
static struct rc_plan plan;
static struct buffer mine, theirs;
static const int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

static void open_devices(void)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	buffer_create(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&theirs, &ends[1], SIZE, all_access);
	memset(mine.bytes, 0x11, SIZE);
	memset(theirs.bytes, 0x22, SIZE);
}

static void set_up(void)
{
	open_devices();
	pair_open(&pair, &plan);
}

static void expect_bytes(const struct buffer *buffer, size_t from, size_t to, uint8_t value)
{
	size_t i;

	for (i = from; i < to; i++)
		require(buffer->bytes[i] == value, "byte %zu is 0x%02x", i, buffer->bytes[i]);
}

static int64_t ms_since(int64_t begin)
{
	return (now_ns() - begin) / NS_PER_MS;
}

static void send_empty(uint64_t wr_id)
{
	post_send(&pair.a, wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
}

/* Others, new ones, work. */
static void expect_alive(void)
{
	struct rc_pair fresh;
	struct ibv_sge sge = buffer_sge(&mine, 0, 10000);

	plan = default_plan;
	pair_open(&fresh, &plan);
	memset(mine.bytes, 0x77, SIZE);
	post_send(&fresh.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)theirs.bytes, theirs.mr->rkey);
	expect_wc(fresh.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_bytes(&theirs, 0, 10000, 0x77);
	pair_destroy(&fresh);
}

/* ---- a late receiver --------------------------------------------------- */

/* The code of the time that an RNR NAK asks for, and that time. */
#define RNR_CODE 26
#define RNR_MS 82

TEST(infinite_rnr_retries)
{
	struct buffer into;
	struct ibv_sge sge;

	open_devices();
	plan.min_rnr_timer = 14; /* 1.28 ms: many more than 7 retries */
	pair_open(&pair, &plan);
	buffer_create(&into, &ends[1], SIZE, IBV_ACCESS_LOCAL_WRITE);
	stream_fill(mine.bytes, SIZE, 5, 0);
	sge = buffer_sge(&mine, 0, SIZE);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	send_empty(2);
	expect_no_wc(pair.a.scq, 500);
	sge = buffer_sge(&into, 0, SIZE);
	post_recv(&pair.b, 3, &sge);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.b.rcq, 3, IBV_WC_SUCCESS, SOON_MS);
	require(stream_compare(into.bytes, SIZE, 5, 0) == SIZE, "wrong data");
	expect_no_wc(pair.a.scq, QUIET_MS);
	post_recv(&pair.b, 4, NULL);
	expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.b.rcq, 4, IBV_WC_SUCCESS, SOON_MS);
}

/* The requester waits each time for as long as it was asked to. */
TEST(finite_rnr_retries)
{
	static const unsigned int retries[] = { 0, 1, 3, 6 };
	int64_t begin, took, least;
	size_t i;

	open_devices();
	for (i = 0; i < ARRAY_SIZE(retries); i++) {
		plan.rnr_retry = retries[i];
		plan.min_rnr_timer = RNR_CODE;
		pair_open(&pair, &plan);
		begin = now_ns();
		send_empty(1);
		send_empty(2);
		expect_wc(pair.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR, SOON_MS);
		took = ms_since(begin);
		note("%u retries took %lld ms", retries[i], (long long)took);
		least = retries[i] * RNR_MS;
		require(took >= least - 2, "too soon");
		require(took <= least * 3 / 2 + 1000, "too late");
		expect_wc(pair.a.scq, 2, IBV_WC_WR_FLUSH_ERR, SOON_MS);
		expect_no_wc(pair.a.scq, 20);
		require(rc_state(&pair.a) == IBV_QPS_ERR, "state %d", rc_state(&pair.a));
		require(rc_state(&pair.b) == IBV_QPS_RTS, "the peer's state %d", rc_state(&pair.b));
		pair_destroy(&pair);
	}
	expect_alive();
}

/* Each message has all its retries. */
TEST(rnr_retries_start_anew)
{
	unsigned int i;

	open_devices();
	plan.rnr_retry = 3;
	plan.min_rnr_timer = RNR_CODE;
	pair_open(&pair, &plan);
	for (i = 0; i < 4; i++) {
		send_empty(i);
		usleep(RNR_MS * 1000 * 3 / 2); /* two retries for each */
		post_recv(&pair.b, i, NULL);
		expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
		expect_wc(pair.b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
	}
}

/* WRITEs need no receive, so they get there; one with immediate data waits. */
/* Rules: RNR-6 */
TEST(rnr_of_write_imm)
{
	struct ibv_sge sge;

	set_up();
	sge = buffer_sge(&mine, 0, SIZE);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)theirs.bytes, theirs.mr->rkey);
	post_send(&pair.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)theirs.bytes, theirs.mr->rkey);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_no_wc(pair.a.scq, QUIET_MS);
	post_recv(&pair.b, 3, NULL);
	expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.b.rcq, 3, IBV_WC_SUCCESS, SOON_MS);
}

/* ---- a peer that is gone ----------------------------------------------- */

/* QP timeout 14 is 67 ms.  The standard allows up to four times that. */
#define TIMEOUT_CODE 14
#define TIMEOUT_MS 67

static void expect_retries_exceeded(unsigned int retry_cnt, int64_t begin)
{
	int64_t took, least = (retry_cnt + 1) * TIMEOUT_MS - 5;
	unsigned int i;

	expect_wc(pair.a.scq, 1, IBV_WC_RETRY_EXC_ERR, least * 4 + 2000);
	took = ms_since(begin);
	note("%u retries took %lld ms", retry_cnt, (long long)took);
	require(took >= least, "too soon");
	for (i = 2; i < 8; i++)
		expect_wc(pair.a.scq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	expect_no_wc(pair.a.scq, 20);
	require(rc_state(&pair.a) == IBV_QPS_ERR, "state %d", rc_state(&pair.a));
}

/* Its queue pair is destroyed, its host answers nothing. */
TEST(retries_exceeded)
{
	static const unsigned int retries[] = { 0, 1, 3, 7 };
	struct ibv_sge sge;
	unsigned int i;
	size_t round;
	int64_t begin;

	open_devices();
	sge = buffer_sge(&mine, 0, SIZE);
	for (round = 0; round < ARRAY_SIZE(retries); round++) {
		plan.timeout = TIMEOUT_CODE;
		plan.retry_cnt = retries[round];
		pair_open(&pair, &plan);
		rc_destroy(&pair.b);
		begin = now_ns();
		for (i = 1; i < 8; i++)
			post_send(&pair.a, i, round % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				  IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
				  theirs.mr->rkey);
		expect_retries_exceeded(retries[round], begin);
		rc_destroy(&pair.a);
	}
	expect_alive();
}

/* Its network is gone: nothing gets there, or the address is no more to be found. */
static void blackout(bool on)
{
	if (on)
		shell("tc -n %s qdisc replace dev eth0 root netem loss 100%%", ends[1].ns);
	else
		shell("tc -n %s qdisc del dev eth0 root", ends[1].ns);
}

TEST(answers_are_lost)
{
	struct ibv_sge sge;
	unsigned int i;
	int64_t begin;

	open_devices();
	sge = buffer_sge(&mine, 0, 100);
	plan.retry_cnt = 2;
	plan.timeout = TIMEOUT_CODE;
	pair_open(&pair, &plan);
	blackout(true);
	begin = now_ns();
	for (i = 1; i < 8; i++)
		post_send(&pair.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)theirs.bytes, theirs.mr->rkey);
	expect_retries_exceeded(2, begin);
	blackout(false);
	expect_alive();
}

/* As long as there are retries left, an interruption is nothing but late. */
TEST(interruption)
{
	/* Its end takes a slow machine long. */
	int doublings = time_scale() > 1 ? 3 : 0;
	struct ibv_sge sge;

	open_devices();
	plan.timeout = TIMEOUT_CODE + doublings;
	plan.retry_cnt = 7;
	pair_open(&pair, &plan);
	blackout(true);
	stream_fill(mine.bytes, SIZE, 9, 0);
	sge = buffer_sge(&mine, 0, SIZE);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)theirs.bytes, theirs.mr->rkey);
	expect_no_wc(pair.a.scq, 3 * TIMEOUT_MS << doublings);
	blackout(false);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	require(stream_compare(theirs.bytes, SIZE, 9, 0) == SIZE, "wrong data");
}

/* Timeout 0: without end. */
TEST(infinite_timeout)
{
	set_up();
	plan.timeout = 0;
	plan.retry_cnt = 0;
	pair_open(&pair, &plan);
	rc_destroy(&pair.b);
	send_empty(1);
	expect_no_wc(pair.a.scq, 1500);
	rc_modify(&pair.a, IBV_QPS_ERR, NULL, &plan);
	expect_wc(pair.a.scq, 1, IBV_WC_WR_FLUSH_ERR, SOON_MS);
}

/* ---- access that was not granted --------------------------------------- */

static void expect_refused(enum ibv_wr_opcode opcode, uint32_t length, uint64_t addr, uint32_t rkey,
			   const char *what)
{
	struct ibv_sge sge = buffer_sge(&mine, 0, length);
	struct ibv_wc wc;

	note("opcode %d, %s", opcode, what);
	pair_open(&pair, &plan);
	post_recv(&pair.b, 9, NULL);
	post_send(&pair.a, 1, opcode, IBV_SEND_SIGNALED, &sge, addr, rkey);
	post_send(&pair.a, 2, IBV_WR_SEND, 0, NULL, 0, 0);
	require(poll_within(pair.a.scq, &wc, SOON_MS), "no completion");
	require(wc.wr_id == 1 && wc.status == IBV_WC_REM_ACCESS_ERR, "completion of %llu: \"%s\"",
		(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
	expect_wc(pair.a.scq, 2, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	/* The responder fails, too, and with it the receive, which the request may have taken. */
	require(poll_within(pair.b.rcq, &wc, SOON_MS), "no completion of the receive");
	require(wc.status == IBV_WC_WR_FLUSH_ERR ||
		(opcode == IBV_WR_RDMA_WRITE_WITH_IMM && wc.status == IBV_WC_REM_ACCESS_ERR),
		"the receive completed with \"%s\"", ibv_wc_status_str(wc.status));
	rc_wait_state(&pair.b, IBV_QPS_ERR, SOON_MS);
	rc_wait_state(&pair.a, IBV_QPS_ERR, SOON_MS);
	expect_bytes(&mine, 0, SIZE, 0x11);
	expect_bytes(&theirs, 0, SIZE, 0x22);
	pair_destroy(&pair);
}

static void access_error_event(struct end *end)
{
	struct pollfd wait = { .fd = end->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	do {
		require(poll(&wait, 1, SOON_MS) == 1, "no asynchronous event at the responder");
		require_ok(ibv_get_async_event(end->context, &event));
		ibv_ack_async_event(&event);
	} while (event.event_type == IBV_EVENT_GID_CHANGE || event.event_type == IBV_EVENT_COMM_EST);
	require(event.event_type == IBV_EVENT_QP_ACCESS_ERR, "asynchronous event \"%s\"",
		ibv_event_type_str(event.event_type));
	require(event.element.qp == pair.b.qp, "of another queue pair");
}

/* Rules: MEM-1, MEM-2, MEM-3, MEM-11, MEM-12 */
static void wrong_keys_and_ranges(enum ibv_wr_opcode opcode)
{
	struct buffer gone, alien;
	struct ibv_pd *pd;
	uint64_t start;
	uint32_t rkey;

	open_devices();
	start = (uintptr_t)theirs.bytes;
	rkey = theirs.mr->rkey;
	buffer_create(&gone, &ends[1], SIZE, all_access);
	pd = ends[1].pd;
	ends[1].pd = ibv_alloc_pd(ends[1].context);
	require(ends[1].pd, "ibv_alloc_pd: %s", strerror(errno));
	buffer_create(&alien, &ends[1], SIZE, all_access);
	ends[1].pd = pd;
	require_ok(ibv_dereg_mr(gone.mr));

	expect_refused(opcode, 100, start, rkey ^ 0x5a5a5a00, "an rkey that never was");
	expect_refused(opcode, 100, start, rkey ^ 1, "an rkey with another variant");
	expect_refused(opcode, 100, start, 0, "rkey 0");
	expect_refused(opcode, 100, start, UINT32_MAX, "rkey 2^32 - 1");
	expect_refused(opcode, 100, start - 1, rkey, "a byte before the region");
	expect_refused(opcode, 100, start + SIZE - 99, rkey, "a byte beyond the region");
	expect_refused(opcode, SIZE, start + 1, rkey, "all but the last packet in the region");
	expect_refused(opcode, 100, start + SIZE, rkey, "behind the region");
	expect_refused(opcode, 100, 0, rkey, "address 0");
	expect_refused(opcode, 100, UINT64_MAX - 50, rkey, "an end that wraps");
	expect_refused(opcode, 100, (uintptr_t)gone.bytes, gone.mr->rkey, "a region that is gone");
	expect_refused(opcode, 100, (uintptr_t)alien.bytes, alien.mr->rkey, "a region of another PD");
	expect_alive();
}

TEST(wrong_keys_and_ranges_write)
{
	wrong_keys_and_ranges(IBV_WR_RDMA_WRITE);
}

TEST(wrong_keys_and_ranges_write_imm)
{
	wrong_keys_and_ranges(IBV_WR_RDMA_WRITE_WITH_IMM);
}

TEST(wrong_keys_and_ranges_read)
{
	wrong_keys_and_ranges(IBV_WR_RDMA_READ);
}

/* Of a region which the peer may use in another way. */
/* Rules: MEM-4 */
TEST(no_permission)
{
	struct buffer readable, writable, local;

	open_devices();
	buffer_create(&readable, &ends[1], SIZE, IBV_ACCESS_REMOTE_READ);
	buffer_create(&writable, &ends[1], SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	buffer_create(&local, &ends[1], SIZE, IBV_ACCESS_LOCAL_WRITE);
	expect_refused(IBV_WR_RDMA_WRITE, 100, (uintptr_t)readable.bytes, readable.mr->rkey,
		       "for reading only");
	expect_refused(IBV_WR_RDMA_READ, 100, (uintptr_t)writable.bytes, writable.mr->rkey,
		       "for writing only");
	expect_refused(IBV_WR_RDMA_WRITE, 100, (uintptr_t)local.bytes, local.mr->rkey,
		       "for local use only");
	expect_refused(IBV_WR_RDMA_READ, 100, (uintptr_t)local.bytes, local.mr->rkey,
		       "for local use only");
	expect_bytes(&readable, 0, SIZE, 0);
	expect_bytes(&writable, 0, SIZE, 0);
	expect_bytes(&local, 0, SIZE, 0);
	expect_alive();
}

/* The responder is told by an event. */
TEST(access_error_is_reported)
{
	struct ibv_sge sge;

	set_up();
	sge = buffer_sge(&mine, 0, 100);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
		  theirs.mr->rkey ^ 1);
	expect_wc(pair.a.scq, 1, IBV_WC_REM_ACCESS_ERR, SOON_MS);
	access_error_event(&ends[1]);
	expect_no_async_event(&ends[0]);
}

/* The queue pair itself forbids what the region would allow. */
/* Rules: MEM-5 */
TEST(no_permission_of_the_qp)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct ibv_sge sge;
	struct ibv_wc wc;
	size_t i;

	open_devices();
	plan.access = IBV_ACCESS_LOCAL_WRITE;
	sge = buffer_sge(&mine, 0, 100);
	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		pair_open(&pair, &plan);
		post_send(&pair.a, 1, opcodes[i], IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)theirs.bytes, theirs.mr->rkey);
		require(poll_within(pair.a.scq, &wc, SOON_MS), "no completion");
		require(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR,
			"opcode %d: \"%s\"", opcodes[i], ibv_wc_status_str(wc.status));
		expect_bytes(&theirs, 0, SIZE, 0x22);
		expect_bytes(&mine, 0, SIZE, 0x11);
		pair_destroy(&pair);
	}
	plan = default_plan;
	expect_alive();
}

/* ---- messages that don't fit ------------------------------------------- */

static void one_too_long(uint32_t length, uint32_t room)
{
	struct ibv_sge sge;
	struct buffer into;

	note("%u bytes into %u", length, room);
	pair_open(&pair, &plan);
	buffer_create(&into, &ends[1], SIZE, IBV_ACCESS_LOCAL_WRITE);
	sge = buffer_sge(&into, 0, room);
	post_recv(&pair.b, 1, room ? &sge : NULL);
	post_recv(&pair.b, 2, NULL);
	sge = buffer_sge(&mine, 0, length);
	post_send(&pair.a, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	post_send(&pair.a, 4, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(pair.a.scq, 3, IBV_WC_REM_INV_REQ_ERR, SOON_MS);
	expect_wc(pair.a.scq, 4, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	expect_wc(pair.b.rcq, 1, IBV_WC_LOC_LEN_ERR, SOON_MS);
	expect_wc(pair.b.rcq, 2, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	rc_wait_state(&pair.b, IBV_QPS_ERR, SOON_MS);
	expect_bytes(&into, room, SIZE, 0);
	pair_destroy(&pair);
	buffer_destroy(&into);
}

/* Rules: ERR-18 */
TEST(too_long_for_the_receive)
{
	open_devices();
	one_too_long(101, 100);
	one_too_long(4097, 4096);
	one_too_long(20000, 5000);
	one_too_long(SIZE, SIZE - 1);
	one_too_long(1, 0);
	expect_alive();
}

/* A packet may not be longer than the responder's path MTU. */
TEST(requester_with_a_larger_mtu)
{
	struct rc_plan small = default_plan, large = default_plan;
	struct rc_address a, b;
	struct ibv_sge sge;

	open_devices();
	small.mtu = IBV_MTU_512;
	large.mtu = IBV_MTU_1024;
	pair_create(&pair, &plan);
	a = rc_address(&pair.a);
	b = rc_address(&pair.b);
	rc_connect(&pair.a, &b, &large);
	rc_connect(&pair.b, &a, &small);
	sge = buffer_sge(&mine, 0, 2000);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
		  theirs.mr->rkey);
	expect_wc(pair.a.scq, 1, IBV_WC_REM_INV_REQ_ERR, SOON_MS);
	expect_bytes(&theirs, 0, SIZE, 0x22);
	expect_alive();
}

/* A responder without resources for READs. */
TEST(read_that_is_not_served)
{
	struct rc_plan none = default_plan;
	struct rc_address a, b;
	struct ibv_sge sge;
	struct ibv_wc wc;

	open_devices();
	none.rd_atomic = 0;
	pair_create(&pair, &plan);
	a = rc_address(&pair.a);
	b = rc_address(&pair.b);
	rc_connect(&pair.a, &b, &plan);
	rc_connect(&pair.b, &a, &none);
	sge = buffer_sge(&mine, 0, 100);
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
		  theirs.mr->rkey);
	require(poll_within(pair.a.scq, &wc, SOON_MS), "no completion");
	require(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR, "\"%s\"",
		ibv_wc_status_str(wc.status));
	expect_bytes(&mine, 0, SIZE, 0x11);
	expect_alive();
}

/* A receive whose memory is gone by the time that it is needed. */
TEST(receive_without_memory)
{
	struct ibv_sge sge;
	struct buffer into;

	set_up();
	buffer_create(&into, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	sge = buffer_sge(&into, 0, 4096);
	post_recv(&pair.b, 1, &sge);
	require_ok(ibv_dereg_mr(into.mr));
	sge = buffer_sge(&mine, 0, 100);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(pair.a.scq, 2, IBV_WC_REM_OP_ERR, SOON_MS);
	expect_wc(pair.b.rcq, 1, IBV_WC_LOC_PROT_ERR, SOON_MS);
	expect_bytes(&into, 0, 4096, 0);
	expect_alive();
}

TEST_HARNESS_MAIN
