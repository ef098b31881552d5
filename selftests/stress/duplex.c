// SPDX-License-Identifier: GPL-2.0
/*
 * Both ends of a connection at once are requesters that sleep until something is complete, and
 * nothing may be late: a transport timeout would hide that somebody was never woken, so it is
 * much longer than what may be late here.
 *
 * The bytes of each message are compared, and when it was posted is in it, so that the receiver
 * knows how long it took.  What of UC and UD may be lost, an option says; what is, is not late.
 */
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "stream.h"
#include "ud.h"

#define QKEY 0x11111111
#define GRH 40
#define MAX_WINDOW 64
#define RECVS 256
#define NS_PER_US 1000LL
#define ALONE_NS (200 * NS_PER_MS)
#define TAIL 8
#define MIN_SIZE (sizeof(struct stamp) + TAIL)

enum transport { RC, UC, UD };
enum kind { SEND, WRITE, READ, KINDS };

static const char *const transport_names[] = { "rc", "uc", "ud" };
static const char *const kind_names[] = { "send", "write", "read" };

static const char usage[] =
"usage: duplex [OPTION...]     the ends are $END_A and $END_B, which may be the same device\n"
"  -c rc|uc|ud    the transport\n"
"  -t MS          for how long\n"
"  -d MS          what takes longer is late\n"
"  -x N           so many messages may be lost each way (default: none)\n"
"  -r N           READs in progress\n"
"of the first end, and of the second where the letter stands once more:\n"
"  -k LIST        of send,write,read\n"
"  -s MIN-MAX     bytes of a message\n"
"  -w N           requests at a time\n"
"  -b 0|1         that many are posted together, and waited for together\n"
"  -T N           the QP's timeout (default: 21, that is 9 s)\n"
"  -i US          a pause of up to so long before each\n"
"  -p CPU         where it runs, as long as there is that one\n";

static struct {
	enum transport transport;
	int64_t duration_ns, late_ns;
	unsigned int lost, reads;
} options = {
	.duration_ns = 3 * NS_PER_S, .late_ns = 2 * NS_PER_S, .reads = 4,
};

/* Begins a message. */
struct stamp {
	uint64_t number;
	int64_t posted_ns;
};

struct op {
	enum kind kind;
	uint32_t size;
	int64_t posted_ns;
	uint64_t number;
};

struct side {
	const char *name;
	/* Options. */
	bool kinds[KINDS];
	uint32_t min, max;
	unsigned int window;
	bool together;
	int64_t pause_ns;
	int cpu;
	unsigned int timeout;

	struct end *end;
	struct rc qp;
	struct side *peer;
	struct ibv_comp_channel *channel;
	struct ibv_ah *ah;
	struct rng rng;
	struct buffer from;		/* messages, and what READs bring: a place for each request */
	struct buffer to;		/* what the peer writes: likewise */
	struct buffer inbox;		/* receives: likewise */
	struct buffer book;		/* what the peer reads */
	uint32_t stride, slots;
	uint64_t receive;		/* the next one */

	struct op ops[MAX_WINDOW];
	uint64_t posted, done;		/* requests */
	_Atomic uint64_t messages;	/* SENDs posted */
	_Atomic uint64_t arrived;	/* the number of the last message that came, and one more */
	uint64_t lost;
	int64_t next_ns;		/* when to post the next one */
	int64_t worst_ns;
	_Atomic bool over;		/* nothing is posted any more, and all is complete */
};

static struct side sides[2] = {
	{ .name = "a", .kinds = { true, true, true }, .min = 64, .max = 65536, .window = 8, .cpu = -1,
	  .timeout = 21 },
	{ .name = "b", .kinds = { true, true, true }, .min = 64, .max = 65536, .window = 8, .cpu = -1,
	  .timeout = 21 },
};

/* ---- what messages are like -------------------------------------------- */

static void pattern(struct buffer *buffer, uint64_t key)
{
	stream_fill(buffer->bytes, buffer->size, key, 0);
}

static void stamp(uint8_t *bytes, uint32_t size, uint64_t number, int64_t now)
{
	struct stamp stamp = { .number = number, .posted_ns = now };

	memcpy(bytes, &stamp, sizeof(stamp));
	memcpy(bytes + size - TAIL, &number, TAIL);
}

/* What lies between the stamp and the tail is as it was in its place when all began. */
static void expect_message(const struct side *by, const uint8_t *bytes, const struct op *op,
			   const char *what)
{
	const uint8_t *book = by->book.bytes;
	uint64_t tail;

	memcpy(&tail, bytes + op->size - TAIL, TAIL);
	require(tail == op->number, "%s %llu of %s, %u bytes: its end is that of %llu", what,
		(unsigned long long)op->number, by->name, op->size, (unsigned long long)tail);
	require(!memcmp(bytes + sizeof(struct stamp), book + sizeof(struct stamp),
			op->size - MIN_SIZE), "%s %llu of %s, %u bytes: wrong bytes", what,
		(unsigned long long)op->number, by->name, op->size);
}

/* Says who has what to do, and fails. */
static _Noreturn void late(void)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said)) {
		shell("rdma -dd resource show qp");
		shell("cd /sys/class/infiniband && grep . */ports/1/hw_counters/* | grep -v ':0$'");
		fail("that is late");
	}
	for (;;)
		pause();
}

static void note_time(struct side *side, int64_t took_ns, const char *what, uint64_t number)
{
	if (took_ns > side->worst_ns)
		side->worst_ns = took_ns;
	if (took_ns <= options.late_ns)
		return;
	note("%s: %s %llu took %lld ms", side->name, what, (unsigned long long)number,
	     (long long)(took_ns / NS_PER_MS));
	late();
}

/* ---- posting ----------------------------------------------------------- */

static enum kind choose_kind(struct side *side)
{
	enum kind kind;

	do
		kind = rng_below(&side->rng, KINDS);
	while (!side->kinds[kind]);
	return kind;
}

static void restore_message(struct side *side, size_t at, uint32_t size)
{
	uint8_t *bytes = side->from.bytes + at;

	memcpy(bytes, side->book.bytes, size);
}

/* Makes a request; its memory is the place of its number in the window. */
static void make(struct side *side, struct ibv_send_wr *wr, struct ibv_sge *sge, int64_t now)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[SEND] = IBV_WR_SEND, [WRITE] = IBV_WR_RDMA_WRITE, [READ] = IBV_WR_RDMA_READ,
	};
	size_t at = side->posted % MAX_WINDOW * side->stride;
	struct op *op = &side->ops[side->posted % MAX_WINDOW];
	struct side *peer = side->peer;

	op->kind = choose_kind(side);
	op->size = side->min + rng_below(&side->rng, side->max - side->min + 1);
	op->posted_ns = now;
	op->number = op->kind == SEND ? side->messages++ : side->posted;
	if (op->kind == READ)
		memset(side->from.bytes + at, 0, op->size);
	else
		restore_message(side, at, op->size);
	if (op->kind != READ)
		stamp(side->from.bytes + at, op->size, op->number, now);
	*sge = buffer_sge(&side->from, at, op->size);
	*wr = (struct ibv_send_wr){
		.wr_id = side->posted, .sg_list = sge, .num_sge = 1, .opcode = opcodes[op->kind],
		.send_flags = IBV_SEND_SIGNALED,
	};
	if (options.transport == UD) {
		wr->wr.ud.ah = side->ah;
		wr->wr.ud.remote_qpn = peer->qp.qp->qp_num;
		wr->wr.ud.remote_qkey = QKEY;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)(op->kind == READ ? peer->book.bytes :
								 peer->to.bytes + at);
		wr->wr.rdma.rkey = op->kind == READ ? peer->book.mr->rkey : peer->to.mr->rkey;
	}
	side->posted++;
}

/* By one doorbell. */
static void post(struct side *side, unsigned int count)
{
	struct ibv_send_wr wrs[MAX_WINDOW], *bad;
	struct ibv_sge sges[MAX_WINDOW];
	int64_t now = now_ns();
	unsigned int i;

	for (i = 0; i < count; i++) {
		make(side, &wrs[i], &sges[i], now);
		if (i)
			wrs[i - 1].next = &wrs[i];
	}
	require_ok(ibv_post_send(side->qp.qp, wrs, &bad));
}

static void plan_next(struct side *side)
{
	side->next_ns = now_ns() + (side->pause_ns ? rng_below(&side->rng, side->pause_ns) : 0);
}

static unsigned int outstanding(const struct side *side)
{
	return side->posted - side->done;
}

static void post_what_may_be(struct side *side)
{
	if (now_ns() < side->next_ns)
		return;
	if (side->together) {
		if (outstanding(side))
			return;
		post(side, side->window > 2 ? 2 + rng_below(&side->rng, side->window - 1) :
					      side->window);
		plan_next(side);
		return;
	}
	if (outstanding(side) < side->window) {
		post(side, 1);
		plan_next(side);
	}
}

static void listen_once(struct side *side)
{
	struct ibv_sge sge = buffer_sge(&side->inbox, side->receive % RECVS * side->stride,
					side->stride);

	post_recv(&side->qp, side->receive++, &sge);
}

/* ---- completions ------------------------------------------------------- */

static void complete_request(struct side *side, const struct ibv_wc *wc)
{
	const struct op *op = &side->ops[side->done % MAX_WINDOW];
	size_t at = side->done % MAX_WINDOW * side->stride;

	require(wc->status == IBV_WC_SUCCESS && wc->wr_id == side->done, "%s: request %llu: \"%s\"",
		side->name, (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
	note_time(side, now_ns() - op->posted_ns, kind_names[op->kind], wc->wr_id);
	if (op->kind == READ)
		require(!memcmp(side->from.bytes + at, side->peer->book.bytes, op->size),
			"%s: READ %llu of %u bytes: wrong bytes", side->name,
			(unsigned long long)wc->wr_id, op->size);
	if (op->kind == WRITE && options.transport == RC)
		expect_message(side, side->peer->to.bytes + at, op, "WRITE");
	side->done++;
}

static void complete_receive(struct side *side, const struct ibv_wc *wc)
{
	const uint8_t *bytes = side->inbox.bytes + wc->wr_id % RECVS * side->stride;
	struct op op = { .kind = SEND, .size = wc->byte_len };
	struct stamp stamp;

	require(wc->status == IBV_WC_SUCCESS, "%s: receive: \"%s\"", side->name,
		ibv_wc_status_str(wc->status));
	if (options.transport == UD) {
		bytes += GRH;
		op.size -= GRH;
	}
	memcpy(&stamp, bytes, sizeof(stamp));
	op.number = stamp.number;
	expect_message(side->peer, bytes, &op, "SEND");
	require(stamp.number >= side->arrived, "%s: message %llu once more", side->name,
		(unsigned long long)stamp.number);
	side->lost += stamp.number - side->arrived;
	require(side->lost <= options.lost, "%s: %llu messages are lost, %llu is the next", side->name,
		(unsigned long long)side->lost, (unsigned long long)stamp.number);
	note_time(side->peer, now_ns() - stamp.posted_ns, "message", stamp.number);
	side->arrived = stamp.number + 1;
	listen_once(side);
}

static void poll_all(struct side *side)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(side->qp.scq, 1, &wc) > 0)
		complete_request(side, &wc);
	while (ibv_poll_cq(side->qp.rcq, 1, &wc) > 0)
		complete_receive(side, &wc);
}

static void sleep_until(struct side *side, int64_t at_ns)
{
	struct pollfd wait = { .fd = side->channel->fd, .events = POLLIN };
	int64_t left = at_ns - now_ns();
	struct timespec time = { .tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S };
	struct ibv_cq *cq;
	void *context;
	int n;

	if (left <= 0)
		return;
	n = ppoll(&wait, 1, &time, NULL);
	require_sys(n);
	if (!n)
		return;
	while (!ibv_get_cq_event(side->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		require_ok(ibv_req_notify_cq(cq, 0));
	}
}

static void expect_none_late(const struct side *side)
{
	const struct op *op = &side->ops[side->done % MAX_WINDOW];
	int64_t age;

	if (!outstanding(side))
		return;
	age = now_ns() - op->posted_ns;
	if (age <= options.late_ns)
		return;
	note("%s sleeps since %lld ms: %s %llu of %u bytes, and %u more behind it", side->name,
	     (long long)(age / NS_PER_MS), kind_names[op->kind], (unsigned long long)side->done,
	     op->size, outstanding(side) - 1);
	late();
}

static int64_t earlier(int64_t one, int64_t other)
{
	return one < other ? one : other;
}

/* All that was sent has arrived, or never will. */
static bool has_all(const struct side *side)
{
	return side->peer->over && side->arrived >= side->peer->messages;
}

static void pin(const struct side *side)
{
	cpu_set_t set;

	if (side->cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(side->cpu, &set);
	require_sys(sched_setaffinity(0, sizeof(set), &set));
}

static void *run(void *argument)
{
	struct side *side = argument;
	int64_t end = now_ns() + options.duration_ns, give_up = end + 2 * options.late_ns, now;

	pin(side);
	require_ok(ibv_req_notify_cq(side->qp.scq, 0));
	require_ok(ibv_req_notify_cq(side->qp.rcq, 0));
	/* The first end alone for a while: who answers it answers nothing else. */
	side->next_ns = now_ns() + (side == &sides[1] ? ALONE_NS : 0);
	while (now = now_ns(), (now < end || outstanding(side) || !has_all(side)) && now < give_up) {
		if (now < end)
			post_what_may_be(side);
		poll_all(side);
		expect_none_late(side);
		if (now >= end && !outstanding(side))
			side->over = true;
		if (now < end && !side->together && outstanding(side) < side->window)
			sleep_until(side, side->next_ns);
		else if (now < end && side->together && !outstanding(side))
			sleep_until(side, side->next_ns);
		else
			sleep_until(side, earlier(now + options.late_ns / 4, give_up));
	}
	side->over = true;
	side->lost += side->peer->messages - side->arrived;
	require(side->lost <= options.lost, "%s: %llu messages are lost, also at the end", side->name,
		(unsigned long long)side->lost);
	return NULL;
}

/* ---- the start --------------------------------------------------------- */

static void create_ud(struct side *side, const struct rc_plan *plan)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = plan->cap };

	init.send_cq = ibv_create_cq(side->end->context, plan->cqe, NULL, side->channel, 0);
	init.recv_cq = ibv_create_cq(side->end->context, plan->cqe, NULL, side->channel, 0);
	require(init.send_cq && init.recv_cq, "ibv_create_cq: %s", strerror(errno));
	side->qp = (struct rc){ .end = side->end, .scq = init.send_cq, .rcq = init.recv_cq };
	side->qp.qp = ibv_create_qp(side->end->pd, &init);
	require(side->qp.qp, "ibv_create_qp: %s", strerror(errno));
	ud_start(&side->qp, QKEY);
}

static void create(struct side *side)
{
	struct rc_plan plan = default_plan;
	uint32_t max = sides[0].max > sides[1].max ? sides[0].max : sides[1].max;

	side->stride = (max + GRH + 4095) / 4096 * 4096;
	side->channel = ibv_create_comp_channel(side->end->context);
	require(side->channel, "ibv_create_comp_channel: %s", strerror(errno));
	require_sys(fcntl(side->channel->fd, F_SETFL, O_NONBLOCK));
	plan.unreliable = options.transport == UC;
	plan.cap.max_send_wr = MAX_WINDOW;
	plan.cap.max_recv_wr = RECVS;
	plan.cqe = 2 * RECVS;
	plan.channel = side->channel;
	buffer_create(&side->from, side->end, MAX_WINDOW * side->stride, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&side->to, side->end, MAX_WINDOW * side->stride, plan.access);
	buffer_create(&side->inbox, side->end, RECVS * side->stride, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&side->book, side->end, side->stride, plan.access);
	pattern(&side->book, (uintptr_t)side);
	side->rng.state = (uintptr_t)side ^ now_ns();
	if (options.transport == UD) {
		create_ud(side, &plan);
		return;
	}
	rc_create(&side->qp, side->end, &plan);
}

static void connect_both(void)
{
	struct rc_plan plan = default_plan;
	struct rc_address a, b;

	plan.unreliable = options.transport == UC;
	plan.rd_atomic = options.reads;
	plan.mtu = sides[0].end->port.active_mtu;
	if (options.transport == UD) {
		sides[0].ah = ah_create(sides[0].end, sides[1].end);
		sides[1].ah = ah_create(sides[1].end, sides[0].end);
		return;
	}
	a = rc_address(&sides[0].qp);
	b = rc_address(&sides[1].qp);
	plan.timeout = sides[0].timeout;
	rc_connect(&sides[0].qp, &b, &plan);
	plan.timeout = sides[1].timeout;
	rc_connect(&sides[1].qp, &a, &plan);
}

static void read_kinds(struct side *side, char *list)
{
	enum kind kind;
	char *name;

	memset(side->kinds, 0, sizeof(side->kinds));
	while ((name = strsep(&list, ","))) {
		for (kind = 0; kind < KINDS && strcmp(name, kind_names[kind]); kind++)
			;
		require(kind < KINDS, "no such kind: %s", name);
		side->kinds[kind] = true;
	}
}

/* How often the letter stood before: whose option it is. */
static struct side *whose(int letter)
{
	static unsigned int times[256];

	require(times[letter] < 2, "too many -%c", letter);
	return &sides[times[letter]++];
}

static void read_options(int argc, char **argv)
{
	struct side *side;
	int letter;

	while ((letter = getopt(argc, argv, "c:t:d:x:r:T:k:s:w:b:i:p:")) != -1) {
		switch (letter) {
		case 'c':
			for (options.transport = RC; strcmp(optarg, transport_names[options.transport]);)
				require(++options.transport <= UD, "no such transport: %s", optarg);
			break;
		case 't': options.duration_ns = atoll(optarg) * NS_PER_MS; break;
		case 'd': options.late_ns = atoll(optarg) * NS_PER_MS; break;
		case 'x': options.lost = atoi(optarg); break;
		case 'r': options.reads = atoi(optarg); break;
		case 'T': whose(letter)->timeout = atoi(optarg); break;
		case 'k': read_kinds(whose(letter), optarg); break;
		case 's':
			side = whose(letter);
			require(sscanf(optarg, "%u-%u", &side->min, &side->max) == 2 &&
				side->min >= MIN_SIZE && side->min <= side->max, "no sizes: %s", optarg);
			break;
		case 'w':
			side = whose(letter);
			side->window = atoi(optarg);
			require(side->window && side->window <= MAX_WINDOW, "no window: %s", optarg);
			break;
		case 'b': whose(letter)->together = atoi(optarg); break;
		case 'i': whose(letter)->pause_ns = atoll(optarg) * NS_PER_US; break;
		case 'p': whose(letter)->cpu = atoi(optarg); break;
		default: fail("%s", usage);
		}
	}
	for (side = sides; side < sides + 2; side++)
		require(options.transport == RC || !side->kinds[READ], "READs are for RC");
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	unsigned int i;

	read_options(argc, argv);
	name_ends_from_environment();
	end_open(&ends[0], FAMILY_IPV4);
	end_open(&ends[1], FAMILY_IPV4);
	for (i = 0; i < 2; i++) {
		sides[i].end = &ends[i];
		sides[i].peer = &sides[!i];
		create(&sides[i]);
	}
	connect_both();
	for (i = 0; i < 2; i++)
		while (sides[i].receive < RECVS)
			listen_once(&sides[i]);
	note("started");
	for (i = 0; i < 2; i++)
		require_ok(pthread_create(&threads[i], NULL, run, &sides[i]));
	for (i = 0; i < 2; i++)
		require_ok(pthread_join(threads[i], NULL));
	for (i = 0; i < 2; i++)
		note("%s: %llu requests, the slowest took %lld ms; %llu messages lost", sides[i].name,
		     (unsigned long long)sides[i].done, (long long)(sides[i].worst_ns / NS_PER_MS),
		     (unsigned long long)sides[!i].lost);
	return 0;
}
