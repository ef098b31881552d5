// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: events and what asks for them, and what happens when there
 * is no more room.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"
#include "rc.h"

/* How long to look for an event that must not come. */
#define QUIET_MS 200

static struct rc_pair pair;
static struct rc_plan plan;
static struct ibv_comp_channel *channel;

/* Events of the CQs of ends[1], the receiver. */
static void set_up(void)
{
	struct rc_address a, b;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	channel = ibv_create_comp_channel(ends[1].context);
	require(channel, "ibv_create_comp_channel: %s", strerror(errno));
	require_sys(fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	rc_create(&pair.a, &ends[0], &plan);
	plan.channel = channel;
	rc_create(&pair.b, &ends[1], &plan);
	a = rc_address(&pair.a);
	b = rc_address(&pair.b);
	rc_connect(&pair.a, &b, &plan);
	rc_connect(&pair.b, &a, &plan);
}

/* Returns the CQ of the next event, NULL if there is none in time. */
static struct ibv_cq *event_within(int timeout_ms)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&wait, 1, timeout_ms) != 1)
		return NULL;
	require_sys(ibv_get_cq_event(channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	return cq;
}

static void expect_event(struct ibv_cq *cq, const char *why)
{
	struct ibv_cq *got = event_within(SOON_MS);

	require(got, "no event: %s", why);
	require(got == cq, "an event of another CQ: %s", why);
}

static void expect_no_event(const char *why)
{
	require(!event_within(QUIET_MS), "an event: %s", why);
}

static void send_empty(uint64_t wr_id, unsigned int flags)
{
	post_recv(&pair.b, wr_id, NULL);
	post_send(&pair.a, wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED | flags, NULL, 0, 0);
	expect_wc(pair.a.scq, wr_id, IBV_WC_SUCCESS, SOON_MS);
}

static void take(uint64_t wr_id)
{
	expect_wc(pair.b.rcq, wr_id, IBV_WC_SUCCESS, SOON_MS);
}

/* Rules: CPL-18 */
TEST(arm_once)
{
	set_up();
	send_empty(1, 0);
	take(1);
	expect_no_event("it was not armed");

	require_ok(ibv_req_notify_cq(pair.b.rcq, 0));
	expect_no_event("nothing came yet");
	send_empty(2, 0);
	expect_event(pair.b.rcq, "armed");
	take(2);

	send_empty(3, 0);
	take(3);
	expect_no_event("it was armed only once");

	require_ok(ibv_req_notify_cq(pair.b.rcq, 0));
	require_ok(ibv_req_notify_cq(pair.b.rcq, 0));
	send_empty(4, 0);
	send_empty(5, 0);
	expect_event(pair.b.rcq, "armed twice");
	expect_no_event("one event for one arming, however often");
	take(4);
	take(5);
}

/* Rules: CPL-16 */
TEST(solicited_only)
{
	set_up();
	require_ok(ibv_req_notify_cq(pair.b.rcq, 1));
	send_empty(1, 0);
	take(1);
	expect_no_event("not solicited");
	send_empty(2, IBV_SEND_SOLICITED);
	expect_event(pair.b.rcq, "solicited");
	take(2);
	send_empty(3, IBV_SEND_SOLICITED);
	take(3);
	expect_no_event("not armed");
}

/* Any completion is the stronger wish. */
/* Rules: CPL-17 */
TEST(solicited_after_any)
{
	set_up();
	require_ok(ibv_req_notify_cq(pair.b.rcq, 0));
	require_ok(ibv_req_notify_cq(pair.b.rcq, 1));
	send_empty(1, 0);
	expect_event(pair.b.rcq, "armed for any completion");
	take(1);
}

/* The flag counts in the message that takes a receive, also in a WRITE. */
TEST(solicited_write_imm)
{
	struct buffer target;

	set_up();
	buffer_create(&target, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	require_ok(ibv_req_notify_cq(pair.b.rcq, 1));
	post_recv(&pair.b, 1, NULL);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, NULL,
		  (uintptr_t)target.bytes, target.mr->rkey);
	take(1);
	expect_no_event("not solicited");
	post_recv(&pair.b, 2, NULL);
	post_send(&pair.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
		  NULL, (uintptr_t)target.bytes, target.mr->rkey);
	expect_event(pair.b.rcq, "solicited");
	take(2);
}

/* A large message asks for its event once, at its end. */
TEST(solicited_large)
{
	struct buffer source, target;
	struct ibv_sge sge;

	set_up();
	buffer_create(&source, &ends[0], 100000, 0);
	buffer_create(&target, &ends[1], 100000, IBV_ACCESS_LOCAL_WRITE);
	sge = buffer_sge(&target, 0, 100000);
	post_recv(&pair.b, 1, &sge);
	require_ok(ibv_req_notify_cq(pair.b.rcq, 1));
	sge = buffer_sge(&source, 0, 100000);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, &sge, 0, 0);
	expect_event(pair.b.rcq, "solicited");
	take(1);
	expect_no_event("it was armed only once");
}

/* Errors count as solicited. */
/* Rules: CPL-15 */
TEST(solicited_error)
{
	set_up();
	post_recv(&pair.b, 1, NULL);
	require_ok(ibv_req_notify_cq(pair.b.rcq, 1));
	rc_modify(&pair.b, IBV_QPS_ERR, NULL, &plan);
	expect_event(pair.b.rcq, "flushed");
	expect_wc(pair.b.rcq, 1, IBV_WC_WR_FLUSH_ERR, SOON_MS);
}

TEST(two_queues_on_a_channel)
{
	set_up();
	require_ok(ibv_req_notify_cq(pair.b.rcq, 0));
	require_ok(ibv_req_notify_cq(pair.b.scq, 0));
	send_empty(1, 0);
	expect_event(pair.b.rcq, "received");
	take(1);
	expect_no_event("nothing was sent");
	post_recv(&pair.a, 2, NULL);
	post_send(&pair.b, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_event(pair.b.scq, "sent");
	expect_wc(pair.b.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	expect_no_event("nothing was received");
}

/* One side arms, polls and sleeps; no wake-up may be lost. */
TEST(ping_pong_by_events)
{
	unsigned int i;

	set_up();
	for (i = 0; i < 300; i++) {
		post_recv(&pair.b, i, NULL);
		require_ok(ibv_req_notify_cq(pair.b.rcq, 0));
		post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		expect_event(pair.b.rcq, "ping");
		take(i);
		expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
	}
}

TEST(event_of_every_vector)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct rc_address address;
	struct rc self;
	int vector;

	set_up();
	init.cap = plan.cap;
	for (vector = 0; vector < ends[1].context->num_comp_vectors; vector++) {
		self = (struct rc){ .end = &ends[1] };
		self.scq = self.rcq = ibv_create_cq(ends[1].context, 16, NULL, channel, vector);
		require(self.scq, "vector %d: %s", vector, strerror(errno));
		init.send_cq = init.recv_cq = self.scq;
		self.qp = ibv_create_qp(ends[1].pd, &init);
		require(self.qp, "ibv_create_qp: %s", strerror(errno));
		address = rc_address(&self);
		rc_connect(&self, &address, &plan);
		require_ok(ibv_req_notify_cq(self.scq, 0));
		post_recv(&self, 1, NULL);
		post_send(&self, 1, IBV_WR_SEND, 0, NULL, 0, 0);
		expect_event(self.scq, "received");
		expect_wc(self.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
		require_ok(ibv_destroy_qp(self.qp));
		require_ok(ibv_destroy_cq(self.scq));
	}
}

/* ---- overflow ---------------------------------------------------------- */

/* The error of the CQ is reported; the one of its QP may be. */
static void expect_cq_error(struct end *end, struct ibv_cq *cq)
{
	struct pollfd wait = { .fd = end->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	for (;;) {
		require(poll(&wait, 1, SOON_MS) == 1, "the overflow was not reported");
		if (ibv_get_async_event(end->context, &event))
			continue;
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			require(event.element.cq == cq, "the error of another CQ was reported");
			return;
		}
		require(event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_GID_CHANGE,
			"asynchronous event \"%s\"", ibv_event_type_str(event.event_type));
	}
}

/*
 * What is in the queue stays as it was: the first completions, in order. The device may be at the
 * later ones still: as they are polled there is room again, for some after those that were lost.
 */
static void expect_first(struct ibv_cq *cq, unsigned int posted, unsigned int room)
{
	unsigned int i, next = 0;
	struct ibv_wc wc;

	for (i = 0; ibv_poll_cq(cq, 1, &wc) > 0; i++) {
		require(wc.wr_id == i || (i >= room && wc.wr_id >= next),
			"completion %u is of %llu", i, (unsigned long long)wc.wr_id);
		require(wc.wr_id < posted && wc.status == IBV_WC_SUCCESS, "completion %u of %llu: \"%s\"",
			i, (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
		next = wc.wr_id + 1;
	}
	require(i < posted, "all %u came out, and the queue is said to have overflowed", i);
	require(i >= room, "only %u completions, where there is room for %u", i, room);
}

static void another_pair_works(void)
{
	struct rc_pair fresh;

	plan = default_plan;
	pair_open(&fresh, &plan);
	post_recv(&fresh.b, 1, NULL);
	post_send(&fresh.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(fresh.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(fresh.b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
	pair_destroy(&fresh);
}

/* Nobody polls while more complete than there is room for. */
static void overflow(bool receiver)
{
	unsigned int i, posted;
	struct ibv_cq *cq;
	struct end *end;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cqe = 4;
	plan.cap.max_send_wr = plan.cap.max_recv_wr = 256;
	pair_open(&pair, &plan);
	cq = receiver ? pair.b.rcq : pair.a.scq;
	end = receiver ? &ends[1] : &ends[0];
	posted = cq->cqe + 20;
	require(posted < 256, "a CQ for 4 entries has room for %d", cq->cqe);
	for (i = 0; i < posted; i++)
		post_recv(&pair.b, i, NULL);
	for (i = 0; i < posted; i++)
		post_send(&pair.a, i, IBV_WR_SEND, receiver ? 0 : IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_cq_error(end, cq);
	expect_first(cq, posted, cq->cqe);
	another_pair_works();
}

/* Rules: CPL-19 */
TEST(overflow_of_sends)
{
	overflow(false);
}

/* Rules: CPL-19 */
TEST(overflow_of_recvs)
{
	overflow(true);
}

/* As many as there is room for are no overflow. */
/* Rules: CPL-20 */
TEST(full_is_not_overflow)
{
	unsigned int i, round;
	int room;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cqe = 4;
	plan.cap.max_send_wr = plan.cap.max_recv_wr = 256;
	pair_open(&pair, &plan);
	room = pair.a.scq->cqe;
	for (round = 0; round < 5; round++) {
		for (i = 0; (int)i < room; i++)
			post_recv(&pair.b, i, NULL);
		for (i = 0; (int)i < room; i++)
			post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		usleep(50000); /* so that the queue has a chance to be full */
		for (i = 0; (int)i < room; i++) {
			expect_wc(pair.b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
			expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
		}
	}
	expect_no_async_event(&ends[0]);
	expect_no_async_event(&ends[1]);
}

/* ---- resizing ---------------------------------------------------------- */

/* Messages 'from' to 'to', none of which is polled. */
static void complete(unsigned int from, unsigned int to)
{
	unsigned int i;

	for (i = from; i < to; i++) {
		post_recv(&pair.b, i, NULL);
		post_send(&pair.a, i, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
	}
}

static void expect_received(unsigned int from, unsigned int to)
{
	unsigned int i;

	for (i = from; i < to; i++)
		expect_wc(pair.b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
}

/* What was not polled is still there, in order, and the queue is as large as it says. */
TEST(resize)
{
	int room;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cqe = 8;
	plan.cap.max_send_wr = plan.cap.max_recv_wr = 64;
	pair_open(&pair, &plan);
	/* Neither starts at the first slot. */
	complete(0, 5);
	expect_received(0, 5);
	complete(5, 11);
	require_ok(ibv_resize_cq(pair.b.rcq, 30));
	room = pair.b.rcq->cqe;
	require(room >= 30, "room for %d", room);
	complete(11, 5 + room);
	expect_received(5, 5 + room);
	complete(0, 3);
	require_ok(ibv_resize_cq(pair.b.rcq, 4));
	expect_received(0, 3);
	expect_no_wc(pair.b.rcq, 0);
	complete(3, 3 + pair.b.rcq->cqe);
	expect_received(3, 3 + pair.b.rcq->cqe);
	expect_no_async_event(&ends[1]);
}

TEST(resize_refused)
{
	int error, room;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	pair_open(&pair, &plan);
	room = pair.b.rcq->cqe;
	complete(0, 8);
	error = ibv_resize_cq(pair.b.rcq, 4);
	require(error == EINVAL, "fewer than it holds: %s", strerror(error));
	error = ibv_resize_cq(pair.b.rcq, ends[1].attr.max_cqe + 1);
	require(error == EINVAL, "more than may be: %s", strerror(error));
	require(pair.b.rcq->cqe == room, "its size is another one");
	expect_received(0, 8);
	complete(8, 10);
	expect_received(8, 10);
}

/* While completions come in, it changes its size again and again. */
TEST(resize_under_traffic)
{
	static const int sizes[] = { 64, 200, 33, 1000, 150 };
	unsigned int posted = 0, polled, resized = 0;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cqe = 64;
	plan.cap.max_send_wr = plan.cap.max_recv_wr = 32;
	pair_open(&pair, &plan);
	for (polled = 0; polled < 1000; polled++) {
		for (; posted < polled + 16; posted++) {
			post_recv(&pair.b, posted, NULL);
			post_send(&pair.a, posted, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		}
		if (polled % 7 == 0)
			require_ok(ibv_resize_cq(pair.b.rcq, sizes[resized++ % ARRAY_SIZE(sizes)]));
		expect_wc(pair.b.rcq, polled, IBV_WC_SUCCESS, SOON_MS);
		expect_wc(pair.a.scq, polled, IBV_WC_SUCCESS, SOON_MS);
	}
	expect_no_async_event(&ends[1]);
}

static struct rc_pair fillers[4];
static _Atomic bool is_full;

/* Keeps the queue filling, and never lets it overflow. */
static _Atomic unsigned int room_left;

static void *fill_all(void *count)
{
	unsigned int next[ARRAY_SIZE(fillers)] = {}, i;
	uintptr_t left;

	for (left = (uintptr_t)count; left; left--) {
		i = left % ARRAY_SIZE(fillers);
		while (!room_left)
			sched_yield();
		room_left--;
		post_recv(&fillers[i].b, next[i], NULL);
		post_send(&fillers[i].a, next[i], IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		expect_wc(fillers[i].a.scq, next[i]++, IBV_WC_SUCCESS, SOON_MS);
	}
	is_full = true;
	return NULL;
}

/*
 * Four queue pairs fill one completion queue, which is polled seldom, and all the time has another
 * size: of each queue pair, each completion is there, once, in order.
 */
TEST(resize_while_filled)
{
	static const int sizes[] = { 3000, 20000, 2100, 30000 };
	unsigned int next[ARRAY_SIZE(fillers)] = {}, got = 0, resized = 0, i;
	const unsigned int count = 8000, most = 2000;
	struct ibv_cq *cq = NULL;
	pthread_t thread;
	struct ibv_wc wc;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	cq = ibv_create_cq(ends[1].context, most, NULL, NULL, 0);
	require(cq, "ibv_create_cq: %s", strerror(errno));
	for (i = 0; i < ARRAY_SIZE(fillers); i++) {
		struct rc *b = &fillers[i].b;
		struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = plan.cap,
						 .send_cq = cq, .recv_cq = cq };

		rc_create(&fillers[i].a, &ends[0], &plan);
		*b = (struct rc){ .end = &ends[1], .scq = cq, .rcq = cq };
		b->qp = ibv_create_qp(ends[1].pd, &init);
		require(b->qp, "ibv_create_qp: %s", strerror(errno));
		pair_connect(&fillers[i], &plan);
	}
	room_left = most;
	require_ok(pthread_create(&thread, NULL, fill_all, (void *)(uintptr_t)count));
	while (got < count) {
		if (!is_full || !resized)
			require_ok(ibv_resize_cq(cq, sizes[resized++ % ARRAY_SIZE(sizes)]));
		if (!is_full && resized % 8)
			continue;
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			for (i = 0; fillers[i].b.qp->qp_num != wc.qp_num; i++)
				require(i + 1 < ARRAY_SIZE(fillers), "of QP %#x", wc.qp_num);
			require(wc.status == IBV_WC_SUCCESS && wc.wr_id == next[i],
				"QP %u: completion %llu with \"%s\", not %u", i,
				(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), next[i]);
			next[i]++;
			got++;
			room_left++;
		}
		require(!is_full || got == count, "%u of %u completions", got, count);
	}
	require_ok(pthread_join(thread, NULL));
	note("resized %u times", resized);
	require(resized >= 20, "only %u times", resized);
	expect_no_wc(cq, 50);
	expect_no_async_event(&ends[1]);
}

TEST_HARNESS_MAIN
