// SPDX-License-Identifier: GPL-2.0
/*
 * The states of an RC queue pair: which steps are allowed, what each of them
 * needs and takes, which values are refused, and what a query gives back.
 */
#include <stdio.h>

#include "harness.h"
#include "rc.h"

static struct rc rc, other;
static struct rc_address peer;
static struct rc_plan plan;

static const char *const state_names[] = {
	[IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR",
	[IBV_QPS_RTS] = "RTS", [IBV_QPS_SQD] = "SQD", [IBV_QPS_SQE] = "SQE",
	[IBV_QPS_ERR] = "ERR", [IBV_QPS_ERR + 1] = "beyond",
};

static void set_up(void)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	rc_create(&rc, &ends[0], &plan);
	rc_create(&other, &ends[1], &plan);
	peer = rc_address(&other);
}

/* Takes the queue pair to a state by the shortest way from RESET. */
static void bring_to(enum ibv_qp_state state)
{
	rc_modify(&rc, IBV_QPS_RESET, &peer, &plan);
	if (state == IBV_QPS_RESET)
		return;
	rc_modify(&rc, IBV_QPS_INIT, &peer, &plan);
	if (state == IBV_QPS_INIT)
		return;
	if (state == IBV_QPS_ERR) {
		rc_modify(&rc, IBV_QPS_ERR, &peer, &plan);
		return;
	}
	rc_modify(&rc, IBV_QPS_RTR, &peer, &plan);
	if (state == IBV_QPS_RTR)
		return;
	rc_modify(&rc, IBV_QPS_RTS, &peer, &plan);
	if (state == IBV_QPS_RTS)
		return;
	rc_modify(&rc, IBV_QPS_SQD, &peer, &plan);
	rc_wait_drained(&rc, SOON_MS);
}

static void expect_state(enum ibv_qp_state state, const char *after)
{
	enum ibv_qp_state is = rc_state(&rc);

	require(is == state, "%s: the state is %s, not %s", after, state_names[is],
		state_names[state]);
}

/* ---- steps ------------------------------------------------------------- */

static const enum ibv_qp_state sources[] = {
	IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR,
};

static bool allowed(enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (to == IBV_QPS_RESET)
		return true;
	if (to == IBV_QPS_ERR)
		return from != IBV_QPS_RESET;
	switch (from) {
	case IBV_QPS_RESET: return to == IBV_QPS_INIT;
	case IBV_QPS_INIT: return to == IBV_QPS_INIT || to == IBV_QPS_RTR;
	case IBV_QPS_RTR: return to == IBV_QPS_RTS;
	case IBV_QPS_RTS: return to == IBV_QPS_RTS || to == IBV_QPS_SQD;
	case IBV_QPS_SQD: return to == IBV_QPS_SQD || to == IBV_QPS_RTS;
	default: return false;
	}
}

static void one_step(enum ibv_qp_state from, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr;
	char step[64];
	int mask, err;

	snprintf(step, sizeof(step), "%s to %s", state_names[from], state_names[to]);
	bring_to(from);
	mask = rc_attr(&rc, &attr, to, &peer, &plan);
	if (allowed(from, to) && (from == IBV_QPS_RTS || from == IBV_QPS_SQD))
		mask = IBV_QP_STATE; /* all else is set already */
	err = ibv_modify_qp(rc.qp, &attr, mask);
	if (allowed(from, to)) {
		require(!err, "%s: %s", step, strerror(err));
		expect_state(to, step);
	} else {
		require(err == EINVAL, "%s: %s", step, strerror(err));
		expect_state(from, step);
	}
}

TEST(every_pair_of_states)
{
	size_t from;
	int to;

	set_up();
	for (from = 0; from < ARRAY_SIZE(sources); from++)
		for (to = IBV_QPS_RESET; to <= IBV_QPS_ERR + 1; to++)
			one_step(sources[from], to);
}

/* ---- attributes -------------------------------------------------------- */

static const struct {
	enum ibv_qp_state from, to;
	int optional;
} steps[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, 0 },
	{ IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
				    IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE },
};

/* All that verbs.h has a name for. */
#define ALL_ATTRIBUTES ((IBV_QP_DEST_QPN << 1) - 1)

static void refuse_mask(size_t step, const struct ibv_qp_attr *attr, int mask, const char *what)
{
	struct ibv_qp_attr copy = *attr;
	int err = ibv_modify_qp(rc.qp, &copy, mask);

	require(err == EINVAL || err == EOPNOTSUPP, "%s to %s, %s, mask 0x%x: %s",
		state_names[steps[step].from], state_names[steps[step].to], what, mask,
		strerror(err));
	expect_state(steps[step].from, what);
}

/* Rules: STA-3 */
TEST(every_missing_attribute)
{
	struct ibv_qp_attr attr;
	int mask, bit;
	size_t i;

	set_up();
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		bring_to(steps[i].from);
		mask = rc_attr(&rc, &attr, steps[i].to, &peer, &plan);
		for (bit = 1; bit <= ALL_ATTRIBUTES; bit <<= 1)
			if (mask & bit & ~IBV_QP_STATE)
				refuse_mask(i, &attr, mask & ~bit, "an attribute less");
		require_ok(ibv_modify_qp(rc.qp, &attr, mask));
		expect_state(steps[i].to, "with all attributes");
	}
}

TEST(every_superfluous_attribute)
{
	struct ibv_qp_attr attr;
	int mask, bit;
	size_t i;

	set_up();
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		bring_to(steps[i].from);
		mask = rc_attr(&rc, &attr, steps[i].to, &peer, &plan);
		attr.port_num = PORT;
		for (bit = 1; bit <= ALL_ATTRIBUTES; bit <<= 1)
			if (!((mask | steps[i].optional) & bit))
				refuse_mask(i, &attr, mask | bit, "an attribute more");
		require_ok(ibv_modify_qp(rc.qp, &attr, mask));
	}
}

TEST(without_state)
{
	struct ibv_qp_attr attr;
	int mask, err;

	set_up();
	bring_to(IBV_QPS_RTS);
	rc_attr(&rc, &attr, IBV_QPS_RTS, &peer, &plan);
	attr.min_rnr_timer = 3;
	require_ok(ibv_modify_qp(rc.qp, &attr, IBV_QP_MIN_RNR_TIMER));
	expect_state(IBV_QPS_RTS, "without IBV_QP_STATE");
	mask = rc_attr(&rc, &attr, IBV_QPS_RTR, &peer, &plan) & ~IBV_QP_STATE;
	err = ibv_modify_qp(rc.qp, &attr, mask);
	require(err == EINVAL, "RTR's attributes in RTS: %s", strerror(err));
}

/* A current state which is not the current one. */
TEST(wrong_current_state)
{
	struct ibv_qp_attr attr;
	int mask;

	set_up();
	bring_to(IBV_QPS_RTR);
	mask = rc_attr(&rc, &attr, IBV_QPS_RTS, &peer, &plan) | IBV_QP_CUR_STATE;
	attr.cur_qp_state = IBV_QPS_SQD;
	require(ibv_modify_qp(rc.qp, &attr, mask) == EINVAL, "RTR took SQD for its state");
	expect_state(IBV_QPS_RTR, "refused");
	attr.cur_qp_state = IBV_QPS_RTR;
	require_ok(ibv_modify_qp(rc.qp, &attr, mask));
	expect_state(IBV_QPS_RTS, "with the right one");
}

/* ---- values ------------------------------------------------------------ */

static void port_0(struct ibv_qp_attr *attr) { attr->port_num = 0; }
static void port_2(struct ibv_qp_attr *attr) { attr->port_num = 2; }
static void pkey_index(struct ibv_qp_attr *attr) { attr->pkey_index = ends[0].port.pkey_tbl_len; }
static void access_flags(struct ibv_qp_attr *attr) { attr->qp_access_flags = 1 << 16; }
static void mtu_0(struct ibv_qp_attr *attr) { attr->path_mtu = 0; }
static void mtu_6(struct ibv_qp_attr *attr) { attr->path_mtu = IBV_MTU_4096 + 1; }
static void dest_rd_atomic(struct ibv_qp_attr *attr) { attr->max_dest_rd_atomic = 255; }
static void rd_atomic(struct ibv_qp_attr *attr) { attr->max_rd_atomic = 255; }
static void rnr_timer(struct ibv_qp_attr *attr) { attr->min_rnr_timer = 32; }
static void timeout(struct ibv_qp_attr *attr) { attr->timeout = 32; }
static void retry_cnt(struct ibv_qp_attr *attr) { attr->retry_cnt = 8; }
static void rnr_retry(struct ibv_qp_attr *attr) { attr->rnr_retry = 8; }
static void av_port(struct ibv_qp_attr *attr) { attr->ah_attr.port_num = 2; }
static void no_grh(struct ibv_qp_attr *attr) { attr->ah_attr.is_global = 0; }
static void dest_qpn(struct ibv_qp_attr *attr) { attr->dest_qp_num = 1 << 24; }

static void sgid_beyond(struct ibv_qp_attr *attr)
{
	attr->ah_attr.grh.sgid_index = 255;
}

static void dgid_0(struct ibv_qp_attr *attr)
{
	memset(&attr->ah_attr.grh.dgid, 0, sizeof(attr->ah_attr.grh.dgid));
}

static const struct {
	const char *name;
	enum ibv_qp_state from, to;
	void (*spoil)(struct ibv_qp_attr *attr);
} bad_values[] = {
	{ "port 0", IBV_QPS_RESET, IBV_QPS_INIT, port_0 },
	{ "port 2", IBV_QPS_RESET, IBV_QPS_INIT, port_2 },
	{ "P_Key index beyond the table", IBV_QPS_RESET, IBV_QPS_INIT, pkey_index },
	{ "unknown access flags", IBV_QPS_RESET, IBV_QPS_INIT, access_flags },
	{ "path MTU 0", IBV_QPS_INIT, IBV_QPS_RTR, mtu_0 },
	{ "path MTU 6", IBV_QPS_INIT, IBV_QPS_RTR, mtu_6 },
	{ "max_dest_rd_atomic 255", IBV_QPS_INIT, IBV_QPS_RTR, dest_rd_atomic },
	{ "min_rnr_timer 32", IBV_QPS_INIT, IBV_QPS_RTR, rnr_timer },
	{ "the path's port 2", IBV_QPS_INIT, IBV_QPS_RTR, av_port },
	{ "no GRH", IBV_QPS_INIT, IBV_QPS_RTR, no_grh },
	{ "a QPN of 25 bits", IBV_QPS_INIT, IBV_QPS_RTR, dest_qpn },
	{ "an empty SGID", IBV_QPS_INIT, IBV_QPS_RTR, sgid_beyond },
	{ "DGID 0", IBV_QPS_INIT, IBV_QPS_RTR, dgid_0 },
	{ "max_rd_atomic 255", IBV_QPS_RTR, IBV_QPS_RTS, rd_atomic },
	{ "timeout 32", IBV_QPS_RTR, IBV_QPS_RTS, timeout },
	{ "retry_cnt 8", IBV_QPS_RTR, IBV_QPS_RTS, retry_cnt },
	{ "rnr_retry 8", IBV_QPS_RTR, IBV_QPS_RTS, rnr_retry },
};

TEST(values_out_of_range)
{
	struct ibv_qp_attr attr;
	unsigned int wrong = 0;
	int mask, err;
	size_t i;

	set_up();
	for (i = 0; i < ARRAY_SIZE(bad_values); i++) {
		bring_to(bad_values[i].from);
		mask = rc_attr(&rc, &attr, bad_values[i].to, &peer, &plan);
		bad_values[i].spoil(&attr);
		err = ibv_modify_qp(rc.qp, &attr, mask);
		if (err && rc_state(&rc) == bad_values[i].from)
			continue;
		note("%s: %s", bad_values[i].name, err ? "refused, but the state changed" : "taken");
		wrong++;
	}
	require(!wrong, "%u values", wrong);
}

/* The path MTU must fit what the port does at the moment. */
TEST(path_mtu_above_active)
{
	struct rc_plan large;
	enum ibv_mtu active;
	int above;

	set_up();
	shell("ip -n %s link set eth0 mtu 1500", ends[0].ns);
	require_ok(ibv_query_port(ends[0].context, PORT, &ends[0].port));
	active = ends[0].port.active_mtu;
	large = plan;
	large.mtu = IBV_MTU_2048;
	rc_modify(&rc, IBV_QPS_INIT, &peer, &plan);
	above = rc_try_modify(&rc, IBV_QPS_RTR, &peer, &large);
	rc_modify(&rc, IBV_QPS_RESET, &peer, &plan);
	bring_to(IBV_QPS_RTS);
	shell("ip -n %s link set eth0 mtu 9000", ends[0].ns);

	require(active == IBV_MTU_1024, "the active MTU is %d", active);
	require(above == EINVAL, "path MTU 2048: %s", strerror(above));
}

/* ---- queries ----------------------------------------------------------- */

#define EXPECT_FIELD(field, value)						\
	require(attr.field == (value), "%s is 0x%x, not 0x%x", #field,		\
		(unsigned int)attr.field, (unsigned int)(value))

TEST(query_gives_back)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	set_up();
	plan.mtu = IBV_MTU_512;
	plan.timeout = 17;
	plan.retry_cnt = 5;
	plan.rnr_retry = 3;
	plan.min_rnr_timer = 9;
	plan.rd_atomic = 3;
	plan.hop_limit = 33;
	plan.traffic_class = 0x68;
	plan.flow_label = 0x12345;
	plan.access = IBV_ACCESS_REMOTE_WRITE;
	rc.psn = 0x123456;
	peer.psn = 0xfedcba;
	bring_to(IBV_QPS_RTS);
	require_ok(ibv_query_qp(rc.qp, &attr, ALL_ATTRIBUTES, &init));

	EXPECT_FIELD(qp_state, IBV_QPS_RTS);
	EXPECT_FIELD(cur_qp_state, IBV_QPS_RTS);
	EXPECT_FIELD(path_mtu, plan.mtu);
	EXPECT_FIELD(rq_psn, peer.psn);
	EXPECT_FIELD(sq_psn, rc.psn);
	EXPECT_FIELD(dest_qp_num, peer.qpn);
	EXPECT_FIELD(qp_access_flags, plan.access);
	EXPECT_FIELD(pkey_index, 0);
	EXPECT_FIELD(port_num, PORT);
	EXPECT_FIELD(sq_draining, 0);
	EXPECT_FIELD(max_rd_atomic, plan.rd_atomic);
	EXPECT_FIELD(max_dest_rd_atomic, plan.rd_atomic);
	EXPECT_FIELD(min_rnr_timer, plan.min_rnr_timer);
	EXPECT_FIELD(timeout, plan.timeout);
	EXPECT_FIELD(retry_cnt, plan.retry_cnt);
	EXPECT_FIELD(rnr_retry, plan.rnr_retry);
	EXPECT_FIELD(ah_attr.is_global, 1);
	EXPECT_FIELD(ah_attr.port_num, PORT);
	EXPECT_FIELD(ah_attr.grh.sgid_index, ends[0].gid_index);
	/* The core puts the hop limit of the route in the place of ours. */
	require(attr.ah_attr.grh.hop_limit, "a hop limit of 0");
	EXPECT_FIELD(ah_attr.grh.traffic_class, plan.traffic_class);
	EXPECT_FIELD(ah_attr.grh.flow_label, plan.flow_label);
	require(!memcmp(&attr.ah_attr.grh.dgid, &peer.gid, sizeof(peer.gid)), "another DGID");
	require(attr.cap.max_send_wr >= plan.cap.max_send_wr &&
		attr.cap.max_recv_wr >= plan.cap.max_recv_wr &&
		attr.cap.max_send_sge >= plan.cap.max_send_sge &&
		attr.cap.max_recv_sge >= plan.cap.max_recv_sge &&
		attr.cap.max_inline_data >= plan.cap.max_inline_data, "less capacity than asked for");
	require(init.qp_type == IBV_QPT_RC && !init.sq_sig_all, "another kind of QP");
}

TEST(query_follows_states)
{
	size_t i;

	set_up();
	for (i = 0; i < ARRAY_SIZE(sources); i++) {
		bring_to(sources[i]);
		expect_state(sources[i], "query");
	}
}

/* ---- life after RESET -------------------------------------------------- */

static void one_message(struct rc *from, struct rc *to, unsigned int round)
{
	struct buffer source, target;
	struct ibv_sge sge;

	buffer_create(&source, from->end, 100, 0);
	buffer_create(&target, to->end, 100, IBV_ACCESS_LOCAL_WRITE);
	memset(source.bytes, round + 1, 100);
	sge = buffer_sge(&target, 0, 100);
	post_recv(to, round, &sge);
	sge = buffer_sge(&source, 0, 100);
	post_send(from, round, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(from->scq, round, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(to->rcq, round, IBV_WC_SUCCESS, SOON_MS);
	require(!memcmp(source.bytes, target.bytes, 100), "wrong data");
	buffer_destroy(&source);
	buffer_destroy(&target);
}

/* A queue pair may be used again and again; nothing of its former life stays. */
TEST(reset_and_reuse)
{
	struct rc_address mine;
	unsigned int round;

	set_up();
	for (round = 0; round < 20; round++) {
		rc.psn = 0xfffffe + round * 0x1234;
		rc.psn &= 0xffffff;
		other.psn = round;
		mine = rc_address(&rc);
		peer = rc_address(&other);
		rc_connect(&rc, &peer, &plan);
		rc_connect(&other, &mine, &plan);
		one_message(&rc, &other, round);
		one_message(&other, &rc, round);
		/* These die with the state. */
		post_recv(&rc, 1000, NULL);
		post_recv(&other, 1001, NULL);
		rc_modify(&rc, IBV_QPS_RESET, &peer, &plan);
		rc_modify(&other, IBV_QPS_RESET, &mine, &plan);
		expect_no_wc(rc.scq, 0);
		expect_no_wc(rc.rcq, 0);
		expect_no_wc(other.scq, 0);
		expect_no_wc(other.rcq, 0);
	}
}

TEST_HARNESS_MAIN
