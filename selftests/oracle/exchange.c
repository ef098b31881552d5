// SPDX-License-Identifier: GPL-2.0
/*
 * Exchanges to be captured, with what random traffic does not have: one of each kind
 * of NAK, and headers with fields that the user chose.  $FAMILY (4 or 6) chooses the
 * GIDs.
 */
#include <stdlib.h>

#include "harness.h"
#include "rc.h"

#define BYTES 4096

static struct rc_pair pair;
static struct buffer near, far;

static unsigned int number(const char *name)
{
	const char *value = getenv(name);

	require(value, "set %s", name);
	return strtoul(value, NULL, 0);
}

static void set_up(const struct rc_plan *plan)
{
	unsigned int family = number("FAMILY");
	int i;

	name_ends_from_environment();
	for (i = 0; i < 2; i++)
		end_open(&ends[i], family == 4 ? FAMILY_IPV4 : FAMILY_IPV6);
	pair_open(&pair, plan);
	buffer_create(&near, &ends[0], BYTES, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], BYTES, IBV_ACCESS_LOCAL_WRITE);
}

static void requester_gets(enum ibv_wc_status status)
{
	expect_wc(pair.a.scq, 1, status, SOON_MS);
}

/* The region allows no remote access. */
TEST(remote_access)
{
	struct ibv_sge sge;

	set_up(&default_plan);
	sge = buffer_sge(&near, 0, 100);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)far.bytes, far.mr->rkey);
	requester_gets(IBV_WC_REM_ACCESS_ERR);
}

/* The message is longer than the receive. */
TEST(invalid_request)
{
	struct ibv_sge sge;

	set_up(&default_plan);
	sge = buffer_sge(&far, 0, 99);
	post_recv(&pair.b, 2, &sge);
	sge = buffer_sge(&near, 0, 100);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	requester_gets(IBV_WC_REM_INV_REQ_ERR);
}

/* The receive names memory that is not the receiver's. */
TEST(remote_operation)
{
	struct ibv_sge sge;

	set_up(&default_plan);
	sge = buffer_sge(&far, 0, 100);
	sge.lkey ^= 0xff;
	post_recv(&pair.b, 2, &sge);
	sge = buffer_sge(&near, 0, 100);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	requester_gets(IBV_WC_REM_OP_ERR);
}

/* Both ends choose the same. */
TEST(chosen_fields)
{
	struct rc_plan plan = default_plan;
	struct ibv_sge sge;
	int i;

	plan.mtu = IBV_MTU_256;
	plan.traffic_class = number("CLASS");
	plan.flow_label = number("FLOW");
	set_up(&plan);
	for (i = 0; i < 4; i++) {
		sge = buffer_sge(&far, 0, BYTES);
		post_recv(&pair.b, 2, &sge);
		sge = buffer_sge(&near, 0, 1000);
		post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
		requester_gets(IBV_WC_SUCCESS);
	}
}

TEST_HARNESS_MAIN
