// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs that two threads move to INIT at the same time, so that the RDMA core binds them to a counter
 * twice if it binds all.  A queue pair has one counter at most, which ends with it.
 *
 *	binds DEVICE ROUNDS
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../lib/rc.h"

static struct rc rc;
static pthread_barrier_t start;

static void *initialise(void *result)
{
	struct ibv_qp_attr attr;
	int mask = rc_attr(&rc, &attr, IBV_QPS_INIT, NULL, &default_plan);

	pthread_barrier_wait(&start);
	*(int *)result = ibv_modify_qp(rc.qp, &attr, mask);
	return NULL;
}

static void one_round(void)
{
	pthread_t threads[2];
	int results[2], i;

	rc_create(&rc, &ends[0], &default_plan);
	for (i = 0; i < 2; i++)
		require_ok(pthread_create(&threads[i], NULL, initialise, &results[i]));
	for (i = 0; i < 2; i++)
		require_ok(pthread_join(threads[i], NULL));
	require_ok(results[0]);
	require_ok(results[1]);
	rc_destroy(&rc);
}

int main(int argc, char **argv)
{
	int round, rounds;

	require(argc == 3, "usage: binds DEVICE ROUNDS");
	end_name(&ends[0], argv[1]);
	end_open(&ends[0], FAMILY_ANY);
	rounds = atoi(argv[2]);
	require_ok(pthread_barrier_init(&start, NULL, 2));
	for (round = 0; round < rounds; round++)
		one_round();
	end_close(&ends[0]);
	printf("%d rounds\n", rounds);
	return 0;
}
