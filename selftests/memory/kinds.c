// SPDX-License-Identifier: GPL-2.0
/*
 * Every kind of memory that a process can have, registered in every way and used in every way.
 * Each kind is a test.  Each cell, of a kind, a registration and a way, is tried with fresh memory,
 * and must end as it is said here: with all bytes in place and no other one changed, with an error of
 * the registration, or with the completion that says whose memory failed.  Each is printed, for
 * scripts/memory, which makes Documentation/memory.rst of them.
 */
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../lib/fuse.h"
#include "../lib/harness.h"
#include "../lib/raw.h"
#include "../lib/stream.h"
#include "../lib/ways.h"

#define SIZE (16 * PAGE)
#define HUGE huge_page_size()
#define BEGIN 77		/* of what is used, and as much is left at the end */
/* What answers late does so after this. */
#define LATE_MS 30
/* What has not ended after this is taken to be waiting. */
#define WAITING_MS (100 * time_scale())

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/* ---- what a kind is ---------------------------------------------------- */

/* The memory of one cell. */
struct memory {
	uint8_t *bytes;
	size_t size;
	uint8_t *before;	/* what it holds */
	uint8_t *now;		/* and what it must hold in the end */
	uint8_t *other;		/* more that belongs to it */
	size_t other_size;
	int fd;
	bool pinned;
	pid_t child;
	struct ibv_cq *cq;
};

/* How a cell is to end. */
enum outcome {
	WORKS,
	FAILS,			/* with the completion that says so */
	WAITS,			/* until a signal ends it */
	WAITS_LONG,		/* until what it waits for is gone, and then fails */
	WAITS_AND_WORKS,	/* until then, too, and finds zeroes there */
	REFUSED = 1000,		/* plus an errno, of the registration */
};

FIXTURE(kinds) {};

FIXTURE_VARIANT(kinds) {
	const char *title;
	void (*begin)(void);			/* once, before any device is open */
	void (*prepare)(void);			/* for each cell, before all else */
	void (*release)(void);			/* ends what is waited for */
	void (*finish)(void);			/* after all else */
	void (*end)(void);			/* once, in the end */
	void (*make)(struct memory *memory);	/* maps it, filled */
	/* Brings it into the state that is meant; before memory is pinned, after it is registered on
	 * demand, and after either if `settle_last`. */
	void (*settle)(struct memory *memory);
	bool settle_last;
	/* Makes it readable to the test; if nothing does, it is not looked at. */
	void (*reveal)(struct memory *memory);
	bool opaque;
	bool restless;				/* somebody else changes it all the time */
	/* Once nothing is registered: what else must be so. */
	void (*check)(struct memory *memory);
	void (*drop)(struct memory *memory);	/* NULL: it is unmapped */
	int pin_to_read, pin_to_write, demand_to_read, demand_to_write;	/* enum outcome */
	int pin_to_persist;			/* 0: refused, as it is no persistent memory */
	bool persists_on_demand;
};

static const FIXTURE_VARIANT(kinds) *kind;

/* ---- filling ----------------------------------------------------------- */

static void fill_before(struct memory *memory)
{
	static uint64_t key = 7;

	key = mix(key, 2);
	memory->before = xcalloc(memory->size, 1);
	stream_fill(memory->before, memory->size, key, 0);
}

static void fill(struct memory *memory)
{
	fill_before(memory);
	memcpy(memory->bytes, memory->before, memory->size);
}

static void *map_at(void *at, size_t size, int protection, int flags, int fd)
{
	void *bytes = mmap(at, size, protection, flags, fd, 0);

	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	return bytes;
}

static void use_pages(struct memory *memory)
{
	memory->size = SIZE;
	memory->bytes = map_pages(SIZE);
}

/* ---- anonymous memory -------------------------------------------------- */

static void make_anonymous(struct memory *memory)
{
	use_pages(memory);
	fill(memory);
}

static void make_zeroes(struct memory *memory)
{
	use_pages(memory);
	memory->before = xcalloc(SIZE, 1);
}

static void lock_pages(struct memory *memory)
{
	require_sys(mlock(memory->bytes, memory->size));
}

/* A kB figure of the mapping that holds an address. */
static size_t mapping_kb(const void *address, const char *name)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	unsigned long start, end;
	size_t length = strlen(name), found = 0;
	bool here = false;
	char line[512];

	require(maps, "smaps: %s", strerror(errno));
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (uintptr_t)address && (uintptr_t)address < end;
		else if (here && !strncmp(line, name, length) && line[length] == ':')
			found = strtoul(line + length + 1, NULL, 10);
	}
	fclose(maps);
	return found;
}

/* Around the border of two huge pages. */
static void use_border(struct memory *memory, uint8_t *huge)
{
	memory->other = huge;
	memory->other_size = 2 * HUGE;
	memory->bytes = huge + HUGE - SIZE / 2;
	memory->size = SIZE;
	fill(memory);
}

static void make_transparent_huge(struct memory *memory)
{
	uint8_t *area = map_at(NULL, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	uint8_t *huge = area + -(uintptr_t)area % HUGE;

	if (huge > area)
		munmap(area, huge - area);
	munmap(huge + 2 * HUGE, area + HUGE - huge);
	make_huge_pages(huge, 2 * HUGE);
	memset(huge, 1, 2 * HUGE);
	require(mapping_kb(huge, "AnonHugePages") == 2 * HUGE / 1024, "only %zu kB are huge",
		mapping_kb(huge, "AnonHugePages"));
	use_border(memory, huge);
}

static void make_hugetlb(struct memory *memory)
{
	use_border(memory, map_at(NULL, 2 * HUGE, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1));
}

static void drop_border(struct memory *memory)
{
	require_sys(munmap(memory->other, memory->other_size));
}

static void protect(struct memory *memory, int protection)
{
	require_sys(mprotect(memory->bytes, memory->size, protection));
}

static void make_read_only(struct memory *memory)
{
	make_anonymous(memory);
	protect(memory, PROT_READ);
}

static void make_write_only(struct memory *memory)
{
	make_anonymous(memory);
	protect(memory, PROT_WRITE);
}

static void make_no_access(struct memory *memory)
{
	make_anonymous(memory);
	protect(memory, PROT_NONE);
}

static void allow_reading(struct memory *memory)
{
	protect(memory, PROT_READ);
}

static void make_guarded(struct memory *memory)
{
	use_pages(memory);
	memory->before = xcalloc(SIZE, 1);
	if (madvise(memory->bytes, SIZE, MADV_GUARD_INSTALL))
		skip("no guard pages: %s", strerror(errno));
}

static void make_unmapped(struct memory *memory)
{
	use_pages(memory);
	memory->before = xcalloc(SIZE, 1);
	require_sys(munmap(memory->bytes, SIZE));
}

static void drop_nothing(struct memory *memory)
{
	(void)memory;
}

/* ---- shared with a child ----------------------------------------------- */

/* Between the test and its child. */
struct meeting {
	atomic_bool ready, over;
};

static struct meeting *meeting;

static void wait_for_flag(atomic_bool *flag)
{
	int64_t deadline = now_ns() + 4 * SOON_MS * NS_PER_MS;

	while (!atomic_load(flag)) {
		require(now_ns() < deadline, "nobody came");
		usleep(100);
	}
}

static void begin_meeting(void)
{
	meeting = map_at(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
}

/* The child's memory must stay as it is, whatever comes of the parent's. */
static _Noreturn void be_child(struct memory *memory, bool writes)
{
	size_t i;

	if (writes) {
		for (i = 0; i < memory->size; i += PAGE)
			memory->bytes[i] = memory->before[i] = ~memory->before[i];
	}
	atomic_store(&meeting->ready, true);
	wait_for_flag(&meeting->over);
	_exit(memcmp(memory->bytes, memory->before, memory->size) != 0);
}

static void fork_child(struct memory *memory, bool writes)
{
	atomic_store(&meeting->ready, false);
	atomic_store(&meeting->over, false);
	fflush(stdout);
	memory->child = fork();
	require_sys(memory->child);
	if (!memory->child)
		be_child(memory, writes);
	wait_for_flag(&meeting->ready);
}

static void parent_writes_first(struct memory *memory)
{
	size_t i;

	fork_child(memory, false);
	for (i = 0; i < memory->size; i += PAGE)
		memory->bytes[i] = memory->before[i] = ~memory->before[i];
}

static void child_writes_first(struct memory *memory)
{
	fork_child(memory, true);
}

static void nobody_writes_first(struct memory *memory)
{
	fork_child(memory, false);
}

static void check_child(struct memory *memory)
{
	int status;

	if (!memory->child)
		return; /* it was refused before */
	atomic_store(&meeting->over, true);
	require(waitpid(memory->child, &status, 0) == memory->child, "waitpid: %s", strerror(errno));
	require(!status, "the child's memory has changed");
}

/* ---- merged with the same memory elsewhere ----------------------------- */

/* Both at once, so that no page of the same content is anywhere else. */
static void make_mergeable(struct memory *memory)
{
	uint8_t *both = map_pages(2 * SIZE);

	*memory = (struct memory){ .bytes = both, .size = SIZE, .other = both + SIZE,
				   .other_size = SIZE };
	fill(memory);
	memcpy(memory->other, memory->before, SIZE);
	require_sys(madvise(both, 2 * SIZE, MADV_MERGEABLE));
}

static void wait_until_merged(struct memory *memory)
{
	int64_t deadline = now_ns() + 6 * SOON_MS * NS_PER_MS;
	size_t wanted = 2 * memory->size / PAGE;

	while (merged_pages() < wanted) {
		require(now_ns() < deadline, "only %zu pages are merged", merged_pages());
		usleep(2000);
	}
}

static void check_twin(struct memory *memory)
{
	require(!memcmp(memory->other, memory->before, memory->other_size),
		"the memory that was merged with it has changed");
}

static void drop_twins(struct memory *memory)
{
	require_sys(munmap(memory->bytes, 2 * SIZE));
}

/* ---- swapped out ------------------------------------------------------- */

#define PAGE_IS_SWAPPED (1ULL << 62)

static uint64_t page_entry(const uint8_t *address)
{
	static int fd = -1;
	uint64_t entry;

	if (fd < 0)
		fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	require(pread(fd, &entry, 8, (uintptr_t)address / PAGE * 8) == 8, "pagemap: %s",
		strerror(errno));
	return entry;
}

static size_t swapped_pages(const struct memory *memory)
{
	size_t found = 0, at;

	for (at = 0; at < memory->size; at += PAGE)
		found += (page_entry(memory->bytes + at) & PAGE_IS_SWAPPED) != 0;
	return found;
}

static void swap_out(struct memory *memory)
{
	int64_t deadline = now_ns() + 6 * SOON_MS * NS_PER_MS;

	for (;;) {
		require_sys(madvise(memory->bytes, memory->size, MADV_PAGEOUT));
		if (swapped_pages(memory) == memory->size / PAGE)
			return;
		require(now_ns() < deadline, "only %zu pages are swapped out", swapped_pages(memory));
		/* Pages that were touched on another CPU may be in a list of that CPU's. */
		compact_memory();
		usleep(2000);
	}
}

/* What was written must go out, too, even if the process's page table calls the page clean: it does
 * once it was only read since it came back.  What is pinned stays. */
static void swap_out_again(struct memory *memory)
{
	if (!memory->pinned)
		swap_out(memory);
}

static void swap_out_and_read(struct memory *memory)
{
	swap_out(memory);
	require(!memcmp(memory->bytes, memory->before, memory->size), "something else comes back");
}

/* ---- files ------------------------------------------------------------- */

static const char *directory(const char *name)
{
	const char *dir = getenv(name);

	if (!dir)
		skip("no %s", name);
	return dir;
}

static void fill_file(struct memory *memory, int fd)
{
	memory->fd = fd;
	memory->size = SIZE;
	fill_before(memory);
	require(pwrite(fd, memory->before, SIZE, 0) == (ssize_t)SIZE, "pwrite: %s", strerror(errno));
}

/* A file without a name, filled. */
static void open_file(struct memory *memory, const char *dir)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	require(fd >= 0, "%s: %s", dir, strerror(errno));
	fill_file(memory, fd);
}

static void map_file(struct memory *memory, int protection, int flags)
{
	memory->bytes = map_at(NULL, SIZE, protection, flags, memory->fd);
}

static void make_memfd(struct memory *memory)
{
	int fd = memfd_create("kinds", MFD_CLOEXEC);

	require_sys(fd);
	fill_file(memory, fd);
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void make_tmpfs(struct memory *memory)
{
	open_file(memory, directory("TMPFS_DIR"));
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void make_ext4(struct memory *memory)
{
	open_file(memory, directory("EXT4_DIR"));
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
}

/* Its pages have to be read from the disk. */
static void forget_cached(struct memory *memory)
{
	require_sys(fsync(memory->fd));
	require_ok(posix_fadvise(memory->fd, 0, 0, POSIX_FADV_DONTNEED));
}

static void make_ext4_on_disk(struct memory *memory)
{
	open_file(memory, directory("EXT4_DIR"));
	forget_cached(memory);
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void make_ext4_read_only(struct memory *memory)
{
	open_file(memory, directory("EXT4_DIR"));
	map_file(memory, PROT_READ, MAP_SHARED);
}

static void make_ext4_private(struct memory *memory)
{
	open_file(memory, directory("EXT4_DIR"));
	map_file(memory, PROT_READ | PROT_WRITE, MAP_PRIVATE);
}

/* There is nothing behind the file's end. */
static void make_beyond_end(struct memory *memory)
{
	open_file(memory, directory("EXT4_DIR"));
	require_sys(ftruncate(memory->fd, 0));
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void expect_file(struct memory *memory, const uint8_t *holds)
{
	uint8_t *bytes = xcalloc(memory->size, 1);

	require(pread(memory->fd, bytes, memory->size, 0) == (ssize_t)memory->size, "pread: %s",
		strerror(errno));
	require(!memcmp(bytes, holds, memory->size), "the file holds something else");
	free(bytes);
}

static void check_file(struct memory *memory)
{
	expect_file(memory, memory->now);
}

/* What was written gets to the disk, and comes from there again. */
static void check_disk(struct memory *memory)
{
	require_sys(munmap(memory->bytes, memory->size));
	forget_cached(memory);
	expect_file(memory, memory->now);
	map_file(memory, PROT_READ, MAP_SHARED);
}

static void check_private(struct memory *memory)
{
	expect_file(memory, memory->before);
}

static void drop_file(struct memory *memory)
{
	require_sys(munmap(memory->bytes, memory->size));
	close(memory->fd);
}

/* ---- persistent memory ------------------------------------------------- */

static void make_dax_file(struct memory *memory)
{
	open_file(memory, directory("PERSISTENT_DIR"));
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void make_dax_device(struct memory *memory)
{
	int fd = open(directory("PERSISTENT_DEVICE"), O_RDWR | O_CLOEXEC);

	require_sys(fd);
	use_border(memory, map_at(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd));
	close(fd);
}

/* ---- what the kernel maps ---------------------------------------------- */

static void make_secret(struct memory *memory)
{
	int fd = syscall(SYS_memfd_secret, O_CLOEXEC);

	if (fd < 0)
		skip("no memfd_secret: %s", strerror(errno));
	require_sys(ftruncate(fd, SIZE));
	memory->fd = fd;
	memory->size = SIZE;
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
	fill(memory);
}

/* A mapping of a dma-buf; what it holds is seen by the file that it is made of. */
static void make_udmabuf(struct memory *memory)
{
	memory->fd = make_dmabuf(SIZE, &memory->other);
	memory->other_size = memory->size = SIZE;
	fill_before(memory);
	memcpy(memory->other, memory->before, SIZE);
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
}

static void drop_udmabuf(struct memory *memory)
{
	drop_border(memory);
	drop_file(memory);
}

/* The ring of a completion queue that nobody uses. */
static void make_ring(struct memory *memory)
{
	struct ring_list before;
	struct ring ring;

	rings_list(ends[0].context, &before);
	memory->cq = ibv_create_cq(ends[0].context, SIZE / 32, NULL, NULL, 0);
	require(memory->cq, "ibv_create_cq: %s", strerror(errno));
	rings_since(ends[0].context, &before, &ring, 1);
	require(ring.size >= SIZE + PAGE, "a ring of %zu bytes", ring.size);
	memory->bytes = (uint8_t *)ring.buf + PAGE;
	memory->size = SIZE;
	fill(memory);
}

static void drop_ring(struct memory *memory)
{
	require_ok(ibv_destroy_cq(memory->cq));
}

/* A mapping by its name in /proc/self/maps. */
static void find_mapping(struct memory *memory, const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	char line[512];

	require(maps, "maps: %s", strerror(errno));
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, name) || sscanf(line, "%lx-%lx ", &start, &end) != 2)
			continue;
		memory->bytes = (uint8_t *)start;
		memory->size = end - start;
	}
	fclose(maps);
	if (!memory->bytes)
		skip("there is no %s", name);
	memory->before = xcalloc(memory->size, 1);
}

/* Pages of the kernel's own image. */
static void make_vdso(struct memory *memory)
{
	find_mapping(memory, "[vdso]");
	memcpy(memory->before, memory->bytes, memory->size);
}

/* Before 7.3 it is a mapping without pages, as those of devices. */
static void need_pages_in_vvar(void)
{
	if (!system("sed -n '/\\[vvar\\]/,/VmFlags/p' /proc/self/smaps | grep -qEw 'io|pf'"))
		skip("this kernel's vvar has no pages");
}

static void make_vvar(struct memory *memory)
{
	find_mapping(memory, "[vvar]");
}

/* Video memory, which no machine lacks an address for. */
#define LEGACY_VIDEO 0xa0000

static void make_dev_mem(struct memory *memory)
{
	int fd = open("/dev/mem", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		skip("/dev/mem: %s", strerror(errno));
	memory->size = SIZE;
	memory->before = xcalloc(SIZE, 1);
	memory->bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, LEGACY_VIDEO);
	require(memory->bytes != MAP_FAILED, "mmap of /dev/mem: %s", strerror(errno));
	close(fd);
}

/* A part of a device, of which nobody makes use now. */
static void make_bar(struct memory *memory)
{
	int fd = open(directory("PCI_RESOURCE"), O_RDWR | O_CLOEXEC);

	require(fd >= 0, "%s: %s", getenv("PCI_RESOURCE"), strerror(errno));
	memory->size = PAGE;
	memory->before = xcalloc(PAGE, 1);
	memory->bytes = map_at(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	close(fd);
}

/* ---- broken memory ----------------------------------------------------- */

static void take_note(int signal)
{
	(void)signal;
}

static void poison(struct memory *memory)
{
	/* The process is told, which ends it otherwise. */
	signal(SIGBUS, take_note);
	if (madvise(memory->bytes, PAGE, MADV_HWPOISON))
		skip("MADV_HWPOISON: %s", strerror(errno));
}

/* ---- memory that somebody else has to give ----------------------------- */

/* Who answers the faults of one mapping. */
struct answerer {
	int fd;			/* the userfaultfd */
	struct memory *memory;
	unsigned int answered;
	pthread_t thread;
	atomic_bool over;
};

static struct answerer answerer;
static struct fuse fuse;

/* The first one takes its time. */
static void answer_fault(uint64_t address)
{
	struct memory *memory = answerer.memory;
	uint64_t page = address / PAGE * PAGE;
	struct uffdio_copy copy = {
		.dst = page, .src = (uintptr_t)memory->before + (page - (uintptr_t)memory->bytes),
		.len = PAGE,
	};

	if (!answerer.answered++)
		usleep(LATE_MS * 1000);
	if (ioctl(answerer.fd, UFFDIO_COPY, &copy))
		require(errno == EEXIST, "UFFDIO_COPY: %s", strerror(errno));
}

static void *answer_late(void *unused)
{
	struct pollfd ready = { .fd = answerer.fd, .events = POLLIN };
	struct uffd_msg msg;

	(void)unused;
	while (!atomic_load(&answerer.over)) {
		if (poll(&ready, 1, 10) == 1 && read(answerer.fd, &msg, sizeof(msg)) == sizeof(msg) &&
		    msg.event == UFFD_EVENT_PAGEFAULT)
			answer_fault(msg.arg.pagefault.address);
	}
	return NULL;
}

/* Older kernels give up such memory when it is wanted on demand, as they wait with the lock of the
 * memory map. */
static void need_retries(void)
{
	if (system("grep -qw hmm_range_fault_unlocked_timeout /proc/kallsyms"))
		skip("this kernel waits for no userfaultfd on demand");
}

/* Nobody answers for it yet. */
static void make_missing(struct memory *memory)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register watch = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	use_pages(memory);
	fill_before(memory);
	answerer.fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (answerer.fd < 0)
		skip("no userfaultfd: %s", strerror(errno));
	require_sys(ioctl(answerer.fd, UFFDIO_API, &api));
	watch.range.start = (uintptr_t)memory->bytes;
	watch.range.len = memory->size;
	require_sys(ioctl(answerer.fd, UFFDIO_REGISTER, &watch));
	answerer.memory = memory;
}

static void make_late(struct memory *memory)
{
	make_missing(memory);
	answerer.answered = 0;
	atomic_store(&answerer.over, false);
	require_ok(pthread_create(&answerer.thread, NULL, answer_late, NULL));
}

/* The memory is like any other then. */
static void stop_watching(void)
{
	if (answerer.fd >= 0)
		close(answerer.fd);
	answerer.fd = -1;
}

static void drop_missing(struct memory *memory)
{
	stop_watching();
	require_sys(munmap(memory->bytes, memory->size));
}

static void drop_late(struct memory *memory)
{
	atomic_store(&answerer.over, true);
	require_ok(pthread_join(answerer.thread, NULL));
	drop_missing(memory);
}

static void begin_fuse(void)
{
	fuse_start(&fuse, SIZE);
	fuse.shared->delay_ms = LATE_MS;
}

static void prepare_stalled(void)
{
	fuse_start(&fuse, SIZE);
	fuse.shared->delay_ms = FUSE_NEVER;
}

static void release_stalled(void)
{
	fuse_kill(&fuse);
}

static void finish_fuse(void)
{
	fuse_stop(&fuse);
}

static void make_fuse(struct memory *memory)
{
	memory->size = SIZE;
	memory->fd = fuse_open(&fuse);
	fill_before(memory);
	memcpy(fuse.shared->bytes, memory->before, SIZE);
	map_file(memory, PROT_READ | PROT_WRITE, MAP_SHARED);
}

/* What was written has come to the server. */
static void check_fuse(struct memory *memory)
{
	require_sys(msync(memory->bytes, memory->size, MS_SYNC));
	require(!memcmp(fuse.shared->bytes, memory->now, SIZE), "the server has got something else");
}

/* ---- all kinds --------------------------------------------------------- */

#define ALL_WORK .pin_to_read = WORKS
#define PIN_REFUSED .pin_to_read = REFUSED + EFAULT, .pin_to_write = REFUSED + EFAULT
#define DEMAND_FAILS .demand_to_read = FAILS, .demand_to_write = FAILS
#define NONE_WORK PIN_REFUSED, DEMAND_FAILS
#define WRITES_FAIL .pin_to_write = REFUSED + EFAULT, .demand_to_write = FAILS

FIXTURE_VARIANT_ADD(kinds, anonymous) {
	"anonymous", .make = make_anonymous, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, zeroes) {
	"anonymous, never written to", .make = make_zeroes, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, transparent_huge) {
	"transparent huge pages", .make = make_transparent_huge,
	.drop = drop_border, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, hugetlb) {
	"hugetlb pages", .make = make_hugetlb, .drop = drop_border, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, mlocked) {
	"mlocked", .make = make_anonymous, .settle = lock_pages, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, read_only) {
	"read-only", .make = make_read_only, WRITES_FAIL
};
/* The CPU lets it be read, and so does pinning what is there; the walk of the page table takes
 * such a mapping for one without any right. */
FIXTURE_VARIANT_ADD(kinds, write_only) {
	"write-only", .make = make_write_only, .reveal = allow_reading,
	DEMAND_FAILS
};
FIXTURE_VARIANT_ADD(kinds, no_access) {
	"PROT_NONE", .make = make_no_access, .reveal = allow_reading, NONE_WORK
};
FIXTURE_VARIANT_ADD(kinds, guarded) {
	"guard pages", .make = make_guarded, .opaque = true, NONE_WORK
};
FIXTURE_VARIANT_ADD(kinds, unmapped) {
	"not mapped", .make = make_unmapped, .drop = drop_nothing, .opaque = true,
	NONE_WORK
};
FIXTURE_VARIANT_ADD(kinds, forked_parent) {
	"copy on write, the parent writes first", .make = make_anonymous,
	.settle = parent_writes_first, .settle_last = true, .check = check_child, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, forked_child) {
	"copy on write, the child writes first", .make = make_anonymous,
	.settle = child_writes_first, .settle_last = true, .check = check_child, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, forked_before) {
	"copy on write, forked before it is pinned", .make = make_anonymous,
	.settle = nobody_writes_first, .check = check_child, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, merged) {
	"merged by KSM", .make = make_mergeable, .settle = wait_until_merged,
	.check = check_twin, .drop = drop_twins, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, swapped) {
	"swapped out", .make = make_anonymous, .settle = swap_out,
	.reveal = swap_out_again, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, swapped_in) {
	"swapped out and read again", .make = make_anonymous,
	.settle = swap_out_and_read, .reveal = swap_out_again, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, memfd) {
	"shared memory (memfd)", .make = make_memfd, .check = check_file,
	.drop = drop_file, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, tmpfs) {
	"file on tmpfs", .make = make_tmpfs, .check = check_file, .drop = drop_file,
	ALL_WORK
};
/* Whose file system wants to know of each write. */
FIXTURE_VARIANT_ADD(kinds, ext4) {
	"file on ext4", .make = make_ext4, .check = check_disk, .drop = drop_file,
	.pin_to_write = REFUSED + EFAULT
};
FIXTURE_VARIANT_ADD(kinds, ext4_on_disk) {
	"file on ext4, not in memory", .make = make_ext4_on_disk,
	.check = check_disk, .drop = drop_file, .pin_to_write = REFUSED + EFAULT
};
FIXTURE_VARIANT_ADD(kinds, ext4_read_only) {
	"file on ext4, mapped read-only", .make = make_ext4_read_only,
	.check = check_disk, .drop = drop_file, WRITES_FAIL
};
FIXTURE_VARIANT_ADD(kinds, ext4_private) {
	"file on ext4, mapped privately", .make = make_ext4_private,
	.check = check_private, .drop = drop_file, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, beyond_end) {
	"behind the end of a file", .make = make_beyond_end, .drop = drop_file,
	.opaque = true, NONE_WORK
};
FIXTURE_VARIANT_ADD(kinds, poisoned) {
	"poisoned (hwpoison)", .make = make_anonymous, .settle = poison,
	.opaque = true, NONE_WORK
};
/* Whoever has pinned it may go on with what there is of it. */
FIXTURE_VARIANT_ADD(kinds, poisoned_later) {
	"poisoned once it is registered", .make = make_anonymous,
	.settle = poison, .settle_last = true, .opaque = true, DEMAND_FAILS
};
FIXTURE_VARIANT_ADD(kinds, userfault_late) {
	"userfaultfd, answered late", .begin = need_retries,
	.make = make_late, .drop = drop_late, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, userfault_never) {
	"userfaultfd, never answered", .begin = need_retries,
	.make = make_missing, .release = stop_watching, .drop = drop_missing, .opaque = true,
	.restless = true, .pin_to_read = WAITS, .pin_to_write = WAITS,
	.demand_to_read = WAITS_AND_WORKS, .demand_to_write = WAITS_AND_WORKS
};
FIXTURE_VARIANT_ADD(kinds, fuse_late) {
	"file on FUSE, answered late", .begin = begin_fuse, .make = make_fuse,
	.check = check_fuse, .drop = drop_file, .end = finish_fuse, .pin_to_write = REFUSED + EFAULT
};
FIXTURE_VARIANT_ADD(kinds, fuse_never) {
	"file on FUSE, never answered", .prepare = prepare_stalled,
	.make = make_fuse, .release = release_stalled, .drop = drop_file, .finish = finish_fuse,
	.opaque = true, .pin_to_read = WAITS_LONG, .pin_to_write = REFUSED + EFAULT,
	.demand_to_read = WAITS_LONG, .demand_to_write = WAITS_LONG
};
FIXTURE_VARIANT_ADD(kinds, udmabuf) {
	"mapping of a dma-buf (udmabuf)", .make = make_udmabuf, .drop = drop_udmabuf,
	NONE_WORK
};
FIXTURE_VARIANT_ADD(kinds, ring) {
	"ring of a completion queue", .make = make_ring, .drop = drop_ring, ALL_WORK
};
FIXTURE_VARIANT_ADD(kinds, vdso) {
	"code of the kernel's (vDSO)", .make = make_vdso, .drop = drop_nothing,
	WRITES_FAIL
};
FIXTURE_VARIANT_ADD(kinds, vvar) {
	"data of the kernel's (vvar)", .begin = need_pages_in_vvar, .make = make_vvar,
	.drop = drop_nothing, .opaque = true, .restless = true, WRITES_FAIL
};
FIXTURE_VARIANT_ADD(kinds, dev_mem) {
	"/dev/mem", .make = make_dev_mem, .opaque = true, NONE_WORK
};
FIXTURE_VARIANT_ADD(kinds, bar) {
	"BAR of a PCI device", .make = make_bar, .opaque = true, NONE_WORK
};
FIXTURE_VARIANT_ADD(kinds, persistent_file) {
	"persistent memory, file (DAX)", .make = make_dax_file,
	.check = check_file, .drop = drop_file, .pin_to_read = REFUSED + EOPNOTSUPP,
	.pin_to_write = REFUSED + EOPNOTSUPP, .pin_to_persist = REFUSED + EOPNOTSUPP,
	.persists_on_demand = true
};
FIXTURE_VARIANT_ADD(kinds, persistent_device) {
	"persistent memory, device", .make = make_dax_device,
	.drop = drop_border, .pin_to_persist = REFUSED, .persists_on_demand = true
};
FIXTURE_VARIANT_ADD(kinds, secret) {
	"memfd_secret", .make = make_secret, .drop = drop_file, NONE_WORK
};

/* ---- a cell ------------------------------------------------------------ */

static int expected_pinned(enum way_id way)
{
	if (way != PERSIST_OF)
		return ways[way].writes ? kind->pin_to_write : kind->pin_to_read;
	if (kind->pin_to_persist)
		return kind->pin_to_persist == REFUSED ? WORKS : kind->pin_to_persist;
	/* The memory is looked at once it is pinned. */
	return kind->pin_to_write == WORKS ? REFUSED + EINVAL : kind->pin_to_write;
}

static int expected_end(enum registration how, enum way_id way)
{
	if (how == REG_PINNED)
		return expected_pinned(way);
	if (way == PERSIST_OF && !kind->persists_on_demand)
		return kind->demand_to_write == WORKS ? FAILS :
		       kind->demand_to_write == WAITS_AND_WORKS ? WAITS_LONG : kind->demand_to_write;
	return ways[way].writes ? kind->demand_to_write : kind->demand_to_read;
}

static struct target target_of(const struct memory *memory)
{
	return (struct target){
		.bytes = memory->bytes, .at = BEGIN, .length = memory->size - 2 * BEGIN,
	};
}

static void say(enum registration how, enum way_id way, int end)
{
	switch (end) {
	case WORKS:
		cell(kind->title, how, way, "works");
		break;
	case WAITS:
		cell(kind->title, how, way, "waits, a signal ends it");
		break;
	case WAITS_LONG:
		if (how == REG_PINNED)
			cell(kind->title, how, way, "waits");
		else
			cell(kind->title, how, way, "waits, then fails: %s",
			     ibv_wc_status_str(ways[way].failure));
		break;
	case WAITS_AND_WORKS:
		cell(kind->title, how, way, "waits, then works");
		break;
	case FAILS:
		cell(kind->title, how, way, "fails: %s", ibv_wc_status_str(ways[way].failure));
		break;
	default:
		cell(kind->title, how, way, "refused: %s", errno_name(end - REFUSED));
		break;
	}
}

static void verify_read(const struct memory *memory, enum way_id way, const struct target *target)
{
	const uint8_t *read = way_read(way);

	if (read && !kind->restless)
		require(!memcmp(read, memory->before + way_at(way, target), way_length(way, target)),
			"other bytes were read");
}

/* What of the memory must be where, in the end. */
static void verify_memory(struct memory *memory)
{
	size_t i;

	if (kind->reveal)
		kind->reveal(memory);
	for (i = 0; i < memory->size && !kind->opaque; i++)
		require(memory->bytes[i] == memory->now[i], "byte %zu is 0x%02x, not 0x%02x", i,
			memory->bytes[i], memory->now[i]);
}

static void settle(struct memory *memory)
{
	if (kind->settle)
		kind->settle(memory);
}

static bool is_waiting(int expected)
{
	return expected == WAITS_LONG || expected == WAITS_AND_WORKS;
}

/* What is asked for waits; others don't. */
static void expect_stalled(enum way_id way)
{
	way_expect_waiting(way, WAITING_MS);
	ways_beside();
	kind->release();
}

/* Returns what came of it: WORKS, FAILS, WAITS_LONG, or REFUSED and an errno. */
static int try_way(struct memory *memory, enum registration how, enum way_id way, int expected)
{
	bool first = !kind->settle_last && how == REG_PINNED;
	struct target target = target_of(memory);
	enum ibv_wc_status status;

	memory->pinned = how == REG_PINNED;
	if (first)
		settle(memory);
	target.mr = ways_register(how, ways[way].side, memory->bytes, memory->size,
				  ways[way].access);
	if (!target.mr)
		return REFUSED + errno;
	if (!first)
		settle(memory);
	/* What the state has brought with it. */
	memcpy(memory->now, memory->before, memory->size);
	way_post(way, &target);
	if (is_waiting(expected))
		expect_stalled(way);
	status = way_end(way);
	if (status)
		ways_again();
	require(!status || status == ways[way].failure, "%s: it ended with \"%s\"",
		ways[way].title, ibv_wc_status_str(status));
	if (!status) {
		verify_read(memory, way, &target);
		way_apply(way, &target, memory->now);
	}
	verify_memory(memory);
	require_ok(ibv_dereg_mr(target.mr));
	if (is_waiting(expected))
		return status ? WAITS_LONG : WAITS_AND_WORKS;
	return status ? FAILS : WORKS;
}

static void drop(struct memory *memory)
{
	if (kind->drop)
		kind->drop(memory);
	else
		require_sys(munmap(memory->bytes, memory->size));
	free(memory->before);
	free(memory->now);
}

static int try_cell(enum registration how, enum way_id way, int expected)
{
	struct memory memory = {};
	int end;

	kind->make(&memory);
	memory.now = xcalloc(memory.size, 1);
	memcpy(memory.now, memory.before, memory.size);
	end = try_way(&memory, how, way, expected);
	if (kind->check)
		kind->check(&memory);
	drop(&memory);
	return end;
}

/* ---- a registration that does not return ------------------------------- */

/* Its memory belongs to it alone. */
static _Noreturn void register_in_child(enum way_id way)
{
	struct memory memory = {};

	open_ends();
	kind->make(&memory);
	atomic_store(&meeting->ready, true);
	ways_register(REG_PINNED, ways[way].side, memory.bytes, memory.size, ways[way].access);
	_exit(0);
}

static bool ends_within(pid_t child, int ms)
{
	int64_t deadline = now_ns() + ms * NS_PER_MS;

	while (now_ns() < deadline) {
		if (waitpid(child, NULL, WNOHANG) == child)
			return true;
		usleep(1000);
	}
	return false;
}

/* Returns what ends it. */
static int try_waiting(enum way_id way, int expected)
{
	pid_t child;

	atomic_store(&meeting->ready, false);
	fflush(stdout);
	child = fork();
	require_sys(child);
	if (!child)
		register_in_child(way);
	wait_for_flag(&meeting->ready);
	require(!ends_within(child, WAITING_MS), "%s: the registration does not wait",
		ways[way].title);
	require_sys(kill(child, SIGKILL));
	if (ends_within(child, expected == WAITS ? SOON_MS : 4 * WAITING_MS))
		return WAITS;
	require(kind->release, "%s: a signal does not end it", ways[way].title);
	kind->release();
	require(ends_within(child, SOON_MS), "%s: nothing ends it", ways[way].title);
	return WAITS_LONG;
}

/* ---- a kind ------------------------------------------------------------ */

static void one_cell(enum registration how, enum way_id way)
{
	int expected = expected_end(how, way), end;

	if (kind->prepare)
		kind->prepare();
	if (how == REG_PINNED && (expected == WAITS || expected == WAITS_LONG))
		end = try_waiting(way, expected);
	else
		end = try_cell(how, way, expected);
	if (kind->finish)
		kind->finish();
	say(how, way, end);
	require(end == expected, "%s, %s: that is not how it is to end (%d, not %d)",
		registrations[how], ways[way].title, end, expected);
}

FIXTURE_SETUP(kinds)
{
	kind = variant;
}

FIXTURE_TEARDOWN(kinds) {}

TEST_F(kinds, each_way)
{
	enum registration how;
	enum way_id way;

	begin_meeting();
	if (kind->begin)
		kind->begin();
	ways_open();
	for (how = 0; how < REGISTRATIONS; how++)
		for (way = 0; way < WAYS; way++)
			one_cell(how, way);
	if (kind->end)
		kind->end();
}

TEST_HARNESS_MAIN
