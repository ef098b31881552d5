// SPDX-License-Identifier: GPL-2.0
/*
 * A process that asks for more than anybody can do: it posts without end, polls never, has
 * its peer repeat itself, and takes all that there is of something.  It gets errors that
 * say so, its own queues overflow, and what it has goes with it.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"
#include "raw.h"
#include "rc.h"
#include "ud.h"

#define QKEY 0x11111111
#define DEPTH 256

static struct rc_plan plan;
static struct buffer near, far;

static void set_up(size_t size)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cap.max_send_wr = plan.cap.max_recv_wr = DEPTH;
	plan.cqe = 4 * DEPTH;
	plan.rd_atomic = 16;
	buffer_create(&near, &ends[0], size, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], size, plan.access);
}

static bool is_time(int64_t begin)
{
	return now_ns() < begin + chance_ns();
}

/* ---- completion queues that nobody polls ------------------------------- */

/* How often the error of the CQ is reported, which must be the only event. */
static unsigned int cq_errors(struct end *end, const struct ibv_cq *cq)
{
	struct ibv_async_event event;
	unsigned int count = 0;

	while (!ibv_get_async_event(end->context, &event)) {
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_GID_CHANGE)
			continue;
		require(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq,
			"asynchronous event \"%s\"", ibv_event_type_str(event.event_type));
		count++;
	}
	return count;
}

/* A neighbour in the same process, with completion queues of its own. */
static void neighbour_works(struct rc_pair *neighbour)
{
	post_recv(&neighbour->b, 1, NULL);
	post_send(&neighbour->a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(neighbour->a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(neighbour->b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
}

/*
 * With a CQ that is full the queue pair goes on, as slots of its queues come back without
 * completions; the error is reported once.
 */
static void never_polls(bool receiver)
{
	struct rc_pair pair, neighbour;
	struct ibv_sge sge;
	unsigned int posted = 0, refused = 0;
	struct ibv_cq *cq;
	int64_t begin;
	int err;

	set_up(4096);
	pair_open(&neighbour, &plan);
	plan.cqe = 4;
	pair_open(&pair, &plan);
	cq = receiver ? pair.b.rcq : pair.a.scq;
	sge = buffer_sge(&near, 0, 100);
	for (begin = now_ns(); is_time(begin);) {
		struct ibv_recv_wr *bad, recv = {};

		if (receiver && ibv_post_recv(pair.b.qp, &recv, &bad))
			refused++;
		err = try_post_send(&pair.a, posted, receiver ? IBV_WR_SEND : IBV_WR_RDMA_WRITE,
				    receiver ? 0 : IBV_SEND_SIGNALED, receiver ? NULL : &sge,
				    (uintptr_t)far.bytes, far.mr->rkey);
		require(!err || err == ENOMEM, "ibv_post_send: %s", strerror(err));
		posted += !err;
		refused += err == ENOMEM;
	}
	note("%u posted, %u refused", posted, refused);
	require(posted > 2 * DEPTH, "too few");
	require(cq_errors(receiver ? &ends[1] : &ends[0], cq) == 1, "the overflow was not said once");
	require(!cq_errors(receiver ? &ends[0] : &ends[1], NULL), "an event of the other end");
	neighbour_works(&neighbour);
	pair_destroy(&pair);
	neighbour_works(&neighbour);
}

TEST(never_polls_sends) { never_polls(false); }
TEST(never_polls_recvs) { never_polls(true); }

/* ---- connected floods -------------------------------------------------- */

#define PAIRS 8

static struct rc_pair pairs[PAIRS];

static void open_pairs(void)
{
	int i;

	for (i = 0; i < PAIRS; i++)
		pair_open(&pairs[i], &plan);
}

/* Long READs from many at a time: many responses for each request. */
TEST(reads_without_end)
{
	struct ibv_sge sge;
	unsigned int done = 0;
	int64_t begin;
	int i;

	set_up(1 << 20);
	open_pairs();
	sge = buffer_sge(&near, 0, near.size);
	for (begin = now_ns(); is_time(begin);) {
		for (i = 0; i < PAIRS; i++) {
			try_post_send(&pairs[i].a, 0, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
				      (uintptr_t)far.bytes, far.mr->rkey);
			done += drain_cq(pairs[i].a.scq);
		}
	}
	note("%u READs of a megabyte", done);
	require(done, "none");
	/* The process ends with hundreds of them under way. */
}

/* Receivers that are never ready, and tell so after the shortest time. */
TEST(nobody_receives)
{
	unsigned int posted = 0;
	int64_t begin;
	int i;

	set_up(4096);
	plan.min_rnr_timer = 1;
	open_pairs();
	/* As long as it takes, too: all that is sent again leaves a slow machine little time. */
	for (begin = now_ns(); is_time(begin) || posted < PAIRS * DEPTH / 2;) {
		for (i = 0; i < PAIRS; i++)
			posted += !try_post_send(&pairs[i].a, 0, IBV_WR_SEND, IBV_SEND_SIGNALED,
						 NULL, 0, 0);
		require(now_ns() < begin + 30 * chance_ns(), "only %u posted", posted);
	}
	note("%u posted", posted);
	for (i = 0; i < PAIRS; i++) {
		require(rc_state(&pairs[i].a) == IBV_QPS_RTS, "it gave up");
		require(!drain_cq(pairs[i].a.scq), "a completion without a receive");
	}
	/* They were only late. */
	post_recv(&pairs[0].b, 1, NULL);
	expect_wc(pairs[0].a.scq, 0, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pairs[0].b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
}

/* Peers that are not there, with the shortest timeout, again and again. */
TEST(nobody_answers)
{
	struct rc_address nobody;
	unsigned int failed = 0;
	int64_t begin;
	int i;

	set_up(4096);
	plan.timeout = 1;
	plan.cap.max_send_wr = 16;
	for (i = 0; i < PAIRS; i++)
		pair_create(&pairs[i], &plan);
	nobody = rc_address(&pairs[0].b);
	for (i = 0; i < PAIRS; i++) {
		/* A queue pair that takes no packets yet. */
		nobody.qpn = pairs[i].b.qp->qp_num;
		rc_connect(&pairs[i].a, &nobody, &plan);
	}
	for (begin = now_ns(); is_time(begin);) {
		for (i = 0; i < PAIRS; i++) {
			while (!try_post_send(&pairs[i].a, 0, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0,
					      0))
				;
			if (rc_state(&pairs[i].a) != IBV_QPS_ERR)
				continue;
			failed += drain_cq(pairs[i].a.scq);
			nobody.qpn = pairs[i].b.qp->qp_num;
			rc_modify(&pairs[i].a, IBV_QPS_RESET, NULL, &plan);
			drain_cq(pairs[i].a.scq);
			rc_connect(&pairs[i].a, &nobody, &plan);
		}
	}
	note("%u failed", failed);
	require(failed > 16, "too few");
}

/* One of two fills every receive that they share. */
TEST(takes_every_receive)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
	struct ibv_recv_wr *bad, recv = {};
	unsigned int posted = 0, taken = 0;
	int64_t begin;
	int i;

	set_up(4096);
	plan.srq = ibv_create_srq(ends[1].pd, &init);
	require(plan.srq, "ibv_create_srq: %s", strerror(errno));
	for (i = 0; i < 2; i++)
		pair_open(&pairs[i], &plan);
	for (begin = now_ns(); is_time(begin);) {
		while (!ibv_post_srq_recv(plan.srq, &recv, &bad))
			;
		while (!try_post_send(&pairs[0].a, 0, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0))
			posted++;
		drain_cq(pairs[0].a.scq);
		taken += drain_cq(pairs[0].b.rcq);
	}
	note("%u sent, %u taken", posted, taken);
	require(taken > DEPTH, "too few");
	/* The other one gets its share when there is one. */
	post_send(&pairs[1].a, 7, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	for (begin = now_ns(); !drain_cq(pairs[1].b.rcq); drain_cq(pairs[0].b.rcq)) {
		require(now_ns() < begin + SOON_MS * NS_PER_MS, "it starves");
		ibv_post_srq_recv(plan.srq, &recv, &bad);
	}
}

/* ---- datagrams --------------------------------------------------------- */

#define SENDERS 4

/* To one that has no receives, with a wrong Q_Key, to nobody, and to one that never polls. */
TEST(datagrams_without_end)
{
	struct rc senders[SENDERS], idle, full;
	struct ibv_sge sge, room;
	struct ibv_recv_wr *bad, recv = { .sg_list = &room, .num_sge = 1 };
	unsigned int sent = 0;
	struct ibv_ah *ah;
	int64_t begin;
	int i;

	set_up(8192);
	ud_create(&idle, &ends[1], &plan.cap, 4);
	ud_create(&full, &ends[1], &plan.cap, 4);
	ud_start(&idle, QKEY);
	ud_start(&full, QKEY);
	for (i = 0; i < SENDERS; i++) {
		ud_create(&senders[i], &ends[0], &plan.cap, 4 * DEPTH);
		ud_start(&senders[i], QKEY);
	}
	sge = buffer_sge(&near, 0, 1000);
	room = buffer_sge(&far, 0, 2000);
	ah = ah_create(&ends[0], &ends[1]);
	for (begin = now_ns(); is_time(begin);) {
		ibv_post_recv(full.qp, &recv, &bad);
		for (i = 0; i < SENDERS; i++)
			sent += !ud_post(&senders[i], ah,
					 i == 2 ? 0xfffff0 : i == 3 ? full.qp->qp_num : idle.qp->qp_num,
					 i == 1 ? QKEY + 1 : QKEY, 0, 0, &sge);
	}
	note("%u datagrams", sent);
	require(sent > 200, "too few");
	require(cq_errors(&ends[1], full.rcq) == 1, "the overflow was not said once");
}

/* ---- calls without end ------------------------------------------------- */

static atomic_bool stop;
static atomic_uint rung;
static struct rc_pair busy;

static void *rings(void *unused)
{
	(void)unused;
	while (!stop) {
		raw_doorbell(busy.a.qp->context->cmd_fd, busy.a.qp->handle);
		ibv_req_notify_cq(busy.a.scq, 0);
		rung++;
	}
	return NULL;
}

/* Four threads that ring the doorbell, with nothing or with something posted. */
TEST(doorbells_without_end)
{
	pthread_t threads[4];
	unsigned int done = 0;
	int64_t begin;
	size_t i;

	set_up(4096);
	pair_open(&busy, &plan);
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		require_ok(pthread_create(&threads[i], NULL, rings, NULL));
	for (begin = now_ns(); is_time(begin);) {
		try_post_send(&busy.a, 0, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0, 0);
		done += drain_cq(busy.a.scq);
	}
	stop = true;
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	note("%u doorbells, %u requests", rung, done);
	require(rung > 1000 && done > 10, "too few");
}

/* ---- limits ------------------------------------------------------------ */

/* Root may pin what it likes: so this is not root's to do any more. */
static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	require_sys(syscall(SYS_capget, &header, data));
	data[0].effective &= ~(1U << CAP_IPC_LOCK);
	data[0].permitted &= ~(1U << CAP_IPC_LOCK);
	require_sys(syscall(SYS_capset, &header, data));
}

#define LOCKED (1 << 20)
#define PIECE (64 << 10)

/* What is pinned counts, and what is not pinned any more does not. */
TEST(memlock_limit)
{
	struct rlimit limit = { LOCKED, LOCKED };
	struct ibv_mr *mrs[LOCKED / PIECE + 1];
	unsigned int count = 0, round;
	uint8_t *bytes;

	/* Whose credentials change after it has opened a device may not use it. */
	require_sys(setrlimit(RLIMIT_MEMLOCK, &limit));
	drop_ipc_lock();
	name_ends_from_environment();
	open_ends();
	bytes = mmap(NULL, 4 * LOCKED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	errno = 0;
	require(!ibv_reg_mr(ends[0].pd, bytes, 2 * LOCKED, 0) && errno == ENOMEM,
		"more than the limit: %s", strerror(errno));
	for (round = 0; round < 3; round++) {
		for (count = 0; count < ARRAY_SIZE(mrs); count++) {
			mrs[count] = ibv_reg_mr(ends[0].pd, bytes + count * PIECE, PIECE, 0);
			if (!mrs[count])
				break;
		}
		require(errno == ENOMEM, "the limit: %s", strerror(errno));
		/* The library may have some of its own. */
		require(count <= LOCKED / PIECE && count >= LOCKED / PIECE - 2, "%u pieces of %u",
			count, LOCKED / PIECE);
		require(raw_rereg_mr(mrs[0], IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bytes, LOCKED,
				     0) == ENOMEM, "more by another way");
		/* What is registered anew is there twice meanwhile. */
		require_ok(ibv_dereg_mr(mrs[--count]));
		require_ok(raw_rereg_mr(mrs[0], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					IBV_ACCESS_LOCAL_WRITE));
		while (count--)
			require_ok(ibv_dereg_mr(mrs[count]));
	}
}

/* As many contexts as a process may have files, each with objects. */
TEST(contexts_without_end)
{
	struct rlimit limit = { 300, 300 };
	unsigned int count;
	struct end end;

	name_ends_from_environment();
	open_ends();
	end = ends[0];
	require_sys(setrlimit(RLIMIT_NOFILE, &limit));
	for (count = 0;; count++) {
		struct ibv_context *context = ibv_open_device(end.context->device);

		if (!context)
			break;
		require(ibv_alloc_pd(context), "ibv_alloc_pd: %s", strerror(errno));
		require(ibv_create_cq(context, 10, NULL, NULL, 0), "ibv_create_cq: %s",
			strerror(errno));
	}
	note("%u contexts: %s", count, strerror(errno));
	require(errno == EMFILE && count > 50, "that is not the limit");
}

TEST_HARNESS_MAIN
