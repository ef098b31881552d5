// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues.
 */
#include <unistd.h>

#include "rc.h"

#define PAIRS 4

static struct rc_pair pairs[PAIRS];
static struct rc_plan plan;
static struct ibv_srq *srq;

static struct ibv_srq *try_create(uint32_t max_wr, uint32_t max_sge, uint32_t limit)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = max_wr, .max_sge = max_sge, .srq_limit = limit },
	};
	struct ibv_srq *new = ibv_create_srq(ends[1].pd, &init);

	if (new)
		require(init.attr.max_wr >= max_wr && init.attr.max_sge >= max_sge,
			"%u receives of %u SGEs", init.attr.max_wr, init.attr.max_sge);
	return new;
}

/* Queue pairs on the second end that share a queue. */
static void set_up(unsigned int count, uint32_t max_wr)
{
	unsigned int i;

	name_ends_from_environment();
	open_ends();
	srq = try_create(max_wr, 2, 0);
	require(srq, "ibv_create_srq: %s", strerror(errno));
	plan = default_plan;
	plan.srq = srq;
	for (i = 0; i < count; i++)
		pair_open(&pairs[i], &plan);
}

static void post(uint64_t wr_id, const struct ibv_sge *sge)
{
	struct ibv_recv_wr *bad, wr = {
		.wr_id = wr_id, .sg_list = (struct ibv_sge *)sge, .num_sge = sge ? 1 : 0,
	};

	require_ok(ibv_post_srq_recv(srq, &wr, &bad));
}

static void post_many(uint64_t from, uint64_t to)
{
	for (; from < to; from++)
		post(from, NULL);
}

static void send_one(struct rc_pair *pair)
{
	post_send(&pair->a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(pair->a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
}

static struct ibv_srq_attr query(void)
{
	struct ibv_srq_attr attr;

	require_ok(ibv_query_srq(srq, &attr));
	return attr;
}

static int set_limit(uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
}

static int set_size(uint32_t max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

/* The first that needs a receive gets the oldest. */
/* Rules: SRQ-1 */
static void in_order_for_all(void)
{
	unsigned int round, i;
	uint64_t next = 0;

	set_up(PAIRS, 64);
	post_many(0, 3 * PAIRS);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < PAIRS; i++) {
			struct ibv_wc wc;

			send_one(&pairs[i]);
			wc = expect_wc(pairs[i].b.rcq, next++, IBV_WC_SUCCESS, SOON_MS);
			require(wc.qp_num == pairs[i].b.qp->qp_num, "of another queue pair");
		}
	}
}

/* Many times as many as there is room for, so that the ring goes round. */
static void goes_round(void)
{
	uint64_t i;

	set_up(1, 5);
	for (i = 0; i < 100; i++) {
		post(i, NULL);
		send_one(&pairs[0]);
		expect_wc(pairs[0].b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
	}
}

/* Rules: SRQ-2 */
static void waits_for_a_receive(void)
{
	set_up(2, 8);
	post_send(&pairs[0].a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_no_wc(pairs[0].a.scq, 100);
	post(7, NULL);
	expect_wc(pairs[0].b.rcq, 7, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pairs[0].a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
}

static void data_arrives(void)
{
	struct buffer mine, theirs;
	struct ibv_sge from, to;
	size_t i;

	set_up(1, 8);
	buffer_create(&mine, &ends[0], 20000, 0);
	buffer_create(&theirs, &ends[1], 20000, IBV_ACCESS_LOCAL_WRITE);
	for (i = 0; i < mine.size; i++)
		mine.bytes[i] = i * 7 + i / 256;
	from = buffer_sge(&mine, 0, 20000);
	to = buffer_sge(&theirs, 0, 20000);
	post(3, &to);
	post_send(&pairs[0].a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
	require(expect_wc(pairs[0].b.rcq, 3, IBV_WC_SUCCESS, SOON_MS).byte_len == 20000,
		"another length");
	require(!memcmp(mine.bytes, theirs.bytes, 20000), "other bytes");
}

/* Rules: SRQ-3 */
static void limit_is_told_once(void)
{
	unsigned int i;

	set_up(1, 16);
	post_many(0, 8);
	require_ok(set_limit(6));
	require(query().srq_limit == 6, "the limit is %u", query().srq_limit);
	for (i = 0; i < 2; i++) {
		send_one(&pairs[0]);
		expect_no_async_event(&ends[1]);
	}
	send_one(&pairs[0]);
	require(async_event_within(&ends[1], IBV_EVENT_SRQ_LIMIT_REACHED, SOON_MS), "no event");
	require(query().srq_limit == 0, "the limit is still set");
	send_one(&pairs[0]);
	expect_no_async_event(&ends[1]);
	require_ok(set_limit(6));
	send_one(&pairs[0]);
	require(async_event_within(&ends[1], IBV_EVENT_SRQ_LIMIT_REACHED, SOON_MS), "no event");
}

static void resized(void)
{
	uint64_t i;

	set_up(1, 8);
	/* Not from the first slot. */
	post_many(0, 5);
	for (i = 0; i < 5; i++)
		send_one(&pairs[0]);
	post_many(5, 11);
	require_ok(set_size(60));
	require(query().max_wr >= 60, "room for %u", query().max_wr);
	post_many(11, 5 + query().max_wr);
	require_ok(set_size(query().max_wr));
	for (i = 5; i < 5 + query().max_wr; i++)
		send_one(&pairs[0]);
	for (i = 0; i < 5 + query().max_wr; i++)
		expect_wc(pairs[0].b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
	post_many(0, 3);
	require_ok(set_size(3));
	require(query().max_wr < 60, "room for %u", query().max_wr);
	for (i = 0; i < 3; i++) {
		send_one(&pairs[0]);
		expect_wc(pairs[0].b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
	}
}

static void bad_sizes(void)
{
	uint32_t max_wr, max_sge;

	set_up(1, 8);
	max_wr = ends[1].attr.max_srq_wr;
	max_sge = ends[1].attr.max_srq_sge;
	require(max_wr >= 917503 && max_sge >= 27 && ends[1].attr.max_srq >= 917503,
		"%u queues of %u receives of %u SGEs", ends[1].attr.max_srq, max_wr, max_sge);
	require(!try_create(max_wr + 1, 1, 0) && errno == EINVAL, "too many receives");
	require(!try_create(8, max_sge + 1, 0) && errno == EINVAL, "too many SGEs");
	require(!try_create(0, 1, 0) && errno == EINVAL, "no receives");
	require(!try_create(8, 1, 1000) && errno == EINVAL, "a limit above the size");
	require(set_limit(query().max_wr + 1) == EINVAL, "a limit above the size");
	require(set_size(max_wr + 1) == EINVAL, "too large");
	require(set_size(0) == EINVAL, "nothing");
	post_many(0, 6);
	require(set_size(2) == EINVAL, "smaller than what is posted");
	require_ok(set_limit(5));
	require(set_size(3) == EINVAL, "smaller than what is posted, and the limit");
	require(query().srq_limit == 5 && query().max_wr >= 8, "something was changed");
	send_one(&pairs[0]);
	expect_wc(pairs[0].b.rcq, 0, IBV_WC_SUCCESS, SOON_MS);
}

/* The end of a queue pair takes nothing with it that another one could use. */
/* Rules: SRQ-5 */
static void error_leaves_the_rest(void)
{
	set_up(2, 8);
	post_many(0, 2);
	rc_modify(&pairs[0].b, IBV_QPS_ERR, NULL, NULL);
	require(async_event_within(&ends[1], IBV_EVENT_QP_LAST_WQE_REACHED, SOON_MS), "no event");
	expect_no_wc(pairs[0].b.rcq, 100);
	send_one(&pairs[1]);
	expect_wc(pairs[1].b.rcq, 0, IBV_WC_SUCCESS, SOON_MS);
	require_ok(ibv_destroy_qp(pairs[0].b.qp));
	require(ibv_destroy_srq(srq) == EBUSY, "it can go before its queue pairs");
	send_one(&pairs[1]);
	expect_wc(pairs[1].b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_no_async_event(&ends[1]);
	require_ok(ibv_destroy_qp(pairs[1].b.qp));
	require_ok(ibv_destroy_srq(srq));
}

/* A receive for memory that the queue's domain does not have fails whoever takes it. */
/* Rules: SRQ-4 */
static void memory_of_another_domain(void)
{
	struct ibv_pd *own, *other;
	struct buffer buffer;
	struct ibv_sge sge;

	set_up(2, 8);
	own = ends[1].pd;
	other = ibv_alloc_pd(ends[1].context);
	require(other, "ibv_alloc_pd: %s", strerror(errno));
	ends[1].pd = other;
	buffer_create(&buffer, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	ends[1].pd = own;
	sge = buffer_sge(&buffer, 0, 100);
	post(4, &sge);
	post(5, NULL);
	post_send(&pairs[0].a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(pairs[0].b.rcq, 4, IBV_WC_LOC_PROT_ERR, SOON_MS);
	expect_wc(pairs[0].a.scq, 1, IBV_WC_REM_OP_ERR, SOON_MS);
	send_one(&pairs[1]);
	expect_wc(pairs[1].b.rcq, 5, IBV_WC_SUCCESS, SOON_MS);
}

static const struct test tests[] = {
	{ "in_order_for_all", in_order_for_all },
	{ "goes_round", goes_round },
	{ "waits_for_a_receive", waits_for_a_receive },
	{ "data_arrives", data_arrives },
	{ "limit_is_told_once", limit_is_told_once },
	{ "resized", resized },
	{ "bad_sizes", bad_sizes },
	{ "error_leaves_the_rest", error_leaves_the_rest },
	{ "memory_of_another_domain", memory_of_another_domain },
};

int main(int argc, char **argv)
{
	return run_tests(tests, ARRAY_SIZE(tests), argc, argv);
}
