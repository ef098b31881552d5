// SPDX-License-Identifier: GPL-2.0
/*
 * What MPI makes of an RDMA device, between the ranks 0 and 1, or all of them:
 *
 *	mpi latency|bandwidth|alltoall|put|get|count SIZE COUNT
 *
 * Messages of SIZE bytes, COUNT of them after a tenth as many that do not count. Those of the last
 * round are compared with what was sent. Rank 0 prints the time of one in seconds: of a latency half a
 * round trip, of a bandwidth that between two messages of which WINDOW are on their way, of the others,
 * which any number of ranks may do, that of one exchange: by MPI_Alltoall, by one-sided operations to
 * the same effect, or of a counter at rank 0 that all add to.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 32
#define TAG 1

static int rank, ranks;

static void die(const char *why)
{
	fprintf(stderr, "rank %d: %s\n", rank, why);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void *buffer(size_t size)
{
	void *made = malloc(size);

	if (!made)
		die("no memory");
	return made;
}

/* What a rank sends to another one in a round. */
static unsigned char byte_of(int from, int to, int round, size_t at)
{
	return (at * 7 + at / 253 + from * 31 + to * 17 + round) & 0xff;
}

static void fill(unsigned char *data, int to, int round, size_t size)
{
	for (size_t at = 0; at < size; at++)
		data[at] = byte_of(rank, to, round, at);
}

static void compare(const unsigned char *data, int from, int round, size_t size)
{
	for (size_t at = 0; at < size; at++)
		if (data[at] != byte_of(from, rank, round, at))
			die("what arrived is not what was sent");
}

/* Returns how many messages one round is; -1 has no number, and is what warms up. */
typedef int round_fn(unsigned char *out, unsigned char *in, int size);

static int latency(unsigned char *out, unsigned char *in, int size)
{
	int peer = 1 - rank;

	if (rank == 0)
		MPI_Send(out, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
	MPI_Recv(in, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		MPI_Send(out, size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
	return 2;
}

/* Each message of a window goes to where the one before it went. */
static int bandwidth(unsigned char *out, unsigned char *in, int size)
{
	MPI_Request requests[WINDOW];
	char done = 0;

	for (int i = 0; i < WINDOW; i++) {
		if (rank == 0)
			MPI_Isend(out, size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Irecv(in + (size_t)i * size, size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD,
				  &requests[i]);
	}
	MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	if (rank == 0)
		MPI_Recv(&done, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(&done, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
	return WINDOW;
}

static int alltoall(unsigned char *out, unsigned char *in, int size)
{
	MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
	return 1;
}

/* Memory that others read and write; made at the first use of it. */
static MPI_Win window = MPI_WIN_NULL;

static void window_of(void *base, MPI_Aint bytes)
{
	if (window == MPI_WIN_NULL)
		MPI_Win_create(base, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
}

static int put(unsigned char *out, unsigned char *in, int size)
{
	window_of(in, (MPI_Aint)ranks * size);
	MPI_Win_fence(0, window);
	for (int to = 0; to < ranks; to++)
		MPI_Put(out + (size_t)to * size, size, MPI_BYTE, to, (MPI_Aint)rank * size, size, MPI_BYTE,
			window);
	MPI_Win_fence(0, window);
	return 1;
}

static int get(unsigned char *out, unsigned char *in, int size)
{
	window_of(out, (MPI_Aint)ranks * size);
	MPI_Win_fence(0, window);
	for (int from = 0; from < ranks; from++)
		MPI_Get(in + (size_t)from * size, size, MPI_BYTE, from, (MPI_Aint)rank * size, size, MPI_BYTE,
			window);
	MPI_Win_fence(0, window);
	return 1;
}

/* Each rank adds one more than the one before it. The sum is exact, and so is each step. */
static int count_up(unsigned char *out, unsigned char *in, int size)
{
	static uint64_t counter, before, rounds;
	uint64_t mine = rank + 1, all = (uint64_t)ranks * (ranks + 1) / 2;

	(void)out, (void)in, (void)size;
	window_of(&counter, sizeof(counter));
	MPI_Win_fence(0, window);
	MPI_Fetch_and_op(&mine, &before, MPI_UINT64_T, 0, 0, MPI_SUM, window);
	MPI_Win_fence(0, window);
	if (before < all * rounds || before > all * (rounds + 1) - mine)
		die("what was added to is not what it may have been");
	rounds++;
	if (rank == 0 && counter != all * rounds)
		die("the sum is wrong");
	return 1;
}

static const struct test {
	const char *name;
	round_fn *run;
	/* Of what is compared: what each rank has for each; what one has for the other; nothing. */
	enum { PAIR, ALL, NOTHING } data;
} tests[] = {
	{ "latency", latency, PAIR }, { "bandwidth", bandwidth, PAIR }, { "alltoall", alltoall, ALL },
	{ "put", put, ALL }, { "get", get, ALL }, { "count", count_up, NOTHING },
};

static const struct test *find(const char *name)
{
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
		if (!strcmp(tests[i].name, name))
			return &tests[i];
	die("no such test");
	return NULL;
}

/* The receiver's buffer has room for a window and for all ranks. */
static size_t slots(void)
{
	return ranks > WINDOW ? ranks : WINDOW;
}

static void fill_all(const struct test *test, unsigned char *out, int round, int size)
{
	int to = 1 - rank;

	if (test->data == PAIR)
		return fill(out, to, round, size);
	for (to = 0; to < ranks; to++)
		fill(out + (size_t)to * size, to, round, size);
}

static void compare_all(const struct test *test, const unsigned char *in, int round, int size)
{
	if (test->data == NOTHING)
		return;
	if (test->data == ALL) {
		for (int from = 0; from < ranks; from++)
			compare(in + (size_t)from * size, from, round, size);
	} else if (test->run == bandwidth) {
		for (int i = 0; rank == 1 && i < WINDOW; i++)
			compare(in + (size_t)i * size, 0, round, size);
	} else {
		compare(in, 1 - rank, round, size);
	}
}

int main(int argc, char **argv)
{
	const struct test *test;
	unsigned char *out, *in;
	int size, count, sent = 0;
	double begin;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 4)
		die("usage: mpi latency|bandwidth|alltoall|put|get|count SIZE COUNT");
	test = find(argv[1]);
	size = atoi(argv[2]);
	count = atoi(argv[3]);
	if (size < 1 || size > 1 << 24 || count < 1 || ranks < 2)
		die("no such size, count or number of ranks");
	if (test->data == PAIR && ranks != 2)
		die("this one is for two ranks");
	out = buffer(slots() * size);
	in = buffer(slots() * size);

	fill_all(test, out, 0, size);
	while (sent < (count + 9) / 10)
		sent += test->run(out, in, size);
	compare_all(test, in, 0, size);
	/* What is compared below has come since. */
	fill_all(test, out, 1, size);
	memset(in, 0, slots() * size);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	for (sent = 0; sent < count;)
		sent += test->run(out, in, size);
	begin = MPI_Wtime() - begin;
	compare_all(test, in, 1, size);
	if (rank == 0)
		printf("%.9f s each\n", begin / sent);
	if (window != MPI_WIN_NULL)
		MPI_Win_free(&window);
	MPI_Finalize();
	return 0;
}
