// SPDX-License-Identifier: GPL-2.0
/*
 * What users of software RDMA have reported to hurt, and what programs ask for that is seldom asked for.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "harness.h"
#include "rc.h"
#include "verbs.h"

static struct rc_pair pair;
static struct buffer near, far;

static void set_up(void)
{
	name_ends_from_environment();
	open_ends();
}

static uint8_t byte_of(size_t at, unsigned int seed)
{
	return at * 7 + at / 251 + seed * 13;
}

static void fill(uint8_t *bytes, size_t size, unsigned int seed)
{
	size_t at;

	for (at = 0; at < size; at++)
		bytes[at] = byte_of(at, seed);
}

static void compare(const uint8_t *bytes, size_t size, unsigned int seed)
{
	size_t at;

	for (at = 0; at < size; at++)
		require(bytes[at] == byte_of(at, seed), "byte %zu is wrong", at);
}

/* ---- queue pairs ------------------------------------------------------- */

#define QPS 4000
#define WORD 8

static struct ibv_cq *shared_cq(struct end *end, int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(end->context, cqe, NULL, NULL, 0);

	require(cq, "a CQ of %d entries: %s", cqe, strerror(errno));
	return cq;
}

/* Connected to itself. */
static void create_looped(struct rc *rc, struct ibv_cq *cq, const struct rc_plan *plan)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = plan->cap, .qp_type = IBV_QPT_RC,
	};
	struct rc_address address;

	*rc = (struct rc){ .end = &ends[0], .scq = cq, .rcq = cq };
	rc->qp = ibv_create_qp(ends[0].pd, &init);
	require(rc->qp, "ibv_create_qp: %s", strerror(errno));
	address = rc_address(rc);
	rc_connect(rc, &address, plan);
}

static int64_t phase(const char *name, int64_t begun)
{
	int64_t now = now_ns(), took = now - begun;

	note("%s: %lld ms", name, (long long)(took / NS_PER_MS));
	require(took < 60 * NS_PER_S * time_scale(), "%s: that is too long", name);
	return now;
}

/* Each writes a word of its own. */
TEST(thousands_of_queue_pairs)
{
	struct rc *rcs = xcalloc(QPS, sizeof(*rcs));
	struct rc_plan plan = default_plan;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	int64_t begun;
	int i;

	set_up();
	plan.cap = (struct ibv_qp_cap){
		.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
	};
	plan.mtu = ends[0].port.active_mtu;
	buffer_create(&near, &ends[0], QPS * WORD, plan.access);
	buffer_create(&far, &ends[0], QPS * WORD, plan.access);
	fill(near.bytes, near.size, 1);
	begun = now_ns();
	cq = shared_cq(&ends[0], QPS);
	for (i = 0; i < QPS; i++)
		create_looped(&rcs[i], cq, &plan);
	begun = phase("made and connected", begun);
	for (i = 0; i < QPS; i++) {
		struct ibv_sge from = buffer_sge(&near, i * WORD, WORD);

		post_send(&rcs[i], i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &from,
			  (uintptr_t)far.bytes + i * WORD, far.mr->rkey);
	}
	for (i = 0; i < QPS; i++) {
		require(poll_within(cq, &wc, SOON_MS), "%d of %d completions came", i, QPS);
		require(wc.status == IBV_WC_SUCCESS, "%s", ibv_wc_status_str(wc.status));
	}
	compare(far.bytes, far.size, 1);
	begun = phase("all have written", begun);
	for (i = 0; i < QPS; i++)
		require_ok(ibv_destroy_qp(rcs[i].qp));
	require_ok(ibv_destroy_cq(cq));
	phase("destroyed", begun);
	free(rcs);
}

#define READS 128
#define READ 4096
#define ASKED (2 * READS)

/* As many READs at a time as adapters have, and as many that wait for them. */
TEST(reads_at_a_time)
{
	struct rc_plan plan = default_plan;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int i;

	set_up();
	plan.rd_atomic = READS;
	plan.cap.max_send_wr = ASKED;
	plan.cqe = ASKED;
	pair_open(&pair, &plan);
	require_ok(ibv_query_qp(pair.a.qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC, &init));
	require(attr.max_rd_atomic == READS, "max_rd_atomic is %d", attr.max_rd_atomic);
	buffer_create(&near, &ends[0], ASKED * READ, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], ASKED * READ, plan.access);
	fill(far.bytes, far.size, 2);
	for (i = 0; i < ASKED; i++) {
		struct ibv_sge to = buffer_sge(&near, i * READ, READ);

		post_send(&pair.a, i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &to,
			  (uintptr_t)far.bytes + i * READ, far.mr->rkey);
	}
	for (i = 0; i < ASKED; i++)
		expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
	compare(near.bytes, near.size, 2);
}

/* ---- memory ------------------------------------------------------------ */

#define GIB (1UL << 30)
#define LARGE (16 * GIB)

static void write_and_read(struct rc *rc, uint64_t there, unsigned int seed)
{
	struct ibv_sge sge = buffer_sge(&near, 0, near.size);

	fill(near.bytes, near.size, seed);
	post_send(rc, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, there, far.mr->rkey);
	expect_wc(rc->scq, 1, IBV_WC_SUCCESS, SOON_MS);
	compare((uint8_t *)(uintptr_t)there, near.size, seed);
	memset(near.bytes, 0, near.size);
	post_send(rc, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, there, far.mr->rkey);
	expect_wc(rc->scq, 2, IBV_WC_SUCCESS, SOON_MS);
	compare(near.bytes, near.size, seed);
}

/* More than there is memory: none of it is there until it is used. */
TEST(region_of_16_gib)
{
	static const uint64_t offsets[] = { 0, GIB - 100, 4 * GIB - 5000, 9 * GIB + 1, LARGE - 12288 };
	uint8_t *bytes = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned int i;

	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	set_up();
	pair_open(&pair, &default_plan);
	buffer_create(&near, &ends[0], 12288, IBV_ACCESS_LOCAL_WRITE);
	register_at(&far, &ends[1], bytes, LARGE, REMOTE | IBV_ACCESS_ON_DEMAND);
	for (i = 0; i < ARRAY_SIZE(offsets); i++)
		write_and_read(&pair.a, (uintptr_t)bytes + offsets[i], i);
	require_ok(ibv_dereg_mr(far.mr));
}

/* ---- GIDs -------------------------------------------------------------- */

static bool has_gid(struct end *end, int index)
{
	struct ibv_gid_entry entry;

	return !ibv_query_gid_ex(end->context, PORT, index, &entry, 0);
}

static int last_gid(struct end *end)
{
	int index = end->port.gid_tbl_len;

	while (index-- > 0)
		if (has_gid(end, index))
			return index;
	fail("%s has no GID", end->dev);
}

static void exchange_by(const char *choice)
{
	note("%s: %d and %d", choice, ends[0].gid_index, ends[1].gid_index);
	pair_open(&pair, &default_plan);
	buffer_create(&near, &ends[0], 5000, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], 5000, default_plan.access);
	write_and_read(&pair.a, (uintptr_t)far.bytes, 3);
	pair_destroy(&pair);
	buffer_destroy(&near);
	buffer_destroy(&far);
}

static void exchange_by_family(enum family family, const char *choice)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		end_close(&ends[i]);
		ends[i].gid_index = -1;
		end_open(&ends[i], family);
	}
	exchange_by(choice);
}

/* What programs choose whose user has not: some the first, some the first that they know to be an address. */
TEST(any_choice_of_gid)
{
	unsigned int i;

	set_up();
	for (i = 0; i < 2; i++)
		end_use_gid(&ends[i], 0);
	exchange_by("the first");
	for (i = 0; i < 2; i++)
		end_use_gid(&ends[i], last_gid(&ends[i]));
	exchange_by("the last");
	exchange_by_family(FAMILY_ANY, "the first of RoCE v2");
	exchange_by_family(FAMILY_IPV4, "the first of IPv4");
	exchange_by_family(FAMILY_IPV6, "the first of IPv6");
}

/* ---- completions ------------------------------------------------------- */

#define MESSAGES 100

/* What the device says that it has, it has, and what it has not is refused as that. */
static void try_moderation(struct ibv_cq *cq)
{
	struct ibv_modify_cq_attr moderate = {
		.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = 8, .cq_period = 50 },
	};
	struct ibv_device_attr_ex attr;
	int err;

	require_ok(ibv_query_device_ex(cq->context, NULL, &attr));
	err = ibv_modify_cq(cq, &moderate);
	note("at most %u, %u us: %s", attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period,
	     strerror(err));
	if (attr.cq_mod_caps.max_cq_count)
		require(!err, "it is refused");
	else
		require(err == EOPNOTSUPP, "it is not refused as what is not there");
}

static void wait_for_event(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	struct pollfd wait = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *of;
	void *context;

	require(poll(&wait, 1, SOON_MS) == 1, "no event");
	require_sys(ibv_get_cq_event(channel, &of, &context));
	require(of == cq, "an event of another CQ");
	ibv_ack_cq_events(cq, 1);
}

/* Who asks for moderation sleeps for events, and gets them in any case. */
TEST(moderated_completions)
{
	struct rc_plan plan = default_plan;
	struct ibv_sge sge;
	int i;

	set_up();
	plan.channel = ibv_create_comp_channel(ends[0].context);
	require(plan.channel, "ibv_create_comp_channel: %s", strerror(errno));
	rc_create(&pair.a, &ends[0], &plan);
	plan.channel = NULL;
	rc_create(&pair.b, &ends[1], &plan);
	pair_connect(&pair, &plan);
	try_moderation(pair.a.scq);
	buffer_create(&near, &ends[0], 64, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], 64, plan.access);
	sge = buffer_sge(&near, 0, 64);
	for (i = 0; i < MESSAGES; i++) {
		require_ok(ibv_req_notify_cq(pair.a.scq, 0));
		post_send(&pair.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)far.bytes, far.mr->rkey);
		wait_for_event(pair.a.scq->channel, pair.a.scq);
		expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, 0);
	}
}

TEST_HARNESS_MAIN
