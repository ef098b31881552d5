// SPDX-License-Identifier: GPL-2.0
/*
 * Runs one workload between two devices for a short time, and says how fast it was:
 *
 *	explore WORD...		the ends are $END_A and $END_B, which may be the same device
 *
 * The words are those of bench/workloads.py, NAME=VALUE, each of which must be there.  What
 * comes of it is a line of JSON.
 *
 * What is delivered is compared, so that who loses or mixes up data cannot be fast: where the
 * first and the last eight bytes of a message are, its number has to be, and of one in
 * SAMPLE all bytes are looked at.  Sizes and operations follow from the number.  Of UC and
 * UD that which arrives is counted, and what is lost as well.
 *
 * The memory of both ends is shared by them, also when they are processes of their own.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "stream.h"
#include "ud.h"

#define NS_PER_US 1000LL
#define QKEY 0x11111111
#define GRH 40
#define WORD 8			/* the size of a stamp, and of an atomic's operand */
#define MAX_QPS 16
#define MAX_LIST 16
#define BATCH 16		/* completions that are asked for at a time */
#define SAMPLE 61
#define BOOK_SPREAD 4096	/* messages begin at so many bytes of the pattern */
#define READ_PLACES 509		/* READs begin in so many places: prime, unlike any queue */
#define MEMORY (32u << 20)	/* for the receives of an end, and what is written by UC */
#define RECENT 1024		/* what is not reliable may be overtaken, but not come twice */
#define RECEIVES 256		/* of a queue pair, or more for a deeper one */
#define LEAST_BURSTS 3
#define LEAST_MESSAGES 8
#define STALLED_NS (5 * NS_PER_S * time_scale())
/* After so long without any, what UC and UD have not brought is lost. */
#define QUIET_NS (50 * NS_PER_MS * time_scale())

enum transport { RC, UC, UD };
enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, FETCH_ADD, CMP_SWAP, KINDS };
enum waiting { EACH, FULL, EVENT };

static const char *const transport_names[] = { "rc", "uc", "ud", NULL };
static const char *const kind_names[] = {
	"send", "send_imm", "write", "write_imm", "read", "fetch_add", "cmp_swap", NULL
};
static const char *const waiting_names[] = { "each", "full", "event", NULL };

static const enum ibv_wr_opcode opcodes[] = {
	[SEND] = IBV_WR_SEND, [SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[WRITE] = IBV_WR_RDMA_WRITE, [WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[READ] = IBV_WR_RDMA_READ,
	[FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD, [CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

/* ---- the workload ------------------------------------------------------ */

static struct {
	unsigned int transport, poll;
	unsigned int kinds[KINDS], kinds_count;
	uint32_t min, max;
	unsigned int qps, depth, threads, list, burst, signal, inline_max, reads, processes;
	unsigned int rest_us, ms;
	unsigned int recv_event, armed, srq, both, fresh;
	uint64_t seed;
} load;

static bool one_cpu;

static const struct number {
	const char *name;
	unsigned int *value, least, most;
} numbers[] = {
	{ "qps", &load.qps, 1, MAX_QPS },
	{ "depth", &load.depth, 1, 512 },
	{ "threads", &load.threads, 1, MAX_QPS },
	{ "list", &load.list, 1, MAX_LIST },
	{ "burst", &load.burst, 0, 1000000 },
	{ "rest_us", &load.rest_us, 0, 10000000 },
	{ "signal", &load.signal, 1, 64 },
	{ "inline", &load.inline_max, 0, 4096 },
	{ "reads", &load.reads, 1, 255 },
	{ "processes", &load.processes, 1, 2 },
	{ "recv_event", &load.recv_event, 0, 1 },
	{ "armed", &load.armed, 0, 1 },
	{ "srq", &load.srq, 0, 1 },
	{ "both", &load.both, 0, 1 },
	{ "fresh", &load.fresh, 0, 1 },
	{ "ms", &load.ms, 1, 60000 },
};

static bool has_name(const char *name, const char *const *names, unsigned int *found)
{
	for (*found = 0; names[*found]; ++*found)
		if (!strcmp(name, names[*found]))
			return true;
	return false;
}

static void read_kinds(char *list)
{
	char *name;

	while ((name = strsep(&list, ","))) {
		require(load.kinds_count < KINDS &&
			has_name(name, kind_names, &load.kinds[load.kinds_count]),
			"no such operation: %s", name);
		load.kinds_count++;
	}
}

/* One, or from one to another. */
static void read_sizes(const char *value)
{
	if (sscanf(value, "%u-%u", &load.min, &load.max) == 1)
		load.max = load.min;
	require(load.min >= WORD && load.min <= load.max, "no sizes: %s", value);
}

static bool read_number(const char *name, const char *value, unsigned int *seen)
{
	const struct number *number;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		number = &numbers[i];
		if (strcmp(name, number->name))
			continue;
		*number->value = strtoul(value, NULL, 10);
		require(*number->value >= number->least && *number->value <= number->most,
			"%s=%s is not between %u and %u", name, value, number->least, number->most);
		*seen |= 1u << i;
		return true;
	}
	return false;
}

static void read_word(char *word, unsigned int *seen)
{
	char *value = strchr(word, '=');

	require(value, "not NAME=VALUE: %s", word);
	*value++ = '\0';
	if (read_number(word, value, seen))
		return;
	if (!strcmp(word, "transport"))
		require(has_name(value, transport_names, &load.transport), "no transport: %s", value);
	else if (!strcmp(word, "poll"))
		require(has_name(value, waiting_names, &load.poll), "no way to wait: %s", value);
	else if (!strcmp(word, "op"))
		read_kinds(value);
	else if (!strcmp(word, "size"))
		read_sizes(value);
	else if (!strcmp(word, "seed"))
		load.seed = strtoull(value, NULL, 10);
	else
		fail("no such word: %s", word);
}

static bool is_atomic(enum kind kind)
{
	return kind == FETCH_ADD || kind == CMP_SWAP;
}

/* It takes a receive. */
static bool consumes(enum kind kind)
{
	return kind == SEND || kind == SEND_IMM || kind == WRITE_IMM;
}

/* It goes where the requester says. */
static bool lands(enum kind kind)
{
	return kind == WRITE || kind == WRITE_IMM;
}

static bool is_stamped(enum kind kind)
{
	return lands(kind) || consumes(kind);
}

/* It brings something back. */
static bool fetches(enum kind kind)
{
	return !is_stamped(kind);
}

static bool any(bool (*is)(enum kind))
{
	unsigned int i;

	for (i = 0; i < load.kinds_count; i++)
		if (is(load.kinds[i]))
			return true;
	return false;
}

static void read_workload(int argc, char **argv)
{
	unsigned int seen = 0, i;

	for (i = 1; i < (unsigned int)argc; i++)
		read_word(argv[i], &seen);
	for (i = 0; i < ARRAY_SIZE(numbers); i++)
		require(seen & 1u << i, "%s is missing", numbers[i].name);
	require(load.kinds_count && load.max, "op or size is missing");
	require(load.list <= load.depth && load.threads <= load.qps, "list or threads are too many");
	require(load.signal == 1 || load.signal * 2 <= load.depth, "too few are signalled");
	for (i = 0; i < load.kinds_count; i++)
		require(load.transport == RC || (load.transport == UC ? is_stamped(load.kinds[i]) :
						 load.kinds[i] <= SEND_IMM),
			"%s is not for %s", kind_names[load.kinds[i]],
			transport_names[load.transport]);
	one_cpu = sysconf(_SC_NPROCESSORS_ONLN) == 1;
	/* Two who poll one CPU measure that. */
	if (one_cpu)
		load.recv_event = 1;
}

/* ---- what is shared ---------------------------------------------------- */

/* How many messages of each kind of place there are for a queue pair.  Numbers which have no
 * common divisor, so that what was there before is another message. */
static struct {
	uint32_t stride;
	unsigned int from, target, inbox;
} places;

/* One end of a connection.  It is written by the worker that it belongs to, and what the peer's
 * worker looks at is atomic. */
struct half {
	unsigned int index;
	struct half *peer;
	struct worker *worker;
	struct rc rc;
	struct rc_address address;	/* for the peer */
	struct ibv_ah *ah;
	uint64_t key;			/* what sizes and operations follow from */

	uint8_t *from, *into;		/* messages, and what is fetched */
	uint8_t *target;		/* what the peer writes */
	uint64_t *word;			/* what the peer's atomics are on */

	_Atomic uint64_t posted;
	uint64_t done, left;		/* `left` may still be posted */
	uint64_t unsignalled;		/* so many at the end */
	uint64_t atomics, fetched;
	uint64_t landing;		/* UC: all WRITEs before are known to be there, or lost */

	/* The other direction: what the peer has sent. */
	uint64_t expected;
	uint64_t came[RECENT];		/* by number, which one has come, and one more */
	uint64_t overtaken;
	_Atomic uint64_t next;		/* the number behind the last one that came */
	_Atomic uint64_t arrived, arrived_bytes;
	_Atomic int64_t arrived_ns;
	_Atomic bool over;		/* nothing is posted any more, and all is complete */
};

struct tally {
	uint64_t messages, bytes;
	int64_t at;			/* when the last one was delivered */
};

/* A thread, with the queue pairs that are its own. */
struct worker {
	struct side *side;
	pthread_t thread;
	struct half *halves[MAX_QPS];
	unsigned int count, turn;
	bool asks, listens, sleeps;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	uint8_t *inbox;
	int64_t progress_ns;
	struct ibv_send_wr wrs[MAX_LIST];
	struct ibv_sge sges[MAX_LIST];

	struct tally complete;
	uint64_t landed, landed_bytes;	/* WRITEs of UC */
	int64_t landed_ns;
	int64_t begin_at, stop_at;	/* when to begin to measure, and to stop */
	struct tally begin;
	uint64_t stop_after;		/* but not before so many are complete */
	/* What comes of it. */
	uint64_t messages, bytes;
	int64_t active_ns;
};

struct side {
	struct end *end;
	struct side *peer;
	struct buffer memory;
	uint8_t *book;			/* a pattern, which messages are parts of */
	uint32_t rkey;
	struct half halves[MAX_QPS];
	struct worker workers[MAX_QPS];
	bool asks, listens;
	_Atomic bool is_over;
};

static struct shared {
	pthread_barrier_t barrier;
	struct side sides[2];
} *shared;

static void meet(void)
{
	pthread_barrier_wait(&shared->barrier);
}

/* ---- what messages are like -------------------------------------------- */

static enum kind kind_of(const struct half *half, uint64_t number)
{
	if (load.kinds_count == 1)
		return load.kinds[0];
	return load.kinds[mix(half->key + 1, number) % load.kinds_count];
}

/* Of each power of two about as many. */
static uint32_t size_of(const struct half *half, uint64_t number)
{
	unsigned int low, high, bits;
	uint64_t random;
	uint32_t size;

	if (is_atomic(kind_of(half, number)))
		return WORD;
	if (load.min == load.max)
		return load.min;
	random = mix(half->key, number);
	low = 31 - __builtin_clz(load.min);
	high = 31 - __builtin_clz(load.max);
	bits = low + random % (high - low + 1);
	size = (1u << bits) + (random >> 32) % (1u << bits);
	return size < load.min ? load.min : size > load.max ? load.max : size;
}

static const uint8_t *pattern_of(const struct half *half, uint64_t number)
{
	uint64_t place = half->index * places.from + number % places.from;

	return half->worker->side->book + place * WORD % BOOK_SPREAD;
}

static uint64_t read_place(uint64_t number)
{
	return number % READ_PLACES * WORD;
}

static uint64_t stamp_of(const struct half *half, uint64_t number)
{
	return (uint64_t)(half->index + 1) << 48 | number;
}

static uint64_t word_at(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, WORD);
	return word;
}

static bool has_tail(uint32_t size)
{
	return size >= 2 * WORD;
}

static bool is_sampled(uint64_t number)
{
	return number % SAMPLE == 0;
}

static uint8_t *place(uint8_t *memory, uint64_t number, unsigned int of)
{
	return memory + number % of * places.stride;
}

/* Takes the end of the last message out of its place. */
static void restore(const struct half *half, uint64_t number, uint8_t *bytes)
{
	uint64_t before = number;
	uint32_t size;

	do {
		if (before < places.from)
			return;
		before -= places.from;
	} while (!is_stamped(kind_of(half, before)));
	size = size_of(half, before);
	if (has_tail(size))
		memcpy(bytes + size - WORD, pattern_of(half, number) + size - WORD, WORD);
}

static void make_message(const struct half *half, uint64_t number, uint32_t size)
{
	uint8_t *bytes = place(half->from, number, places.from);
	uint64_t stamp = stamp_of(half, number);

	if (load.min != load.max)
		restore(half, number, bytes);
	memcpy(bytes, &stamp, WORD);
	if (has_tail(size))
		memcpy(bytes + size - WORD, &stamp, WORD);
}

/* Fails unless these bytes are the message of this number of the half. */
static void expect_message(const struct half *half, uint64_t number, uint32_t size,
			   const uint8_t *bytes)
{
	const char *name = kind_names[kind_of(half, number)];
	uint64_t stamp = stamp_of(half, number);

	require(word_at(bytes) == stamp, "%s %llu of QP %u, %u bytes: it begins with 0x%llx", name,
		(unsigned long long)number, half->index, size, (unsigned long long)word_at(bytes));
	if (!has_tail(size))
		return;
	require(word_at(bytes + size - WORD) == stamp,
		"%s %llu of QP %u, %u bytes: it ends with 0x%llx", name, (unsigned long long)number,
		half->index, size, (unsigned long long)word_at(bytes + size - WORD));
	require(!is_sampled(number) || !memcmp(bytes + WORD, pattern_of(half, number) + WORD,
					       size - 2 * WORD),
		"%s %llu of QP %u, %u bytes: wrong bytes", name, (unsigned long long)number,
		half->index, size);
}

static void expect_read(const struct half *half, uint64_t number, uint32_t size)
{
	const uint8_t *bytes = place(half->into, number, places.from);
	const uint8_t *book = half->peer->worker->side->book + read_place(number);
	bool right;

	if (is_sampled(number) || !has_tail(size))
		right = !memcmp(bytes, book, size);
	else
		right = word_at(bytes) == word_at(book) &&
			word_at(bytes + size - WORD) == word_at(book + size - WORD);
	require(right, "read %llu of QP %u, %u bytes: wrong bytes", (unsigned long long)number,
		half->index, size);
}

/* Each atomic adds one, and so fetches how many were before. */
static void expect_fetched(struct half *half, uint64_t number)
{
	uint64_t fetched = word_at(place(half->into, number, places.from));

	require(fetched == half->fetched, "atomic %llu of QP %u fetched %llu, not %llu",
		(unsigned long long)number, half->index, (unsigned long long)fetched,
		(unsigned long long)half->fetched);
	half->fetched++;
}

/* ---- posting ----------------------------------------------------------- */

static void address_peer(struct half *half, struct ibv_send_wr *wr, enum kind kind)
{
	struct half *peer = half->peer;
	struct side *side = peer->worker->side;

	if (load.transport == UD) {
		wr->wr.ud.ah = half->ah;
		wr->wr.ud.remote_qpn = peer->address.qpn;
		wr->wr.ud.remote_qkey = QKEY;
	} else if (is_atomic(kind)) {
		wr->wr.atomic.remote_addr = (uintptr_t)peer->word;
		wr->wr.atomic.rkey = side->rkey;
		wr->wr.atomic.compare_add = kind == FETCH_ADD ? 1 : half->atomics;
		wr->wr.atomic.swap = half->atomics + 1;
		half->atomics++;
	} else {
		wr->wr.rdma.remote_addr =
			(uintptr_t)(kind == READ ? side->book + read_place(wr->wr_id) :
						   place(peer->target, wr->wr_id, places.target));
		wr->wr.rdma.rkey = side->rkey;
	}
}

static unsigned int flags_of(struct half *half, enum kind kind, uint32_t size)
{
	unsigned int flags = 0;

	half->left--;
	half->unsignalled++;
	if (half->unsignalled == load.signal || !half->left) {
		flags |= IBV_SEND_SIGNALED;
		half->unsignalled = 0;
	}
	if (is_stamped(kind) && size <= load.inline_max)
		flags |= IBV_SEND_INLINE;
	return flags;
}

static void make(struct half *half, struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t number)
{
	enum kind kind = kind_of(half, number);
	uint32_t size = size_of(half, number);
	uint8_t *bytes = place(is_stamped(kind) ? half->from : half->into, number, places.from);

	if (is_stamped(kind))
		make_message(half, number, size);
	*sge = (struct ibv_sge){
		.addr = (uintptr_t)bytes, .length = size,
		.lkey = half->worker->side->memory.mr->lkey,
	};
	*wr = (struct ibv_send_wr){
		.wr_id = number, .sg_list = sge, .num_sge = 1, .opcode = opcodes[kind],
		.send_flags = flags_of(half, kind, size), .imm_data = htonl(number),
	};
	address_peer(half, wr, kind);
	wr->wr_id |= (uint64_t)half->index << 48;
}

static unsigned int list_of(const struct half *half)
{
	return half->left < load.list ? half->left : load.list;
}

/* UC: what is not there before its place is used again is lost. */
static void look_for_landings(struct worker *worker, struct half *half, uint64_t until)
{
	uint64_t stamp;
	uint32_t size;
	uint8_t *bytes;
	bool there;

	for (; half->landing < half->posted; half->landing++) {
		if (kind_of(half, half->landing) != WRITE)
			continue;
		stamp = stamp_of(half, half->landing);
		size = size_of(half, half->landing);
		bytes = place(half->peer->target, half->landing, places.target);
		there = word_at(bytes) == stamp &&
			(!has_tail(size) || word_at(bytes + size - WORD) == stamp);
		if (!there && half->landing >= until)
			return;
		if (!there)
			continue;
		expect_message(half, half->landing, size, bytes);
		worker->landed++;
		worker->landed_bytes += size;
		worker->landed_ns = now_ns();
	}
}

/* As a list, by one doorbell. */
static void post(struct worker *worker, struct half *half)
{
	unsigned int count = list_of(half), i;
	uint64_t number = half->posted;
	struct ibv_send_wr *bad;

	if (load.transport == UC && number + count > places.target)
		look_for_landings(worker, half, number + count - places.target);
	for (i = 0; i < count; i++) {
		make(half, &worker->wrs[i], &worker->sges[i], number + i);
		if (i)
			worker->wrs[i - 1].next = &worker->wrs[i];
	}
	half->posted = number + count;
	require_ok(ibv_post_send(half->rc.qp, worker->wrs, &bad));
}

static uint64_t outstanding(const struct half *half)
{
	return half->posted - half->done;
}

/* By turns; NULL when all queues are full, or there is nothing left to do. */
static struct half *next_with_room(struct worker *worker)
{
	struct half *half;
	unsigned int i;

	for (i = 0; i < worker->count; i++) {
		half = worker->halves[worker->turn++ % worker->count];
		if (half->left && outstanding(half) + list_of(half) <= load.depth)
			return half;
	}
	return NULL;
}

/* ---- receives ---------------------------------------------------------- */

static void post_receive(struct worker *worker, struct half *half, uint64_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)worker->inbox + slot * places.stride, .length = places.stride,
		.lkey = worker->side->memory.mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };

	if (worker->srq)
		require_ok(ibv_post_srq_recv(worker->srq, &wr, &bad));
	else
		require_ok(ibv_post_recv(half->rc.qp, &wr, &bad));
}

static void post_receives(struct worker *worker)
{
	unsigned int i;

	for (i = 0; i < worker->count * places.inbox; i++)
		post_receive(worker, worker->halves[i / places.inbox], i);
}

static struct half *half_of(struct worker *worker, uint32_t qpn)
{
	unsigned int i;

	for (i = 0; i < worker->count; i++)
		if (worker->halves[i]->rc.qp->qp_num == qpn)
			return worker->halves[i];
	fail("a completion of QP %u, which is none of these", qpn);
}

/* Passes over what takes no receive. */
static void skip_others(struct half *half)
{
	while (half->expected < half->peer->posted &&
	       !consumes(kind_of(half->peer, half->expected)))
		half->expected++;
}

/* The place of a WRITE of UC may have the next one already, or a part of it. */
static void expect_written(const struct half *half, uint64_t number)
{
	uint64_t there = word_at(place(half->target, number, places.target));

	require(there >= stamp_of(half->peer, number) &&
		(there & ~(~0ULL << 48)) % places.target == number % places.target,
		"write_imm %llu of QP %u: 0x%llx is there", (unsigned long long)number, half->index,
		(unsigned long long)there);
}

static void take_message(struct worker *worker, struct half *half, const struct ibv_wc *wc)
{
	const uint8_t *bytes = worker->inbox + wc->wr_id * places.stride;
	uint32_t length = wc->byte_len, size;
	struct half *peer = half->peer;
	uint64_t number;
	enum kind kind;

	if (load.transport == UD) {
		bytes += GRH;
		length -= GRH;
	}
	number = wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : word_at(bytes) & 0xffffffff;
	require(number < peer->posted, "message %llu of QP %u was never sent",
		(unsigned long long)number, half->index);
	kind = kind_of(peer, number);
	size = size_of(peer, number);
	require((wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) == (kind == WRITE_IMM) && length == size,
		"message %llu of QP %u, a %s: completion has opcode %d and %u bytes, not %u",
		(unsigned long long)number, half->index, kind_names[kind], wc->opcode, length, size);
	require(half->came[number % RECENT] != number + 1, "message %llu of QP %u once more",
		(unsigned long long)number, half->index);
	half->came[number % RECENT] = number + 1;
	skip_others(half);
	require(load.transport != RC || number == half->expected,
		"message %llu of QP %u comes in place of %llu", (unsigned long long)number,
		half->index, (unsigned long long)half->expected);
	if (number >= half->expected)
		half->expected = number + 1;
	else
		half->overtaken++;
	if (kind != WRITE_IMM)
		expect_message(peer, number, size, bytes);
	else if (load.transport == UC)
		expect_written(half, number);
	half->arrived_bytes += size;
	half->arrived++;
	half->next = half->expected;
}

static unsigned int take_receives(struct worker *worker)
{
	struct ibv_wc wcs[BATCH];
	struct half *half;
	int64_t now;
	int n, i;

	n = ibv_poll_cq(worker->rcq, BATCH, wcs);
	require(n >= 0, "ibv_poll_cq: %d", n);
	if (!n)
		return 0;
	now = now_ns();
	worker->progress_ns = now;
	for (i = 0; i < n; i++) {
		require(wcs[i].status == IBV_WC_SUCCESS, "receive: \"%s\"",
			ibv_wc_status_str(wcs[i].status));
		half = half_of(worker, wcs[i].qp_num);
		take_message(worker, half, &wcs[i]);
		half->arrived_ns = now;
		post_receive(worker, half, wcs[i].wr_id);
	}
	return n;
}

/* ---- completions ------------------------------------------------------- */

static void complete_one(struct worker *worker, struct half *half, uint64_t number)
{
	enum kind kind = kind_of(half, number);
	uint32_t size = size_of(half, number);

	worker->complete.messages++;
	worker->complete.bytes += size;
	if (load.transport != RC)
		return;
	if (kind == READ)
		expect_read(half, number, size);
	else if (is_atomic(kind))
		expect_fetched(half, number);
	else if (lands(kind))
		expect_message(half, number, size,
			       place(half->peer->target, number, places.target));
}

/* With those before it, which were not signalled. */
static void complete(struct worker *worker, const struct ibv_wc *wc)
{
	struct half *half = &worker->side->halves[wc->wr_id >> 48];
	uint64_t number = wc->wr_id & ~(~0ULL << 48);

	require(wc->status == IBV_WC_SUCCESS, "request %llu of QP %u, a %s: \"%s\"",
		(unsigned long long)number, half->index, kind_names[kind_of(half, number)],
		ibv_wc_status_str(wc->status));
	require(number >= half->done && number < half->posted, "request %llu of QP %u once more",
		(unsigned long long)number, half->index);
	while (half->done <= number)
		complete_one(worker, half, half->done++);
}

/* What was delivered of what this worker has sent. */
static struct tally delivered(struct worker *worker)
{
	struct tally sum = {
		.messages = worker->landed, .bytes = worker->landed_bytes, .at = worker->landed_ns,
	};
	struct half *peer;
	unsigned int i;

	if (load.transport == RC)
		return worker->complete;
	for (i = 0; i < worker->count; i++) {
		peer = worker->halves[i]->peer;
		sum.messages += peer->arrived;
		sum.bytes += peer->arrived_bytes;
		if (peer->arrived_ns > sum.at)
			sum.at = peer->arrived_ns;
	}
	return sum;
}

/* Posts no more, but for what is needed to see that all is complete. */
static void stop(struct worker *worker)
{
	unsigned int i;

	for (i = 0; i < worker->count; i++)
		worker->halves[i]->left = worker->halves[i]->unsignalled ? 1 : 0;
	worker->stop_at = INT64_MAX;
}

static unsigned int take_completions(struct worker *worker)
{
	struct ibv_wc wcs[BATCH];
	int n, i;

	n = ibv_poll_cq(worker->scq, BATCH, wcs);
	require(n >= 0, "ibv_poll_cq: %d", n);
	if (!n)
		return 0;
	for (i = 0; i < n; i++)
		complete(worker, &wcs[i]);
	worker->complete.at = now_ns();
	worker->progress_ns = worker->complete.at;
	if (worker->complete.at >= worker->begin_at) {
		worker->begin = delivered(worker);
		if (!worker->begin.messages)
			worker->begin.at = worker->complete.at;
		worker->begin_at = INT64_MAX;
		worker->stop_after = worker->complete.messages + LEAST_MESSAGES;
	}
	if (worker->complete.at >= worker->stop_at &&
	    worker->complete.messages >= worker->stop_after)
		stop(worker);
	return n;
}

static unsigned int take(struct worker *worker)
{
	unsigned int n = 0;

	if (worker->asks)
		n += take_completions(worker);
	if (worker->listens)
		n += take_receives(worker);
	return n;
}

/* ---- waiting ----------------------------------------------------------- */

static void expect_progress(const struct worker *worker)
{
	unsigned int i;

	if (now_ns() - worker->progress_ns < STALLED_NS)
		return;
	for (i = 0; i < worker->count; i++)
		note("QP %u: %llu posted, %llu complete, %llu arrived", worker->halves[i]->index,
		     (unsigned long long)worker->halves[i]->posted,
		     (unsigned long long)worker->halves[i]->done,
		     (unsigned long long)worker->halves[i]->arrived);
	fail("nothing is complete any more");
}

static void arm(struct worker *worker)
{
	require_ok(ibv_req_notify_cq(worker->scq, 0));
	require_ok(ibv_req_notify_cq(worker->rcq, 0));
}

/* Until there is an event, or the time is over. */
static void sleep_for(struct worker *worker, int64_t ns)
{
	struct pollfd wait = { .fd = worker->channel->fd, .events = POLLIN };
	struct timespec time = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S };
	struct ibv_cq *cq;
	void *context;
	int n = ppoll(&wait, 1, &time, NULL);

	require_sys(n);
	while (n > 0 && !ibv_get_cq_event(worker->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		require_ok(ibv_req_notify_cq(cq, 0));
	}
}

/* Waits until something is complete, but not for ever. */
static void wait_for_some(struct worker *worker, int64_t most_ns)
{
	int64_t give_up = now_ns() + most_ns;
	unsigned int empty = 0;

	while (!take(worker)) {
		if (worker->sleeps)
			sleep_for(worker, 10 * NS_PER_MS);
		else if (one_cpu)
			sched_yield();
		if (!worker->sleeps && ++empty % 256)
			continue;
		expect_progress(worker);
		if (now_ns() >= give_up)
			return;
	}
	while (worker->sleeps && take(worker))
		;
}

static void rest(struct worker *worker)
{
	int64_t end = now_ns() + load.rest_us * NS_PER_US, left;

	while ((left = end - now_ns()) > 0) {
		if (!worker->listens) {
			usleep(left / NS_PER_US + 1);
		} else {
			take(worker);
			if (worker->sleeps)
				sleep_for(worker, left);
			else if (one_cpu)
				sched_yield();
		}
	}
	worker->progress_ns = now_ns();
}

/* ---- asking ------------------------------------------------------------ */

static bool is_busy(struct worker *worker)
{
	unsigned int i;

	for (i = 0; i < worker->count; i++)
		if (worker->halves[i]->left || outstanding(worker->halves[i]))
			return true;
	return false;
}

/* UC and UD: whether all that was sent has come, or what was sent after it. */
static bool has_settled(struct worker *worker)
{
	struct half *half;
	unsigned int i;

	for (i = 0; i < worker->count; i++) {
		half = worker->halves[i];
		if (load.transport == UC && any(lands))
			look_for_landings(worker, half, half->landing);
		if (any(consumes) && half->posted && half->peer->next < half->posted &&
		    consumes(kind_of(half, half->posted - 1)))
			return false;
		if (half->landing < half->posted && kind_of(half, half->posted - 1) == WRITE)
			return false;
	}
	return true;
}

static void settle(struct worker *worker)
{
	int64_t quiet_at = now_ns() + QUIET_NS;
	uint64_t before = delivered(worker).messages, messages;
	unsigned int i;

	while (!has_settled(worker) && now_ns() < quiet_at) {
		if (worker->listens)
			take_receives(worker);
		usleep(20);
		messages = delivered(worker).messages;
		if (messages != before)
			quiet_at = now_ns() + QUIET_NS;
		before = messages;
	}
	for (i = 0; load.transport == UC && i < worker->count; i++)
		look_for_landings(worker, worker->halves[i], worker->halves[i]->posted);
}

/* Posts what each queue pair is allowed to, and sees it delivered. */
static void ask(struct worker *worker)
{
	struct half *half;

	while (is_busy(worker)) {
		half = next_with_room(worker);
		if (half) {
			post(worker, half);
			if (load.poll == EACH)
				take(worker);
		} else {
			wait_for_some(worker, STALLED_NS);
		}
	}
	if (load.transport != RC)
		settle(worker);
}

static void add_up(struct worker *worker, const struct tally *begin)
{
	struct tally end = delivered(worker);

	if (end.at <= begin->at)
		return;
	worker->messages += end.messages - begin->messages;
	worker->bytes += end.bytes - begin->bytes;
	worker->active_ns += end.at - begin->at;
}

/* As much as goes, of which the first quarter is not measured. */
static void ask_all_the_time(struct worker *worker)
{
	int64_t now = now_ns();
	unsigned int i;

	worker->begin_at = now + load.ms * NS_PER_MS / 4;
	worker->stop_at = now + load.ms * NS_PER_MS * 5 / 4;
	for (i = 0; i < worker->count; i++)
		worker->halves[i]->left = UINT64_MAX;
	ask(worker);
	require(worker->begin_at == INT64_MAX, "nothing was complete in time");
	add_up(worker, &worker->begin);
}

static void ask_once(struct worker *worker, bool counts)
{
	struct tally begin = delivered(worker);
	unsigned int i;

	for (i = 0; i < worker->count; i++)
		worker->halves[i]->left = (load.burst + i) / worker->count;
	begin.at = now_ns();
	ask(worker);
	if (counts)
		add_up(worker, &begin);
}

/* Bursts with rests between them, the first of which is not measured. */
static void ask_now_and_then(struct worker *worker)
{
	int64_t over = now_ns() + load.ms * NS_PER_MS;
	unsigned int bursts;

	worker->begin_at = worker->stop_at = INT64_MAX;
	for (bursts = 0; bursts <= LEAST_BURSTS || now_ns() < over; bursts++) {
		ask_once(worker, bursts || load.fresh);
		if (load.fresh)
			return;
		if (load.rest_us)
			rest(worker);
	}
}

static void finish(struct worker *worker)
{
	unsigned int i;

	for (i = 0; i < worker->count; i++)
		worker->halves[i]->over = true;
}

/* ---- listening --------------------------------------------------------- */

/* Whether all that the peers have sent is here, or never will be. */
static bool has_all(struct worker *worker)
{
	bool is_quiet = now_ns() - worker->progress_ns > QUIET_NS;
	struct half *half;
	unsigned int i;

	for (i = 0; i < worker->count; i++) {
		half = worker->halves[i];
		if (!half->peer->over)
			return false;
		skip_others(half);
		if (half->expected < half->peer->posted && (load.transport == RC || !is_quiet))
			return false;
	}
	return true;
}

static void *work(void *argument)
{
	struct worker *worker = argument;

	worker->progress_ns = now_ns();
	if (worker->sleeps || load.armed)
		arm(worker);
	if (worker->asks) {
		if (load.burst)
			ask_now_and_then(worker);
		else
			ask_all_the_time(worker);
	}
	finish(worker);
	while (worker->listens && !has_all(worker))
		wait_for_some(worker, 5 * NS_PER_MS);
	return NULL;
}

/* ---- the start --------------------------------------------------------- */

static uint32_t round_up(uint32_t size, uint32_t to)
{
	return (size + to - 1) / to * to;
}

/* Between two numbers of places, as many as there is memory for, but one that is no multiple of
 * the sender's. */
static unsigned int some_places(unsigned int least, unsigned int most)
{
	unsigned int fit = MEMORY / places.stride / load.qps;
	unsigned int count = fit < least ? least : fit > most ? most : fit;

	return count % places.from ? count : count + 1;
}

static void plan_places(void)
{
	places.stride = round_up(load.max + GRH, load.max < 4096 ? 64 : 4096);
	places.from = load.depth + 2;
	/* Who sends by UC does not know how far the receiver is. */
	places.target = load.transport == UC ?
				some_places(places.from + 1, 4 * RECEIVES) : places.from + 1;
	places.inbox = some_places(load.depth + 1,
				   2 * places.from > RECEIVES ? 2 * places.from : RECEIVES);
}

/* Hands out the memory of a side, from its beginning; without memory only says how much it is. */
static size_t lay_out(struct side *side, uint8_t *memory)
{
	const size_t each = places.stride;
	struct worker *worker;
	struct half *half;
	size_t at = 0;
	unsigned int i;

#define TAKE(size) (at += (size), memory + at - (size))
	side->book = TAKE(round_up(load.max + BOOK_SPREAD, 4096));
	for (i = 0; i < load.qps; i++) {
		half = &side->halves[i];
		half->word = (uint64_t *)TAKE(64);
	}
	at = (at + 4095) / 4096 * 4096;
	for (i = 0; i < load.qps; i++) {
		half = &side->halves[i];
		if (side->asks) {
			half->from = TAKE(any(is_stamped) ? places.from * each : 0);
			half->into = TAKE(any(fetches) ? places.from * each : 0);
		}
		if (side->peer->asks)
			half->target = TAKE(any(lands) ? places.target * each : 0);
	}
	for (i = 0; i < load.threads; i++) {
		worker = &side->workers[i];
		worker->inbox = TAKE(side->listens ? worker->count * places.inbox * each : 0);
	}
#undef TAKE
	return at;
}

static void make_memory(struct side *side)
{
	struct half *half;
	uint64_t j;
	unsigned int i;

	side->memory.size = round_up(lay_out(side, NULL), 4096);
	side->memory.bytes = mmap(NULL, side->memory.size, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	require(side->memory.bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	lay_out(side, side->memory.bytes);
	stream_fill(side->book, load.max + BOOK_SPREAD, load.seed + (side == shared->sides), 0);
	for (i = 0; side->asks && any(is_stamped) && i < load.qps; i++) {
		half = &side->halves[i];
		for (j = 0; j < places.from; j++)
			memcpy(place(half->from, j, places.from), pattern_of(half, j), load.max);
	}
}

static void assign(struct side *side)
{
	struct worker *worker;
	unsigned int i;

	for (i = 0; i < load.qps; i++) {
		worker = &side->workers[i % load.threads];
		side->halves[i].index = i;
		side->halves[i].peer = &side->peer->halves[i];
		side->halves[i].worker = worker;
		side->halves[i].key = mix(load.seed, i + (side == shared->sides ? 0 : MAX_QPS));
		worker->halves[worker->count++] = &side->halves[i];
		worker->side = side;
		worker->asks = side->asks;
		worker->listens = side->listens;
		worker->sleeps = side->asks ? load.poll == EVENT : load.recv_event;
	}
}

static void share(void)
{
	pthread_barrierattr_t attr;
	struct side *side;
	unsigned int i;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	require(shared != MAP_FAILED, "mmap: %s", strerror(errno));
	require_ok(pthread_barrierattr_init(&attr));
	require_ok(pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	require_ok(pthread_barrier_init(&shared->barrier, &attr, 2));
	for (i = 0; i < 2; i++) {
		side = &shared->sides[i];
		side->end = &ends[i];
		side->peer = &shared->sides[!i];
		side->asks = !i || load.both;
		side->listens = (i || load.both) && any(consumes);
	}
	for (i = 0; i < 2; i++)
		assign(&shared->sides[i]);
	plan_places();
	for (i = 0; i < 2; i++)
		make_memory(&shared->sides[i]);
}

static struct ibv_cq *make_cq(struct worker *worker, unsigned int cqe)
{
	struct ibv_context *context = worker->side->end->context;
	struct ibv_cq *cq = ibv_create_cq(context, cqe, NULL, worker->channel, 0);

	require(cq, "ibv_create_cq(%u): %s", cqe, strerror(errno));
	return cq;
}

static void make_worker(struct worker *worker)
{
	struct end *end = worker->side->end;
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = worker->count * places.inbox, .max_sge = 1 },
	};

	worker->channel = ibv_create_comp_channel(end->context);
	require(worker->channel, "ibv_create_comp_channel: %s", strerror(errno));
	require_sys(fcntl(worker->channel->fd, F_SETFL, O_NONBLOCK));
	worker->scq = make_cq(worker, worker->count * load.depth + 1);
	worker->rcq = make_cq(worker, worker->listens ? worker->count * places.inbox + 1 : 1);
	if (!worker->listens || !load.srq)
		return;
	worker->srq = ibv_create_srq(end->pd, &attr);
	require(worker->srq, "ibv_create_srq: %s", strerror(errno));
}

static void make_qp(struct half *half)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct worker *worker = half->worker;
	struct end *end = worker->side->end;
	struct ibv_qp_init_attr init = {
		.send_cq = worker->scq, .recv_cq = worker->rcq, .srq = worker->srq,
		.qp_type = types[load.transport],
		.cap = {
			.max_send_wr = load.depth,
			.max_recv_wr = worker->listens && !worker->srq ? places.inbox : 1,
			.max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = load.inline_max,
		},
	};

	half->rc = (struct rc){ .end = end, .scq = worker->scq, .rcq = worker->rcq };
	half->rc.qp = ibv_create_qp(end->pd, &init);
	require(half->rc.qp, "ibv_create_qp: %s", strerror(errno));
	half->rc.psn = mix(half->key, 2) & 0xffffff;
	half->address = rc_address(&half->rc);
}

static void make_side(struct side *side)
{
	unsigned int i;

	end_open(side->end, FAMILY_IPV4);
	side->memory.mr = ibv_reg_mr(side->end->pd, side->memory.bytes, side->memory.size,
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	require(side->memory.mr, "ibv_reg_mr: %s", strerror(errno));
	side->rkey = side->memory.mr->rkey;
	for (i = 0; i < load.threads; i++)
		make_worker(&side->workers[i]);
	for (i = 0; i < load.qps; i++)
		make_qp(&side->halves[i]);
}

static void connect_half(struct half *half)
{
	struct end *end = half->rc.end;
	struct end peer = { .gid = half->peer->address.gid };
	struct rc_plan plan = default_plan;

	plan.unreliable = load.transport == UC;
	plan.access |= IBV_ACCESS_REMOTE_ATOMIC;
	plan.rd_atomic = load.reads;
	if (end->attr.max_qp_rd_atom < (int)load.reads)
		plan.rd_atomic = end->attr.max_qp_rd_atom;
	if (load.transport != UD) {
		rc_connect(&half->rc, &half->peer->address, &plan);
		return;
	}
	ud_start(&half->rc, QKEY);
	half->ah = ah_create(end, &peer);
}

static void *run_side(void *argument)
{
	struct side *side = argument;
	unsigned int i;

	make_side(side);
	meet();
	for (i = 0; i < load.qps; i++)
		connect_half(&side->halves[i]);
	for (i = 0; side->listens && i < load.threads; i++)
		post_receives(&side->workers[i]);
	meet();
	for (i = 0; i < load.threads; i++)
		require_ok(pthread_create(&side->workers[i].thread, NULL, work, &side->workers[i]));
	for (i = 0; i < load.threads; i++)
		require_ok(pthread_join(side->workers[i].thread, NULL));
	side->is_over = true;
	meet();
	return NULL;
}

/* ---- the end ----------------------------------------------------------- */

static void report(void)
{
	double messages = 0, bytes = 0;
	uint64_t sent = 0, lost = 0, overtaken = 0;
	struct worker *worker;
	unsigned int i, j;

	for (i = 0; i < 2 * load.threads; i++) {
		worker = &shared->sides[i / load.threads].workers[i % load.threads];
		if (!worker->asks)
			continue;
		require(worker->active_ns > 0 && worker->messages,
			"nothing was delivered meanwhile: of all %llu messages %llu",
			(unsigned long long)worker->complete.messages,
			(unsigned long long)delivered(worker).messages);
		messages += worker->messages * 1e9 / worker->active_ns;
		bytes += worker->bytes * 1e9 / worker->active_ns;
		for (j = 0; j < worker->count; j++) {
			sent += worker->halves[j]->posted;
			overtaken += worker->halves[j]->peer->overtaken;
		}
		lost += worker->complete.messages - delivered(worker).messages;
	}
	note("{\"messages\": %.1f, \"bytes\": %.0f, \"sent\": %llu, \"lost\": %llu, "
	     "\"overtaken\": %llu}", messages, bytes, (unsigned long long)sent,
	     (unsigned long long)lost, (unsigned long long)overtaken);
}

/* The other process has failed, and said why, or there is nothing left for it to do. */
static void child_ended(int signal)
{
	(void)signal;
	if (!atomic_load(&shared->sides[1].is_over))
		_exit(1);
}

static void run_processes(void)
{
	pid_t parent = getpid(), child;

	signal(SIGCHLD, child_ended);
	child = fork();
	require_sys(child);
	if (child) {
		run_side(&shared->sides[0]);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	require(getppid() == parent, "the other process has ended");
	run_side(&shared->sides[1]);
	_exit(0);
}

static void run_threads(void)
{
	pthread_t thread;

	require_ok(pthread_create(&thread, NULL, run_side, &shared->sides[1]));
	run_side(&shared->sides[0]);
	require_ok(pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
	read_workload(argc, argv);
	name_ends_from_environment();
	share();
	if (load.processes == 2)
		run_processes();
	else
		run_threads();
	report();
	return 0;
}
