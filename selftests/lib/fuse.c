// SPDX-License-Identifier: GPL-2.0
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuse.h"
#include "require.h"

/* The nodes behind the root are the files, by their number. */
#define FIRST_FILE (FUSE_ROOT_ID + 1)
#define FOR_EVER_S (1U << 30)

/* ---- answers ----------------------------------------------------------- */

static void answer_error(const struct fuse_server *server, uint64_t unique, int err,
			 const void *data, size_t size)
{
	struct fuse_out_header out = {
		.len = sizeof(out) + size, .error = -err, .unique = unique,
	};
	struct iovec parts[] = { { &out, sizeof(out) }, { (void *)data, size } };

	/* Whoever asked may have gone meanwhile. */
	if (writev(server->fd, parts, size ? 2 : 1) < 0)
		require(errno == ENOENT, "an answer: %s", strerror(errno));
}

static void answer(const struct fuse_server *server, const struct fuse_in_header *in,
		   const void *data, size_t size)
{
	answer_error(server, in->unique, 0, data, size);
}

static bool is_control(const struct fuse_server *server, uint64_t node)
{
	return node >= FIRST_FILE && server->is_control && server->is_control(node - FIRST_FILE);
}

static struct fuse_attr attr_of(const struct fuse_server *server, uint64_t node)
{
	bool is_root = node == FUSE_ROOT_ID;

	return (struct fuse_attr){
		.ino = node, .nlink = 1, .blksize = 4096,
		.size = is_root || is_control(server, node) ? 0 : server->size,
		.mode = is_root ? S_IFDIR | 0755 : S_IFREG | 0666,
	};
}

static void answer_init(const struct fuse_server *server, const struct fuse_in_header *in,
			const struct fuse_init_in *init)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
		.max_background = FUSE_MOST_WAIT - 1, .congestion_threshold = FUSE_MOST_WAIT - 1,
		.max_write = FUSE_MOST, .time_gran = 1,
	};

	if (server->reads_ahead) {
		out.max_readahead = init->max_readahead;
		out.flags = init->flags & FUSE_ASYNC_READ;
	}
	answer(server, in, &out, sizeof(out));
}

static void answer_lookup(const struct fuse_server *server, const struct fuse_in_header *in,
			  const char *name)
{
	uint64_t node = FIRST_FILE + server->file_of(name);
	struct fuse_entry_out out = {
		.nodeid = node, .generation = 1, .entry_valid = FOR_EVER_S,
		.attr_valid = FOR_EVER_S, .attr = attr_of(server, node),
	};

	answer(server, in, &out, sizeof(out));
}

static void answer_attr(const struct fuse_server *server, const struct fuse_in_header *in)
{
	struct fuse_attr_out out = {
		.attr_valid = FOR_EVER_S, .attr = attr_of(server, in->nodeid),
	};

	answer(server, in, &out, sizeof(out));
}

static void answer_open(const struct fuse_server *server, const struct fuse_in_header *in)
{
	struct fuse_open_out out = {
		.open_flags = is_control(server, in->nodeid) ? FOPEN_DIRECT_IO : 0,
	};

	answer(server, in, &out, sizeof(out));
}

void fuse_answer_read(const struct fuse_server *server, const struct fuse_read *read,
		      const void *bytes, size_t size)
{
	answer_error(server, read->unique, 0, bytes, size);
}

static void take_read(const struct fuse_server *server, const struct fuse_in_header *in,
		      const struct fuse_read_in *read)
{
	struct fuse_read taken = {
		.unique = in->unique, .file = in->nodeid - FIRST_FILE, .offset = read->offset,
		.size = read->size,
	};

	server->read(server, &taken);
}

static void take_write(const struct fuse_server *server, const struct fuse_in_header *in,
		       const struct fuse_write_in *write)
{
	struct fuse_write_out out = { .size = write->size };

	server->write(server, in->nodeid - FIRST_FILE, write->offset, write + 1, write->size);
	answer(server, in, &out, sizeof(out));
}

static void serve_one(const struct fuse_server *server, const struct fuse_in_header *in)
{
	const void *body = in + 1;

	switch (in->opcode) {
	case FUSE_INIT: return answer_init(server, in, body);
	case FUSE_LOOKUP: return answer_lookup(server, in, body);
	case FUSE_GETATTR:
	case FUSE_SETATTR: return answer_attr(server, in);
	case FUSE_OPEN:
	case FUSE_OPENDIR: return answer_open(server, in);
	case FUSE_READ: return take_read(server, in, body);
	case FUSE_WRITE: return take_write(server, in, body);
	case FUSE_READDIR:
	case FUSE_FLUSH:
	case FUSE_FSYNC:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_DESTROY: return answer(server, in, NULL, 0);
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT: return;
	default: return answer_error(server, in->unique, ENOSYS, NULL, 0);
	}
}

void fuse_serve(const struct fuse_server *server)
{
	static _Alignas(8) uint8_t request[FUSE_MOST + 4096];

	for (;;) {
		ssize_t length = read(server->fd, request, sizeof(request));

		if (length < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
			continue;
		if (length < 0 && errno == ENODEV)
			return;
		require_sys(length);
		serve_one(server, (const struct fuse_in_header *)request);
	}
}

int fuse_mount(const char *directory, bool for_all)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[128];

	if (fd < 0)
		return fd;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0%s", fd,
		 for_all ? ",allow_other" : "");
	require_sys(mount("fuse", directory, "fuse", MS_NOSUID | MS_NODEV, options));
	return fd;
}

/* ---- one whose server is a process of its own -------------------------- */

/* Of the process that serves. */
static struct fuse_shared *served;

static uint64_t file_of(const char *name)
{
	return atoi(name);
}

static uint64_t bytes_at(uint64_t offset, uint32_t wanted)
{
	if (offset >= served->size)
		return 0;
	return served->size - offset < wanted ? served->size - offset : wanted;
}

static void read_late(const struct fuse_server *server, const struct fuse_read *read)
{
	int delay = atomic_load(&served->delay_ms);

	if (delay == FUSE_NEVER)
		return;
	if (!read->offset)
		usleep(delay * 1000);
	fuse_answer_read(server, read, served->bytes + read->offset,
			 bytes_at(read->offset, read->size));
}

static void write_shared(const struct fuse_server *server, uint64_t file, uint64_t offset,
			 const void *bytes, uint32_t size)
{
	(void)server;
	(void)file;
	memcpy(served->bytes + offset, bytes, bytes_at(offset, size));
}

static _Noreturn void serve(int fd, struct fuse_shared *shared)
{
	struct fuse_server server = {
		.fd = fd, .size = shared->size, .file_of = file_of, .read = read_late,
		.write = write_shared,
	};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	served = shared;
	fuse_serve(&server);
	_exit(0);
}

void fuse_start(struct fuse *fuse, size_t size)
{
	size_t all = sizeof(struct fuse_shared) + size;
	int fd;

	memset(fuse, 0, sizeof(*fuse));
	fuse->shared = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(fuse->shared != MAP_FAILED, "mmap: %s", strerror(errno));
	fuse->shared->size = size;
	strcpy(fuse->dir, "/tmp/fuse.XXXXXX");
	require(mkdtemp(fuse->dir), "%s: %s", fuse->dir, strerror(errno));
	fd = fuse_mount(fuse->dir, false);
	if (fd < 0) {
		rmdir(fuse->dir);
		skip("no /dev/fuse: %s", strerror(errno));
	}
	fuse->server = fork();
	require_sys(fuse->server);
	if (!fuse->server)
		serve(fd, fuse->shared);
	close(fd);
}

int fuse_open(struct fuse *fuse)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%u", fuse->dir, fuse->files++);
	fd = open(path, O_RDWR | O_CLOEXEC);
	require(fd >= 0, "%s: %s", path, strerror(errno));
	return fd;
}

void fuse_kill(struct fuse *fuse)
{
	if (!fuse->server)
		return;
	require_sys(kill(fuse->server, SIGKILL));
	require_sys(waitpid(fuse->server, NULL, 0));
	fuse->server = 0;
}

void fuse_stop(struct fuse *fuse)
{
	fuse_kill(fuse);
	require_sys(umount2(fuse->dir, MNT_DETACH));
	require_sys(rmdir(fuse->dir));
	munmap(fuse->shared, sizeof(*fuse->shared) + fuse->shared->size);
}
