// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that changes its kind while it is used: a thread takes pages away, moves them, has them
 * merged, swapped out or poisoned, over and over, while the device sends from them and receives into
 * them in every way.  Whatever the moment, each byte that is read must be one that the memory has held
 * there since it was filled, each byte that was written must be there unless it was taken away
 * afterwards, and no memory that the pages belong to later may change: the thread has fresh
 * memory right after each change, which often gets those very pages, and looks whether it keeps what
 * is in it.
 *
 * Each change is a test, and each of its cells ends as it is said here.  Which moments a run meets is
 * chance: the bytes prove nothing about those that it does not meet.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "../lib/harness.h"
#include "../lib/stream.h"
#include "../lib/ways.h"

#define PAGES 16
#define SIZE (PAGES * PAGE)
#define SIZE_MOST (PAGES * PAGE_MOST)
#define HUGE huge_page_size()

#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

#define BEGIN 77
#define VICTIM 0x5a
/* How many rounds of a way must have met a change, and how many are tried for that at most. */
#define ROUNDS (getenv("QUICK") ? 2 : 6)
#define MOST_ROUNDS 400

struct memory {
	uint8_t *bytes;
	uint8_t *other;		/* more that belongs to it */
	size_t other_size;
	int fd;
	struct ibv_mr *mr[2];	/* of either end */
};

/* What becomes of some of the pages. */
enum toll {
	KEEPS,		/* nothing */
	ODD,		/* every other one may read as zeroes, and be written to in vain */
	TAIL,		/* the same of the second half */
};

FIXTURE(changes) {};

FIXTURE_VARIANT(changes) {
	const char *title;
	void (*make)(struct memory *memory);
	/* Once, and then all is as before but for the toll. */
	void (*turn)(struct memory *memory);
	/* Between filling it and the request; not if it is pinned. */
	void (*ready)(struct memory *memory);
	enum toll toll;
	bool fails;		/* there are moments without the memory */
	bool parts;		/* what is pinned has nothing to do with the mapping any more */
	bool pins_exactly;	/* but not if it is pinned */
	int pinned;		/* the errno of the registration */
	bool rare;		/* a change takes long: a few are enough */
	bool counts;		/* `effects` says whether any came of it, if it is not pinned */
};

static const FIXTURE_VARIANT(changes) *change;
static struct memory memory;
static enum registration how;
static unsigned int effects;

static void *map_at(void *at, size_t size, int protection, int flags, int fd)
{
	void *bytes = mmap(at, size, protection, flags, fd, 0);

	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	return bytes;
}

/* ---- the memory -------------------------------------------------------- */

static void make_anonymous(struct memory *m)
{
	m->bytes = map_pages(SIZE);
}

static void make_shared(struct memory *m, int fd)
{
	require_sys(fd);
	require_sys(ftruncate(fd, SIZE));
	m->fd = fd;
	m->bytes = map_at(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
}

static void make_memfd(struct memory *m)
{
	make_shared(m, memfd_create("changes", MFD_CLOEXEC));
}

static void make_ext4(struct memory *m)
{
	const char *dir = getenv("EXT4_DIR");

	if (!dir)
		skip("no EXT4_DIR");
	make_shared(m, open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
}

static void make_mergeable(struct memory *m)
{
	uint8_t *both = map_pages(2 * SIZE);

	m->bytes = both;
	m->other = both + SIZE;
	require_sys(madvise(both, 2 * SIZE, MADV_MERGEABLE));
}

/* Within one huge page. */
static void make_huge(struct memory *m)
{
	uint8_t *area = map_at(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	m->other = area + -(uintptr_t)area % HUGE;
	m->other_size = HUGE;
	make_huge_pages(m->other, HUGE);
	memset(m->other, 1, HUGE);
	m->bytes = m->other + HUGE / 2;
}

/* ---- changes ----------------------------------------------------------- */

#define PAGE_IS_PRESENT (1ULL << 63)

/* 0 if the process has no page there. */
static uint64_t frame_of(const uint8_t *address)
{
	static int fd = -1;
	uint64_t entry = 0;

	if (fd < 0)
		fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	require(pread(fd, &entry, 8, (uintptr_t)address / PAGE * 8) == 8, "pagemap: %s",
		strerror(errno));
	return entry & PAGE_IS_PRESENT ? entry & ((1ULL << 55) - 1) : 0;
}

static void advise_odd(struct memory *m, int advice)
{
	size_t i;

	for (i = 1; i < PAGES; i += 2)
		require_sys(madvise(m->bytes + i * PAGE, PAGE, advice));
}

static void advise_all(struct memory *m, int advice)
{
	require_sys(madvise(m->bytes, SIZE, advice));
}

static void dontneed(struct memory *m)
{
	advise_odd(m, MADV_DONTNEED);
}

/* They go when the memory is wanted, which is now. */
static void free_lazily(struct memory *m)
{
	advise_odd(m, MADV_FREE);
	advise_odd(m, MADV_PAGEOUT);
}

static void cold(struct memory *m)
{
	advise_all(m, MADV_COLD);
}

/* Returns how many pages are there now. */
static unsigned int move_to_node(struct memory *m, int node)
{
	int nodes[PAGES], status[PAGES], i;
	unsigned int moved = 0;
	void *pages[PAGES];

	for (i = 0; i < PAGES; i++) {
		pages[i] = m->bytes + i * PAGE;
		nodes[i] = node;
	}
	require_sys(syscall(SYS_move_pages, 0, PAGES, pages, nodes, status, 2 /* MPOL_MF_MOVE */));
	for (i = 0; i < PAGES; i++)
		moved += status[i] == node;
	return moved;
}

/* Of pages that came a moment ago each CPU keeps some for itself, which are let alone.  Whoever moves
 * pages has them given up first. */
static void page_out(struct memory *m)
{
	size_t i;

	move_to_node(m, 0);
	advise_all(m, MADV_PAGEOUT);
	for (i = 0; i < PAGES; i++)
		effects += !frame_of(m->bytes + i * PAGE);
}

/* Written to the disk first, so that its pages can go. */
static void write_and_page_out(struct memory *m)
{
	require_sys(msync(m->bytes, SIZE, MS_SYNC));
	page_out(m);
}

static void remove_odd(struct memory *m)
{
	advise_odd(m, MADV_REMOVE);
}

static void punch_holes(struct memory *m)
{
	size_t i;

	for (i = 1; i < PAGES; i += 2)
		require_sys(fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * PAGE,
				      PAGE));
}

static void truncate_and_extend(struct memory *m)
{
	require_sys(ftruncate(m->fd, SIZE / 2));
	require_sys(ftruncate(m->fd, SIZE));
}

static void move(uint8_t *from, uint8_t *to)
{
	require(mremap(from, SIZE / 2, SIZE / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to,
		"mremap: %s", strerror(errno));
}

/* Nobody maps anything meanwhile. */
static void move_away_and_back(struct memory *m)
{
	if (!m->other) {
		m->other = map_pages(SIZE / 2);
		m->other_size = SIZE / 2;
	}
	move(m->bytes + SIZE / 2, m->other);
	move(m->other, m->bytes + SIZE / 2);
	/* Its place is kept. */
	map_at(m->other, SIZE / 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
}

static void forbid_and_allow(struct memory *m)
{
	require_sys(mprotect(m->bytes, SIZE, PROT_NONE));
	require_sys(mprotect(m->bytes, SIZE, PROT_READ));
	require_sys(mprotect(m->bytes, SIZE, PROT_READ | PROT_WRITE));
}

/* The child writes to all of its memory. */
static void fork_a_child(struct memory *m)
{
	pid_t child = fork();
	size_t i;

	require_sys(child);
	if (!child) {
		for (i = 0; i < SIZE; i += PAGE)
			m->bytes[i] = ~m->bytes[i];
		_exit(0);
	}
	require_sys(waitpid(child, NULL, 0));
}

static void take_apart(struct memory *m)
{
	require_sys(madvise(m->bytes, 2 * SIZE, MADV_UNMERGEABLE));
	require_sys(madvise(m->bytes, 2 * SIZE, MADV_MERGEABLE));
	usleep(1000);
}

/* With memory that holds the same. */
static void wait_until_merged(struct memory *m)
{
	int64_t deadline = now_ns() + 6 * SOON_MS * NS_PER_MS;

	memcpy(m->other, m->bytes, SIZE);
	while (merged_pages() < 2 * PAGES) {
		require(now_ns() < deadline, "only %zu pages are merged", merged_pages());
		usleep(1000);
	}
}

static void collapse_and_split(struct memory *m)
{
	/* Splits it: a page behind what is used goes. */
	drop_pages(m->other, PAGE);
	m->other[0] = 1;
	if (!madvise(m->other, HUGE, MADV_COLLAPSE))
		effects++;
	else
		require(errno == EAGAIN || errno == EBUSY || errno == ENOMEM || errno == EINVAL,
			"MADV_COLLAPSE: %s", strerror(errno));
}

static void compact(struct memory *m)
{
	(void)m;
	compact_memory();
}

/* One page gets another frame, and the old one is never used again.  What is pinned, or used at that
 * moment, stays. */
static void take_offline_softly(struct memory *m)
{
	static unsigned int page;

	usleep(1000);
	if (!madvise(m->bytes + page++ % PAGES * PAGE, PAGE, MADV_SOFT_OFFLINE))
		effects++;
	else if (errno == EINVAL)
		skip("no MADV_SOFT_OFFLINE");
	else
		require(errno == EBUSY || errno == EAGAIN || errno == EIO, "MADV_SOFT_OFFLINE: %s",
			strerror(errno));
}

/* To the other node, and back the next time. */
static void migrate(struct memory *m)
{
	static int node;

	node = !node;
	effects += move_to_node(m, node);
}

static void make_on_nodes(struct memory *m)
{
	if (access("/sys/devices/system/node/node1", F_OK))
		skip("there is one node alone");
	make_anonymous(m);
}

/* ---- blocks of memory that are taken from the machine ------------------ */

#define BLOCKS "/sys/devices/system/memory/"
#define MOST_BLOCKS 64
#define MOST_TRIES 4000
#define MOVABLE (1UL << 30)	/* as much as there may be of memory that can go */

static uint64_t block_pages(void)
{
	FILE *file = fopen(BLOCKS "block_size_bytes", "re");
	uint64_t size = 0;

	if (!file)
		skip("no blocks of memory: %s", strerror(errno));
	require(fscanf(file, "%lx", &size) == 1, "block_size_bytes");
	fclose(file);
	return size / PAGE;
}

static bool set_state(uint64_t block, const char *state)
{
	char path[128];
	bool done;
	int fd;

	snprintf(path, sizeof(path), BLOCKS "memory%lu/state", block);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = fd >= 0 && write(fd, state, strlen(state)) > 0;
	close(fd);
	return done;
}

/* What is not in such a zone may never be able to go. */
static bool is_movable(uint64_t block)
{
	char path[128], zones[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), BLOCKS "memory%lu/valid_zones", block);
	file = fopen(path, "re");
	if (!file)
		return false;
	require(fgets(zones, sizeof(zones), file), "%s: %s", path, strerror(errno));
	fclose(file);
	return !strncmp(zones, "Movable", 7);
}

/* From which node a mapping is to have its pages. */
static void prefer_node(void *at, size_t size, int node)
{
	unsigned long nodes = 1UL << node;

	require_sys(syscall(SYS_mbind, at, size, 1 /* MPOL_PREFERRED */, &nodes, 64, 0));
}

/* What is there moves elsewhere. */
static bool take_block(uint64_t block)
{
	if (!is_movable(block) || !set_state(block, "offline"))
		return false;
	require(set_state(block, "online_movable"), "the memory does not come back");
	return true;
}

static void take_any_block(void)
{
	uint64_t block;

	for (block = 0; block < MOST_BLOCKS; block++)
		if (take_block(block))
			return;
}

/* The block with the first page. */
static void take_block_offline(struct memory *m)
{
	uint64_t frame;

	if (how == REG_PINNED) {
		/* It is in no such block. */
		take_any_block();
		return;
	}
	frame = frame_of(m->bytes);
	if (!frame)
		return;
	if (take_block(frame / block_pages())) {
		effects++;
		return;
	}
	/* Nor has it gone where it can go again. */
	move_to_node(m, 0);
	move_to_node(m, 1);
}

/* Takes all that is free of the node, in pieces of huge pages or of pages. */
static uint8_t *take_all(size_t size, int advice)
{
	uint8_t *all = map_at(NULL, size, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	size_t at;

	require_sys(madvise(all, size, advice));
	prefer_node(all, size, 1);
	for (at = 0; at < size; at += PAGE)
		all[at] = 1;
	return all;
}

static bool goes[MOST_BLOCKS];

static void give_back_what_goes(uint8_t *all, size_t size, size_t piece)
{
	uint64_t pages = block_pages();
	size_t at;

	for (at = 0; at < size; at += piece)
		if (goes[frame_of(all + at) / pages % MOST_BLOCKS])
			drop_pages(all + at, piece);
}

/* Some blocks can never go, as the kernel has something there since it started.  What is free in them
 * is taken, so that whatever is allocated there from now on is in the others. */
static void occupy_what_stays(void)
{
	uint8_t *huge, *small;
	uint64_t block;
	static bool done;

	if (done)
		return;
	done = true;
	for (block = 0; block < MOST_BLOCKS; block++)
		goes[block] = take_block(block);
	huge = take_all(MOVABLE, MADV_HUGEPAGE);
	small = take_all(MOVABLE / 8, MADV_NOHUGEPAGE);
	give_back_what_goes(huge, MOVABLE, HUGE);
	give_back_what_goes(small, MOVABLE / 8, PAGE);
}

static void make_movable(struct memory *m)
{
	FILE *file = fopen("/proc/cmdline", "re");
	char line[2048] = "";
	unsigned int try;

	require(file && fgets(line, sizeof(line), file), "cmdline: %s", strerror(errno));
	fclose(file);
	if (!strstr(line, "movablecore="))
		skip("no memory that can go: boot with movablecore=1G numa=fake=2");
	occupy_what_stays();
	/* The kernel keeps the last of what is free from whoever takes it all. */
	for (try = 0; try < MOST_TRIES; try++) {
		make_on_nodes(m);
		prefer_node(m->bytes, SIZE, 1);
		memset(m->bytes, 1, SIZE);
		if (goes[frame_of(m->bytes) / block_pages() % MOST_BLOCKS])
			return;
	}
	fail("no page in a block that can go");
}

/* ---- the thread that changes it ---------------------------------------- */

static atomic_bool over, wants_quiet, is_quiet;
static atomic_uint turns;	/* two for each, one at its begin */
static uint8_t *victim;

static void look_at_victim(void)
{
	static uint8_t wanted[SIZE_MOST];

	if (victim) {
		memset(wanted, VICTIM, SIZE);
		require(!memcmp(victim, wanted, SIZE), "memory of somebody else was written to");
		munmap(victim, SIZE);
	}
	victim = map_pages(SIZE);
	memset(victim, VICTIM, SIZE);
}

static void *keep_changing(void *unused)
{
	(void)unused;
	while (!atomic_load(&over)) {
		if (atomic_load(&wants_quiet)) {
			atomic_store(&is_quiet, true);
			while (atomic_load(&wants_quiet) && !atomic_load(&over))
				sched_yield();
			atomic_store(&is_quiet, false);
		}
		atomic_fetch_add(&turns, 1);
		change->turn(&memory);
		atomic_fetch_add(&turns, 1);
		look_at_victim();
	}
	atomic_store(&is_quiet, true);
	return NULL;
}

static void quiet(void)
{
	int64_t deadline = now_ns() + 12 * SOON_MS * NS_PER_MS;

	atomic_store(&wants_quiet, true);
	while (!atomic_load(&is_quiet)) {
		require(now_ns() < deadline, "a change does not end");
		sched_yield();
	}
}

static void loud(void)
{
	atomic_store(&wants_quiet, false);
	while (atomic_load(&is_quiet))
		sched_yield();
}

/* ---- traffic ----------------------------------------------------------- */

static uint8_t before[SIZE_MOST], after[SIZE_MOST], bytes[SIZE_MOST];

static bool is_parted(void)
{
	return how == REG_PINNED && change->parts;
}

/* Whether a page may be taken away. */
static bool is_taken(size_t page)
{
	if (how == REG_PINNED && (change->parts || change->pins_exactly))
		return false;
	switch (change->toll) {
	case ODD: return page % 2;
	case TAIL: return page >= PAGES / 2;
	default: return false;
	}
}

static struct target target_for(enum way_id way, size_t at, size_t length)
{
	return (struct target){
		.bytes = memory.bytes, .at = at, .length = length, .mr = memory.mr[ways[way].side],
	};
}

/* By the device itself, which has memory that the process has lost. */
static void fill_by_device(void)
{
	struct target all = target_for(WRITE_INTO, 0, SIZE);

	way_post(WRITE_INTO, &all);
	require(!way_end(WRITE_INTO), "the memory cannot be filled");
	way_apply(WRITE_INTO, &all, before);
}

static void look_by_device(void)
{
	struct target all = target_for(READ_FROM, 0, SIZE);

	way_post(READ_FROM, &all);
	require(!way_end(READ_FROM), "the memory cannot be looked at");
	memcpy(bytes, way_read(READ_FROM), SIZE);
}

static void fill(uint64_t key)
{
	if (is_parted()) {
		fill_by_device();
		return;
	}
	stream_fill(before, SIZE, key, 0);
	memcpy(memory.bytes, before, SIZE);
}

static void look(void)
{
	if (is_parted())
		look_by_device();
	else
		memcpy(bytes, memory.bytes, SIZE);
}

/* Each byte from `at` on must be that of one of the images, of which the last one may be missing. */
static void expect_one_of(const uint8_t *found, size_t at, size_t length, const uint8_t *one,
			  const uint8_t *other, const char *what)
{
	size_t i, page;

	if (!memcmp(found, one + at, length))
		return;
	for (i = at; i < at + length; i++, found++) {
		page = i / PAGE;
		if (*found == one[i] || (other && *found == other[i]) ||
		    (is_taken(page) && !*found))
			continue;
		fail("%s: byte %zu is 0x%02x, not 0x%02x%s", what, i, *found, one[i],
		     other ? " nor what it was" : "");
	}
}

/* What was there before is there no more where the way was through, unless its page was away in
 * between: then nobody says which of the two was before. */
static void check(enum way_id way, const struct target *target, bool worked)
{
	const uint8_t *read = way_read(way);
	size_t at = way_at(way, target), length = way_length(way, target);

	memcpy(after, before, SIZE);
	way_apply(way, target, after);
	if (worked && read)
		expect_one_of(read, at, length, before, NULL, "what was read");
	look();
	if (!ways[way].writes) {
		expect_one_of(bytes, 0, SIZE, before, NULL, "what is there");
		return;
	}
	expect_one_of(bytes, 0, at, before, NULL, "before what was written");
	expect_one_of(bytes + at + length, at + length, SIZE - at - length, before, NULL,
		      "behind what was written");
	expect_one_of(bytes + at, at, length, after, worked ? NULL : before, "what was written");
}

/* One request.  Returns whether a change fell into it. */
static bool one_round(enum way_id way, unsigned int *worked)
{
	static uint64_t key = 5;
	struct target target = target_for(way, BEGIN, SIZE - 2 * BEGIN);
	enum ibv_wc_status status;
	unsigned int first, last;

	quiet();
	key = mix(key, 3);
	fill(key);
	if (change->ready && how != REG_PINNED)
		change->ready(&memory);
	first = atomic_load(&turns);
	loud();
	way_post(way, &target);
	status = way_end(way);
	last = atomic_load(&turns);
	quiet();
	if (status) {
		/* Maps rings, which must not get where memory is away for a moment. */
		ways_again();
		require(change->fails && how != REG_PINNED && status == ways[way].failure,
			"%s: it ended with \"%s\"", ways[way].title, ibv_wc_status_str(status));
	}
	*worked += !status;
	check(way, &target, !status);
	return last != first;
}

static void one_way(enum way_id way)
{
	unsigned int wanted = change->rare ? 1 : ROUNDS, met = 0, rounds = 0, worked = 0;

	while (met < wanted) {
		require(rounds++ < MOST_ROUNDS, "only %u of %u requests met a change", met, rounds);
		met += one_round(way, &worked);
	}
	note("%s, %s: %u requests, %u worked, %u met a change", registrations[how],
	     ways[way].title, rounds, worked, met);
	if (change->fails && how != REG_PINNED)
		cell(change->title, how, way, "works, or fails: %s",
		     ibv_wc_status_str(ways[way].failure));
	else
		cell(change->title, how, way, "works");
}

/* ---- a change ---------------------------------------------------------- */

static bool register_both(void)
{
	int side;

	for (side = 0; side < 2; side++) {
		memory.mr[side] = ways_register(how, side, memory.bytes, SIZE,
						REMOTE | IBV_ACCESS_FLUSH_GLOBAL);
		if (!memory.mr[side])
			return false;
	}
	return true;
}

static void refused(int err)
{
	enum way_id way;

	require(how == REG_PINNED && err == change->pinned, "%s: %s", registrations[how],
		strerror(err));
	for (way = 0; way < PERSIST_OF; way++)
		cell(change->title, how, way, "refused: %s", errno_name(err));
}

static void under_traffic(void)
{
	pthread_t thread;
	enum way_id way;
	int side;

	require(how != REG_PINNED || !change->pinned, "pinned memory was registered");
	effects = 0;
	atomic_store(&turns, 0);
	atomic_store(&over, false);
	atomic_store(&is_quiet, false);
	atomic_store(&wants_quiet, true);
	require_ok(pthread_create(&thread, NULL, keep_changing, NULL));
	for (way = 0; way < PERSIST_OF; way++)
		one_way(way);
	atomic_store(&over, true);
	require_ok(pthread_join(thread, NULL));
	note("%s: %u turns, %u of them, or of their pages, with effect", registrations[how],
	     atomic_load(&turns) / 2, effects);
	require(effects || !change->counts || how == REG_PINNED, "nothing has changed");
	for (side = 0; side < 2; side++)
		require_ok(ibv_dereg_mr(memory.mr[side]));
}

FIXTURE_SETUP(changes)
{
	change = variant;
}

FIXTURE_TEARDOWN(changes) {}

TEST_F(changes, each_way)
{
	ways_open();
	for (how = 0; how < REGISTRATIONS; how++) {
		memory = (struct memory){ .fd = -1 };
		change->make(&memory);
		memset(memory.bytes, 1, SIZE);
		if (register_both())
			under_traffic();
		else
			refused(errno);
	}
}

FIXTURE_VARIANT_ADD(changes, dontneed) {
	"MADV_DONTNEED", .make = make_anonymous, .turn = dontneed, .toll = ODD,
	.parts = true
};
FIXTURE_VARIANT_ADD(changes, free) {
	"MADV_FREE", .make = make_anonymous, .turn = free_lazily, .toll = ODD,
	.pins_exactly = true
};
FIXTURE_VARIANT_ADD(changes, cold) {
	"MADV_COLD", .make = make_anonymous, .turn = cold
};
FIXTURE_VARIANT_ADD(changes, pageout) {
	"MADV_PAGEOUT, anonymous", .make = make_anonymous, .turn = page_out,
	.counts = true, .rare = true
};
FIXTURE_VARIANT_ADD(changes, pageout_memfd) {
	"MADV_PAGEOUT, shared memory", .make = make_memfd, .turn = page_out,
	.counts = true, .rare = true
};
FIXTURE_VARIANT_ADD(changes, pageout_file) {
	"MADV_PAGEOUT, file on ext4", .make = make_ext4,
	.turn = write_and_page_out, .pinned = EFAULT, .counts = true, .rare = true
};
FIXTURE_VARIANT_ADD(changes, remove) {
	"MADV_REMOVE, shared memory", .make = make_memfd, .turn = remove_odd,
	.toll = ODD, .parts = true
};
FIXTURE_VARIANT_ADD(changes, punch) {
	"hole punched, file on ext4", .make = make_ext4, .turn = punch_holes, .toll = ODD,
	.pinned = EFAULT
};
FIXTURE_VARIANT_ADD(changes, truncate_memfd) {
	"truncated and extended, shared memory", .make = make_memfd,
	.turn = truncate_and_extend, .toll = TAIL, .fails = true, .parts = true
};
FIXTURE_VARIANT_ADD(changes, truncate_file) {
	"truncated and extended, file on ext4", .make = make_ext4,
	.turn = truncate_and_extend, .toll = TAIL, .fails = true, .pinned = EFAULT
};
FIXTURE_VARIANT_ADD(changes, mremap) {
	"mremap, away and back", .make = make_anonymous, .turn = move_away_and_back,
	.fails = true
};
FIXTURE_VARIANT_ADD(changes, mprotect) {
	"mprotect, to PROT_NONE and back", .make = make_anonymous,
	.turn = forbid_and_allow, .fails = true
};
FIXTURE_VARIANT_ADD(changes, fork) {
	"forked, and the child writes", .make = make_anonymous, .turn = fork_a_child
};
FIXTURE_VARIANT_ADD(changes, merge) {
	"merged by KSM and unmerged", .make = make_mergeable, .turn = take_apart,
	.ready = wait_until_merged, .rare = true
};
FIXTURE_VARIANT_ADD(changes, collapse) {
	"huge page split and collapsed", .make = make_huge,
	.turn = collapse_and_split, .counts = true
};
FIXTURE_VARIANT_ADD(changes, compact) {
	"compaction", .make = make_anonymous, .turn = compact, .rare = true
};
FIXTURE_VARIANT_ADD(changes, soft_offline) {
	"pages taken offline softly", .make = make_anonymous,
	.turn = take_offline_softly, .counts = true
};
FIXTURE_VARIANT_ADD(changes, booted_migrate) {
	"migrated between nodes", .make = make_on_nodes, .turn = migrate,
	.counts = true, .rare = true
};
FIXTURE_VARIANT_ADD(changes, booted_offline) {
	"blocks of memory taken offline", .make = make_movable,
	.turn = take_block_offline, .counts = true, .rare = true
};

TEST_HARNESS_MAIN
