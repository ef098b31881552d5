// SPDX-License-Identifier: GPL-2.0
/*
 * A process whose memory does not come: the file STALL_FILE, which it maps, is on a file system that
 * does not answer.  Most of these tests do their worst, say "stalled", and stay until they are killed;
 * stalls.test looks at what others notice of that, and at how they end.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/harness.h"
#include "../lib/ud.h"
#include "../lib/verbs.h"

#define QKEY 0x11111111

/* What does not wait for memory returns within this time. */
#define AT_ONCE_MS (2000 * time_scale())

static struct rc_plan plan;
static struct buffer good, slow;	/* of end a */
static struct buffer far;		/* of end b */

/* ---- memory ------------------------------------------------------------ */

/* As many as STALL_COUNT of the environment says. */
static unsigned int count_or(unsigned int usual)
{
	const char *count = getenv("STALL_COUNT");

	return count ? strtoul(count, NULL, 0) : usual;
}

static uint8_t *map_stalled(size_t size)
{
	const char *path = getenv("STALL_FILE");
	int file, kind = MAP_SHARED;
	uint8_t *bytes;

	require(path, "set STALL_FILE to a file that does not come");
	file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0 && errno == EROFS) {
		file = open(path, O_RDONLY | O_CLOEXEC);
		kind = MAP_PRIVATE;
	}
	require(file >= 0, "%s: %s", path, strerror(errno));
	bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, kind, file, 0);
	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	close(file);
	/* Each page is read by itself. */
	require_sys(madvise(bytes, size, MADV_RANDOM));
	return bytes;
}

static void set_up(size_t pages)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cap = (struct ibv_qp_cap){
		.max_send_wr = 8, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
	};
	plan.cqe = 16;
	/* Nobody gives up meanwhile. */
	plan.timeout = 22;
	buffer_create(&good, &ends[0], 64 << 10, REMOTE);
	register_at(&slow, &ends[0], map_stalled(pages * PAGE), pages * PAGE,
		    REMOTE | IBV_ACCESS_ON_DEMAND);
}

_Noreturn static void stay(void)
{
	note("stalled");
	for (;;)
		pause();
}

/* ---- advice ------------------------------------------------------------ */

static unsigned int accepted, refused;
static int64_t slowest_ms;

/* Advice that nobody waits for; more than somebody may ask for at a time may be refused. */
static void prefetch_page(struct ibv_pd *pd, const struct buffer *buffer, size_t page)
{
	struct ibv_sge sge = buffer_sge(buffer, page * PAGE, PAGE);
	int64_t begin = now_ns(), took;
	int err = advise(pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1);

	require(!err || err == EAGAIN || err == EBUSY || err == ENOMEM, "advice: %s", strerror(err));
	took = (now_ns() - begin) / NS_PER_MS;
	if (took > slowest_ms)
		slowest_ms = took;
	accepted += !err;
	refused += !!err;
}

_Noreturn static void prefetched(void)
{
	note("%u accepted, %u refused, the slowest after %lld ms", accepted, refused,
	     (long long)slowest_ms);
	require(accepted, "none");
	require(slowest_ms < AT_ONCE_MS, "advice waits");
	stay();
}

TEST(prefetches)
{
	unsigned int count = count_or(1100), i;

	set_up(count);
	for (i = 0; i < count; i++)
		prefetch_page(ends[0].pd, &slow, i);
	prefetched();
}

/* More than any user's processes need who page in on demand, on a machine of this size. */
#define TOO_MANY_CONTEXTS 256

/* What each may have, for many contexts of one process: all that its user gets. */
TEST(contexts)
{
	const unsigned int each = 20;
	unsigned int count = count_or(64), opened, i;
	struct buffer *buffers = xcalloc(count, sizeof(*buffers));

	set_up(count * each);
	for (i = 0; i < count; i++) {
		struct end end = { .context = ibv_open_device(ends[0].context->device) };

		require(end.context, "ibv_open_device: %s", strerror(errno));
		end.pd = ibv_alloc_pd(end.context);
		require(end.pd, "ibv_alloc_pd: %s", strerror(errno));
		buffers[i] = (struct buffer){ .bytes = slow.bytes, .size = slow.size };
		buffers[i].mr = ibv_reg_mr(end.pd, slow.bytes, slow.size, IBV_ACCESS_ON_DEMAND);
		if (!buffers[i].mr && errno == ENOMEM)
			break;
		require(buffers[i].mr, "ibv_reg_mr: %s", strerror(errno));
	}
	opened = i;
	note("%u contexts may page in", opened);
	require(opened >= 64 || opened == count, "so few are not enough for anybody");
	require(opened < TOO_MANY_CONTEXTS, "nothing bounds them");
	for (i = 0; i < opened * each; i++)
		prefetch_page(buffers[i / each].mr->pd, &buffers[i / each], i);
	prefetched();
}

/* Waited for. */
TEST(waits_for_advice)
{
	struct ibv_sge sge;
	int err;

	set_up(64);
	sge = buffer_sge(&slow, 0, slow.size);
	note("stalled");
	err = advise(ends[0].pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
		     IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &sge, 1);
	fail("the advice is over: %s", strerror(err));
}

#define MANY_PIECES 16
#define PIECE (0xffffffffU & ~(PAGE - 1))

/* About a range that takes long to go through, though it takes nothing to be made. */
static void advise_much(uint32_t flags)
{
	size_t size = MANY_PIECES * (size_t)PIECE;
	struct ibv_sge sges[MANY_PIECES];
	struct buffer much;
	uint8_t *bytes;
	int i, err;

	name_ends_from_environment();
	open_ends();
	bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	if (has_transparent_huge_pages())
		require_sys(madvise(bytes, size, MADV_NOHUGEPAGE));
	register_at(&much, &ends[0], bytes, size, IBV_ACCESS_ON_DEMAND);
	for (i = 0; i < MANY_PIECES; i++)
		sges[i] = buffer_sge(&much, i * (size_t)PIECE, PIECE);
	note("stalled");
	err = advise(ends[0].pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, flags, sges, MANY_PIECES);
	require_ok(err);
	if (flags)
		fail("the advice is over");
	for (;;)
		pause();
}

TEST(waits_for_much) { advise_much(IB_UVERBS_ADVISE_MR_FLAG_FLUSH); }
TEST(asks_for_much) { advise_much(0); }

/* ---- queue pairs ------------------------------------------------------- */

static void connect_to_itself(struct rc *rc)
{
	struct rc_address own;

	rc_create(rc, &ends[0], &plan);
	own = rc_address(rc);
	rc_connect(rc, &own, &plan);
}

static uint64_t slow_at(size_t page)
{
	return (uintptr_t)slow.bytes + page * PAGE;
}

/* A message that comes waits for memory. */
static void stall_receiver(struct rc *from, struct rc *to, unsigned int way, size_t page)
{
	struct ibv_sge ours = buffer_sge(&good, 0, 100), theirs = buffer_sge(&slow, page * PAGE, 100);

	switch (way % 3) {
	case 0:
		post_send(from, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &ours, slow_at(page),
			  slow.mr->rkey);
		break;
	case 1:
		post_recv(to, 2, &theirs);
		post_send(from, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &ours, 0, 0);
		break;
	default:
		post_send(from, 1, plan.unreliable ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
			  IBV_SEND_SIGNALED, &ours, slow_at(page), slow.mr->rkey);
	}
}

/* One that is to go does. */
static void stall_sender(struct rc *rc, size_t page)
{
	struct ibv_sge sge = buffer_sge(&slow, page * PAGE, 100);

	post_send(rc, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
}

static struct rc *rcs;

/* Connected to themselves, each half waiting for a page of its own. */
static void stall_queues(unsigned int count)
{
	unsigned int i;

	set_up(2 * count);
	rcs = xcalloc(count, sizeof(*rcs));
	for (i = 0; i < count; i++) {
		plan.unreliable = i % 4 == 3;
		connect_to_itself(&rcs[i]);
	}
	for (i = 0; i < count; i++) {
		plan.unreliable = i % 4 == 3;
		stall_receiver(&rcs[i], &rcs[i], i, 2 * i);
		stall_sender(&rcs[i], 2 * i + 1);
	}
}

TEST(queues)
{
	stall_queues(count_or(64));
	stay();
}

static atomic_bool has_stalled;
static atomic_uint mapped;

static void *maps_and_unmaps(void *unused)
{
	(void)unused;
	while (!has_stalled)
		usleep(1000);
	for (;;) {
		void *bytes = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (bytes == MAP_FAILED)
			continue;
		munmap(bytes, PAGE);
		mapped++;
	}
	return NULL;
}

/* Somebody wants to change the address space meanwhile, who may have to wait. */
TEST(queues_and_changes)
{
	pthread_t thread;

	require_ok(pthread_create(&thread, NULL, maps_and_unmaps, NULL));
	stall_queues(count_or(16));
	has_stalled = true;
	stay();
}

/*
 * The first page of a message comes, those that will be needed do not.  That is nobody's trouble who
 * changes the address space.
 */
TEST(ahead)
{
	static struct rc_pair pair;
	int64_t deadline;
	struct ibv_sge sge;
	pthread_t thread;

	set_up(16);
	require(mmap(slow.bytes, PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == slow.bytes,
		"mmap: %s", strerror(errno));
	buffer_create(&far, &ends[1], 16 * PAGE, REMOTE);
	pair_open(&pair, &plan);
	sge = buffer_sge(&slow, 0, 16 * PAGE);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)far.bytes,
		  far.mr->rkey);
	expect_no_wc(pair.a.scq, 500);
	has_stalled = true;
	require_ok(pthread_create(&thread, NULL, maps_and_unmaps, NULL));
	deadline = now_ns() + 5 * NS_PER_S * time_scale();
	while (mapped < 20) {
		require(now_ns() < deadline, "the address space cannot be changed");
		usleep(1000);
	}
}

/* The other end is that of another device. */
TEST(connections)
{
	unsigned int count = count_or(32), i;
	struct rc_pair *pairs = xcalloc(count, sizeof(*pairs));
	struct ibv_sge sge;

	set_up(2 * count);
	buffer_create(&far, &ends[1], PAGE, IBV_ACCESS_LOCAL_WRITE);
	sge = buffer_sge(&far, 0, 100);
	for (i = 0; i < count; i++) {
		plan.unreliable = i % 4 == 3;
		pair_open(&pairs[i], &plan);
	}
	for (i = 0; i < count; i++) {
		post_send(&pairs[i].b, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, slow_at(2 * i),
			  slow.mr->rkey);
		stall_sender(&pairs[i].a, 2 * i + 1);
	}
	stay();
}

/* ---- what does not end ------------------------------------------------- */

static long memory_kb(const char *key)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	long kb = -1;

	require(file, "meminfo: %s", strerror(errno));
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, key, strlen(key)))
			kb = atol(line + strlen(key) + 1);
	fclose(file);
	require(kb >= 0, "no %s", key);
	return kb;
}

#define MESSAGE (64U << 10)
#define DEPTH 64
/* What may wait for a queue pair, in all. */
#define MOST_KB (8 << 10)

/* More than that is enough to know. */
#define TOO_MUCH_KB (1 << 20)

struct flood {
	unsigned int senders;
	bool is_held_back;	/* posting is, by what waits */
	void (*post)(unsigned int sender);
	struct ibv_cq *(*cq)(unsigned int sender);
};

static void flood(const struct flood *flood)
{
	long before = memory_kb("MemAvailable"), least = before, now;
	unsigned int done = 0, i;
	int64_t begin = now_ns();

	while (now_ns() < begin + chance_ns() && before - least < TOO_MUCH_KB) {
		for (i = 0; i < flood->senders; i++) {
			flood->post(i);
			done += drain_cq(flood->cq(i));
		}
		now = memory_kb("MemAvailable");
		least = now < least ? now : least;
	}
	note("%u messages complete, %ld KiB of memory taken", done, before - least);
	require(before - least < MOST_KB * (long)flood->senders + (32 << 10),
		"memory is taken without a bound");
	if (flood->is_held_back)
		require(done * (MESSAGE >> 10) <= MOST_KB * flood->senders, "nothing holds it back");
}

static void write_to_slow(unsigned int sender)
{
	struct ibv_sge sge = buffer_sge(&good, 0, MESSAGE);

	while (!try_post_send(&rcs[sender], 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, slow_at(0),
			      slow.mr->rkey))
		;
}

static struct ibv_cq *cq_of(unsigned int sender)
{
	return rcs[sender].scq;
}

/* What many may have waiting has a bound, too; beyond that UC loses messages. */
static void writes_to_itself(unsigned int senders, bool unreliable)
{
	struct flood writes = { senders, senders == 1 || !unreliable, write_to_slow, cq_of };
	unsigned int i;

	set_up(MESSAGE / PAGE);
	plan.unreliable = unreliable;
	plan.cap.max_send_wr = DEPTH;
	plan.cqe = 2 * DEPTH;
	rcs = xcalloc(senders, sizeof(*rcs));
	for (i = 0; i < senders; i++)
		connect_to_itself(&rcs[i]);
	flood(&writes);
}

TEST(writes_without_end) { writes_to_itself(1, true); }
TEST(many_write_without_end) { writes_to_itself(16, true); }
TEST(reliable_writes_without_end) { writes_to_itself(4, false); }

/* Between two devices, where what nobody waits for may be lost. */
static struct rc_pair writers[4];

static void write_to_peer(unsigned int sender)
{
	struct ibv_sge sge = buffer_sge(&far, 0, MESSAGE);

	while (!try_post_send(&writers[sender].b, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			      slow_at(0), slow.mr->rkey))
		;
}

static struct ibv_cq *cq_of_peer(unsigned int sender)
{
	return writers[sender].b.scq;
}

TEST(peer_writes_without_end)
{
	struct flood writes = { ARRAY_SIZE(writers), false, write_to_peer, cq_of_peer };
	unsigned int i;

	set_up(MESSAGE / PAGE);
	buffer_create(&far, &ends[1], MESSAGE, IBV_ACCESS_LOCAL_WRITE);
	plan.unreliable = true;
	plan.cap.max_send_wr = DEPTH;
	plan.cqe = 2 * DEPTH;
	for (i = 0; i < ARRAY_SIZE(writers); i++)
		pair_open(&writers[i], &plan);
	flood(&writes);
}

/* To a queue pair of the same device. */
static struct rc sender, receiver;
static struct ibv_ah *ah;

static void send_datagrams(unsigned int unused)
{
	struct ibv_sge sge = buffer_sge(&good, 0, 4000);

	(void)unused;
	while (!ud_post(&sender, ah, receiver.qp->qp_num, QKEY, 0, IBV_SEND_SIGNALED, &sge))
		;
}

static struct ibv_cq *cq_of_sender(unsigned int unused)
{
	(void)unused;
	return sender.scq;
}

/* A sender, and a receiver whose memory does not come. */
static void stall_datagrams(void)
{
	struct ibv_sge sge;

	set_up(MESSAGE / PAGE);
	plan.cap.max_send_wr = DEPTH;
	ud_create(&sender, &ends[0], &plan.cap, 2 * DEPTH);
	ud_create(&receiver, &ends[0], &plan.cap, 16);
	ud_start(&sender, QKEY);
	ud_start(&receiver, QKEY);
	ah = ah_create(&ends[0], &ends[0]);
	sge = buffer_sge(&slow, 0, MESSAGE);
	post_recv(&receiver, 1, &sge);
}

TEST(datagrams_without_end)
{
	struct flood datagrams = { 1, false, send_datagrams, cq_of_sender };

	stall_datagrams();
	flood(&datagrams);
}

/* ---- verbs ------------------------------------------------------------- */

#define at_once(call)								\
	do {									\
		int64_t begin_ = now_ns();					\
		int err_ = (call);						\
		long long took_ = (now_ns() - begin_) / NS_PER_MS;		\
		require(!err_, "%s: %s", #call, strerror(err_));		\
		if (took_ > longest)						\
			longest = took_;					\
		require(took_ < AT_ONCE_MS, "%lld ms are too long: %s", took_, #call); \
	} while (0)

static int modify(struct rc *rc, enum ibv_qp_state to)
{
	return rc_try_modify(rc, to, NULL, NULL);
}

/*
 * Everything that there is of it, while it is waited for.  The library changes the address space, too:
 * who waits holds no lock of that.
 */
TEST(verbs_at_once)
{
	const unsigned int count = 12;
	struct ibv_mr *mr;
	long long longest = 0;
	struct ibv_wc wc;
	unsigned int i;

	stall_queues(count);
	usleep(300000);
	for (i = 0; i < count; i++) {
		at_once(rc_state(&rcs[i]) != IBV_QPS_RTS);
		at_once(modify(&rcs[i], i % 3 == 1 ? IBV_QPS_RESET : IBV_QPS_ERR));
		/* What was posted is flushed. */
		if (i % 3 != 1)
			require(poll_within(rcs[i].scq, &wc, SOON_MS), "nothing is flushed");
	}
	for (i = 0; i < count; i += 2)
		at_once(ibv_destroy_qp(rcs[i].qp));
	at_once(ibv_dereg_mr(slow.mr));
	mr = ibv_reg_mr(ends[0].pd, slow.bytes, slow.size, REMOTE | IBV_ACCESS_ON_DEMAND);
	require(mr, "ibv_reg_mr: %s", strerror(errno));
	at_once(ibv_dereg_mr(mr));
	for (i = 1; i < count; i += 2)
		at_once(ibv_destroy_qp(rcs[i].qp));
	for (i = 0; i < count; i++) {
		at_once(ibv_resize_cq(rcs[i].scq, 100));
		at_once(ibv_destroy_cq(rcs[i].scq));
		at_once(ibv_destroy_cq(rcs[i].rcq));
	}
	at_once(ibv_dereg_mr(good.mr));
	at_once(ibv_dealloc_pd(ends[0].pd));
	at_once(ibv_close_device(ends[0].context));
	note("%lld ms at most", longest);
}

/* ---- userfaultfd ------------------------------------------------------- */

/* Memory for which somebody is asked who never answers. */
static uint8_t *map_unanswered(size_t size)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	uint8_t *bytes = map_pages(size);
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	require(fd >= 0, "userfaultfd: %s", strerror(errno));
	require_sys(ioctl(fd, UFFDIO_API, &api));
	area.range.start = (uintptr_t)bytes;
	area.range.len = size;
	require_sys(ioctl(fd, UFFDIO_REGISTER, &area));
	return bytes;
}

/* Another receiver of the same device gets its datagrams, however many the stalled one has got. */
TEST(datagrams_pass)
{
	struct rc other;
	struct ibv_sge sge;
	unsigned int i;

	stall_datagrams();
	ud_create(&other, &ends[0], &plan.cap, 16);
	ud_start(&other, QKEY);
	for (i = 0; i < 4000; i++) {
		sge = buffer_sge(&good, 0, 100);
		require_ok(ud_post(&sender, ah, receiver.qp->qp_num, QKEY, 2, IBV_SEND_SIGNALED, &sge));
		expect_wc(sender.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	}
	sge = buffer_sge(&good, 0, 4096);
	post_recv(&other, 3, &sge);
	sge = buffer_sge(&good, 8192, 100);
	require_ok(ud_post(&sender, ah, other.qp->qp_num, QKEY, 4, IBV_SEND_SIGNALED, &sge));
	expect_wc(sender.scq, 4, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(other.rcq, 3, IBV_WC_SUCCESS, SOON_MS);
}

/* The memory manager may ask for such memory on a device's behalf, or refuse at once. */
TEST(unanswered)
{
	struct buffer absent;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct rc rc;

	set_up(1);
	register_at(&absent, &ends[0], map_unanswered(16 * PAGE), 16 * PAGE,
		    REMOTE | IBV_ACCESS_ON_DEMAND);
	connect_to_itself(&rc);
	sge = buffer_sge(&absent, 0, 100);
	post_send(&rc, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	if (poll_within(rc.scq, &wc, 1000)) {
		note("refused: %s", ibv_wc_status_str(wc.status));
		require(wc.status == IBV_WC_LOC_PROT_ERR, "not that");
	} else {
		note("waited for");
	}
	stay();
}

TEST_HARNESS_MAIN
