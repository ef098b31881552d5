// SPDX-License-Identifier: GPL-2.0
/*
 * A file system whose server does not answer READs: whoever touches a page of one of its files sleeps
 * until it is told to.
 *
 *	stallfs DIRECTORY
 *
 * It mounts itself there, says "mounted" and serves until it gets SIGTERM.  A file of any name is there,
 * of FILE_SIZE bytes; what is read of it is the number of each page, in each of its words.  Two names
 * are others, which are always answered:
 *
 *	held		how many READs wait for an answer now
 *	control		"go" written to it has all READs answered, those that wait and those to come;
 *			"stall" none that comes
 *
 * It speaks the protocol of /dev/fuse itself.
 */
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../lib/harness.h"

#define FILE_SIZE (1ULL << 40)
#define MAX_WRITE (128U << 10)
#define REQUEST_ROOM (MAX_WRITE + 4096)
/* As many READs may wait here; no more come. */
#define MAX_HELD 8192
#define MAX_FILES 4096
#define FOR_EVER (1U << 30)

enum { HELD = FUSE_ROOT_ID + 1, CONTROL, FIRST_FILE };

static int device;
static const char *mountpoint;
static bool stalls = true;

static char *names[MAX_FILES];
static unsigned int files;

static struct {
	uint64_t unique, offset;
	uint32_t size;
} waiting[MAX_HELD];
static unsigned int held;

/* ---- answers ----------------------------------------------------------- */

static void answer_error(uint64_t unique, int err, const void *data, size_t length)
{
	struct fuse_out_header header = {
		.len = sizeof(header) + length, .error = -err, .unique = unique,
	};
	struct iovec parts[] = {
		{ &header, sizeof(header) }, { (void *)data, length },
	};

	/* Whoever asked may have gone meanwhile. */
	if (writev(device, parts, length ? 2 : 1) < 0)
		require(errno == ENOENT, "an answer: %s", strerror(errno));
}

static void answer(uint64_t unique, const void *data, size_t length)
{
	answer_error(unique, 0, data, length);
}

static void refuse(uint64_t unique, int err)
{
	answer_error(unique, err, NULL, 0);
}

static struct fuse_attr attr_of(uint64_t node)
{
	struct fuse_attr attr = {
		.ino = node, .mode = S_IFREG | 0666, .nlink = 1, .size = FILE_SIZE, .blksize = 4096,
	};

	if (node == FUSE_ROOT_ID)
		attr.mode = S_IFDIR | 0755;
	if (node < FIRST_FILE)
		attr.size = 0;
	return attr;
}

static uint64_t node_of(const char *name)
{
	unsigned int i;

	if (!strcmp(name, "held"))
		return HELD;
	if (!strcmp(name, "control"))
		return CONTROL;
	for (i = 0; i < files; i++)
		if (!strcmp(names[i], name))
			return FIRST_FILE + i;
	require(files < MAX_FILES, "too many files");
	names[files] = strdup(name);
	require(names[files], "out of memory");
	return FIRST_FILE + files++;
}

static void answer_init(uint64_t unique, const struct fuse_init_in *in)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = in->max_readahead, .flags = in->flags & FUSE_ASYNC_READ,
		.max_background = MAX_HELD - 1, .congestion_threshold = MAX_HELD - 1,
		.max_write = MAX_WRITE, .time_gran = 1,
	};

	answer(unique, &out, sizeof(out));
}

static void answer_lookup(uint64_t unique, const char *name)
{
	uint64_t node = node_of(name);
	struct fuse_entry_out out = {
		.nodeid = node, .generation = 1, .entry_valid = FOR_EVER, .attr_valid = FOR_EVER,
		.attr = attr_of(node),
	};

	answer(unique, &out, sizeof(out));
}

static void answer_attr(uint64_t unique, uint64_t node)
{
	struct fuse_attr_out out = { .attr_valid = FOR_EVER, .attr = attr_of(node) };

	answer(unique, &out, sizeof(out));
}

static void answer_open(uint64_t unique, uint64_t node)
{
	struct fuse_open_out out = { .open_flags = node < FIRST_FILE ? FOPEN_DIRECT_IO : 0 };

	answer(unique, &out, sizeof(out));
}

/* ---- READs ------------------------------------------------------------- */

static void answer_read(uint64_t unique, uint64_t offset, uint32_t size)
{
	static uint64_t words[MAX_WRITE / sizeof(uint64_t)];
	size_t i;

	require(size <= sizeof(words), "a READ of %u bytes", size);
	for (i = 0; i < size / sizeof(words[0]); i++)
		words[i] = (offset + i * sizeof(words[0])) / 4096;
	answer(unique, words, size);
}

static void answer_held(uint64_t unique, uint64_t offset)
{
	char text[32];
	size_t length = snprintf(text, sizeof(text), "%u\n", held);

	answer(unique, text, offset ? 0 : length);
}

static void take_read(uint64_t unique, uint64_t node, const struct fuse_read_in *in)
{
	if (node == HELD)
		return answer_held(unique, in->offset);
	if (!stalls || node == CONTROL)
		return answer_read(unique, in->offset, node == CONTROL ? 0 : in->size);
	require(held < MAX_HELD, "too many READs");
	waiting[held].unique = unique;
	waiting[held].offset = in->offset;
	waiting[held++].size = in->size;
}

static void go(void)
{
	stalls = false;
	while (held) {
		held--;
		answer_read(waiting[held].unique, waiting[held].offset, waiting[held].size);
	}
}

static void take_write(uint64_t unique, uint64_t node, const struct fuse_write_in *in)
{
	struct fuse_write_out out = { .size = in->size };
	const char *text = (const char *)(in + 1);

	/* What becomes of the files nobody asks. */
	if (node == CONTROL && !strncmp(text, "go", 2))
		go();
	else if (node == CONTROL)
		stalls = true;
	answer(unique, &out, sizeof(out));
}

/* ---- requests ---------------------------------------------------------- */

static void take(const struct fuse_in_header *request)
{
	const void *rest = request + 1;
	uint64_t unique = request->unique, node = request->nodeid;

	switch (request->opcode) {
	case FUSE_INIT: return answer_init(unique, rest);
	case FUSE_LOOKUP: return answer_lookup(unique, rest);
	case FUSE_GETATTR:
	case FUSE_SETATTR: return answer_attr(unique, node);
	case FUSE_OPEN:
	case FUSE_OPENDIR: return answer_open(unique, node);
	case FUSE_READ: return take_read(unique, node, rest);
	case FUSE_WRITE: return take_write(unique, node, rest);
	case FUSE_READDIR:
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_DESTROY:
	case FUSE_FSYNC: return answer(unique, NULL, 0);
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT: return;
	default: return refuse(unique, ENOSYS);
	}
}

static void serve(void)
{
	static _Alignas(8) uint8_t request[REQUEST_ROOM];

	for (;;) {
		ssize_t length = read(device, request, sizeof(request));

		if (length < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
			continue;
		if (length < 0 && errno == ENODEV)
			return;
		require_sys(length);
		take((const struct fuse_in_header *)request);
	}
}

/* Whatever waits then gets an error. */
static void on_term(int number)
{
	(void)number;
	umount2(mountpoint, MNT_DETACH);
	_exit(0);
}

static void mount_it(void)
{
	char options[128];

	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	require(device >= 0, "/dev/fuse: %s", strerror(errno));
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 device);
	require_sys(mount("stallfs", mountpoint, "fuse", MS_NOSUID | MS_NODEV, options));
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_term };

	require(argc == 2, "usage: stallfs DIRECTORY");
	mountpoint = argv[1];
	mount_it();
	sigaction(SIGTERM, &action, NULL);
	note("mounted");
	serve();
	return 0;
}
