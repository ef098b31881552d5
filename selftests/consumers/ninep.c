// SPDX-License-Identifier: GPL-2.0
/*
 * A server of 9P2000.L over RDMA, for the kernel's client, as no packaged server has RDMA:
 *
 *	ninep ADDRESS PORT DIRECTORY	serves that directory to one client, until it is ended
 *
 * It has what a test needs: files and directories are made, read, written, listed, changed and removed.
 * It trusts its client.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

/* The largest message, and how many the client may have on the way. */
#define MESSAGE (1 << 17)
#define RECEIVES 64
#define FIDS 4096
#define HEAD 7

/* Types of requests. A reply's is one more. */
enum {
	ERROR_REPLY = 7, STATFS = 8, LOPEN = 12, LCREATE = 14, GETATTR = 24, SETATTR = 26, READDIR = 40, FSYNC = 50,
	MKDIR = 72, UNLINKAT = 76, VERSION = 100, ATTACH = 104, FLUSH = 108, WALK = 110, READ = 116, WRITE = 118,
	CLUNK = 120,
};

/* All attributes but the time of birth, the generation and the version of the data. */
#define BASIC_ATTRIBUTES 0x7ff
enum { SET_MODE = 1, SET_SIZE = 8 };

struct fid {
	uint32_t number;
	int fd;
	DIR *listing;
	/* Without one it is free. */
	char *path;
};

static struct fid fids[FIDS];
static const char *root;

/* The rest of the request at hand, and its reply. */
static const uint8_t *in;
static uint8_t *out;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t take(int bytes)
{
	uint64_t value = 0;

	memcpy(&value, in, bytes);
	in += bytes;
	return le64toh(value);
}

static void put(uint64_t value, int bytes)
{
	value = htole64(value);
	memcpy(out, &value, bytes);
	out += bytes;
}

/* In a place of its own, until the next one. */
static const char *take_name(void)
{
	static char name[NAME_MAX + 1];
	size_t length = take(2);

	if (length > NAME_MAX)
		exit(1);
	memcpy(name, in, length);
	name[length] = 0;
	in += length;
	return name;
}

static void put_name(const char *name)
{
	size_t length = strlen(name);

	put(length, 2);
	memcpy(out, name, length);
	out += length;
}

static void put_qid(const struct stat *stat)
{
	put(S_ISDIR(stat->st_mode) ? 0x80 : S_ISLNK(stat->st_mode) ? 2 : 0, 1);
	put(0, 4);
	put(stat->st_ino, 8);
}

static struct fid *find(uint32_t number)
{
	for (struct fid *fid = fids; fid < fids + FIDS; fid++)
		if (fid->path && fid->number == number)
			return fid;
	return NULL;
}

static void forget(struct fid *fid)
{
	if (fid->fd >= 0)
		close(fid->fd);
	if (fid->listing)
		closedir(fid->listing);
	free(fid->path);
	fid->path = NULL;
}

static int add(uint32_t number, const char *path)
{
	for (struct fid *fid = fids; fid < fids + FIDS; fid++)
		if (!fid->path) {
			*fid = (struct fid){ .number = number, .fd = -1, .path = strdup(path) };
			return 0;
		}
	return ENFILE;
}

static const char *within(const struct fid *fid, const char *name)
{
	static char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s", fid->path, name) >= (int)sizeof(path))
		exit(1);
	return path;
}

/* ---- requests: each returns an error number --------------------------------- */

static int attach(void)
{
	uint32_t number = take(4);
	struct stat stat;

	if (lstat(root, &stat))
		return errno;
	put_qid(&stat);
	return add(number, root);
}

/* Walks one name after the other. If not all are there, no fid is made. */
static int walk(struct fid *fid)
{
	uint32_t number = take(4);
	uint16_t names = take(2), walked = 0;
	uint8_t *count = out;
	char path[PATH_MAX];
	struct fid here = { .path = path };
	struct stat stat;

	strcpy(path, fid->path);
	put(0, 2);
	for (; walked < names; walked++) {
		const char *next = within(&here, take_name());

		if (lstat(next, &stat))
			break;
		strcpy(path, next);
		put_qid(&stat);
	}
	if (names && !walked)
		return ENOENT;
	*count = walked;
	if (walked < names)
		return 0;
	if (fid->number == number)
		forget(fid);
	return add(number, path);
}

static int get_attributes(struct fid *fid)
{
	struct stat stat;

	if (fid->fd >= 0 ? fstat(fid->fd, &stat) : lstat(fid->path, &stat))
		return errno;
	put(BASIC_ATTRIBUTES, 8);
	put_qid(&stat);
	put(stat.st_mode, 4);
	put(stat.st_uid, 4);
	put(stat.st_gid, 4);
	put(stat.st_nlink, 8);
	put(stat.st_rdev, 8);
	put(stat.st_size, 8);
	put(stat.st_blksize, 8);
	put(stat.st_blocks, 8);
	put(stat.st_atim.tv_sec, 8);
	put(stat.st_atim.tv_nsec, 8);
	put(stat.st_mtim.tv_sec, 8);
	put(stat.st_mtim.tv_nsec, 8);
	put(stat.st_ctim.tv_sec, 8);
	put(stat.st_ctim.tv_nsec, 8);
	for (int rest = 0; rest < 4; rest++)
		put(0, 8);
	return 0;
}

static int set_attributes(struct fid *fid)
{
	uint32_t valid = take(4), mode = take(4);
	uint64_t size;

	in += 8;
	size = take(8);
	if (valid & SET_MODE && chmod(fid->path, mode & 07777))
		return errno;
	if (valid & SET_SIZE && truncate(fid->path, size))
		return errno;
	return 0;
}

static int put_opened(struct fid *fid)
{
	struct stat stat;

	if (fid->fd < 0 || fstat(fid->fd, &stat))
		return errno;
	put_qid(&stat);
	put(0, 4);
	return 0;
}

static int open_file(struct fid *fid)
{
	fid->fd = open(fid->path, take(4) & (O_ACCMODE | O_TRUNC | O_APPEND));
	return put_opened(fid);
}

/* From then on the fid of the directory is that of the file. */
static int create(struct fid *fid)
{
	char *path = strdup(within(fid, take_name()));
	uint32_t flags = take(4), mode = take(4);

	fid->fd = open(path, O_CREAT | (flags & (O_ACCMODE | O_TRUNC | O_APPEND | O_EXCL)), mode & 07777);
	free(fid->path);
	fid->path = path;
	return put_opened(fid);
}

static int make_directory(struct fid *fid)
{
	const char *path = within(fid, take_name());
	struct stat stat;

	if (mkdir(path, take(4) & 07777) || lstat(path, &stat))
		return errno;
	put_qid(&stat);
	return 0;
}

static int unlink_at(struct fid *fid)
{
	const char *path = within(fid, take_name());

	return (take(4) & AT_REMOVEDIR ? rmdir(path) : unlink(path)) ? errno : 0;
}

static int read_file(struct fid *fid)
{
	uint64_t offset = take(8);
	ssize_t got = pread(fid->fd, out + 4, take(4), offset);

	if (got < 0)
		return errno;
	put(got, 4);
	out += got;
	return 0;
}

static int write_file(struct fid *fid)
{
	uint64_t offset = take(8);
	uint32_t count = take(4);
	ssize_t written = pwrite(fid->fd, in, count, offset);

	if (written < 0)
		return errno;
	put(written, 4);
	return 0;
}

/* The qid tells the inode only, which is enough for a client that caches nothing. */
static int list(struct fid *fid)
{
	uint64_t offset = take(8);
	uint32_t room = take(4);
	uint8_t *count = out, *begin;
	struct dirent *entry;

	if (!fid->listing)
		fid->listing = opendir(fid->path);
	if (!fid->listing)
		return errno;
	if (offset)
		seekdir(fid->listing, offset);
	else
		rewinddir(fid->listing);
	put(0, 4);
	begin = out;
	while ((entry = readdir(fid->listing))) {
		struct stat stat = { .st_ino = entry->d_ino, .st_mode = DTTOIF(entry->d_type) };

		if (out - begin + 24 + strlen(entry->d_name) > room)
			break;
		put_qid(&stat);
		put(telldir(fid->listing), 8);
		put(entry->d_type, 1);
		put_name(entry->d_name);
	}
	room = out - begin;
	out = count;
	put(room, 4);
	out += room;
	return 0;
}

static int status(void)
{
	struct statfs all;

	if (statfs(root, &all))
		return errno;
	put(all.f_type, 4);
	put(all.f_bsize, 4);
	put(all.f_blocks, 8);
	put(all.f_bfree, 8);
	put(all.f_bavail, 8);
	put(all.f_files, 8);
	put(all.f_ffree, 8);
	put(0, 8);
	put(all.f_namelen, 4);
	return 0;
}

static int agree(void)
{
	uint32_t size = take(4);

	put(size < MESSAGE ? size : MESSAGE, 4);
	put_name("9P2000.L");
	return 0;
}

static int of_fid(int type)
{
	struct fid *fid = find(take(4));

	if (!fid)
		return EBADF;
	switch (type) {
	case STATFS:
		return status();
	case LOPEN:
		return open_file(fid);
	case LCREATE:
		return create(fid);
	case GETATTR:
		return get_attributes(fid);
	case SETATTR:
		return set_attributes(fid);
	case READDIR:
		return list(fid);
	case FSYNC:
		return fsync(fid->fd) ? errno : 0;
	case MKDIR:
		return make_directory(fid);
	case UNLINKAT:
		return unlink_at(fid);
	case WALK:
		return walk(fid);
	case READ:
		return read_file(fid);
	case WRITE:
		return write_file(fid);
	case CLUNK:
		forget(fid);
		return 0;
	default:
		return EOPNOTSUPP;
	}
}

/* Returns the length of the reply. */
static uint32_t serve(const uint8_t *request, uint8_t *reply)
{
	int type, error;
	uint16_t tag;
	uint32_t length;

	in = request + 4;
	type = take(1);
	tag = take(2);
	out = reply + HEAD;
	error = type == VERSION ? agree() : type == ATTACH ? attach() : type == FLUSH ? 0 : of_fid(type);
	if (error) {
		out = reply + HEAD;
		put(error, 4);
	}
	length = out - reply;
	out = reply;
	put(length, 4);
	put(error ? ERROR_REPLY : type + 1, 1);
	put(tag, 2);
	return length;
}

/* ---- RDMA ------------------------------------------------------------------ */

static struct rdma_cm_id *accept_client(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attr = { .cap = { .max_send_wr = 1, .max_recv_wr = RECEIVES, .max_send_sge = 1,
						  .max_recv_sge = 1 },
					 .sq_sig_all = 1 };
	struct rdma_cm_id *listener, *id;

	if (rdma_getaddrinfo(address, port, &hints, &found))
		die("rdma_getaddrinfo");
	if (rdma_create_ep(&listener, found, NULL, &attr))
		die("rdma_create_ep");
	if (rdma_listen(listener, 1))
		die("rdma_listen");
	if (rdma_get_request(listener, &id))
		die("rdma_get_request");
	return id;
}

int main(int argc, char **argv)
{
	uint8_t *requests = aligned_alloc(4096, MESSAGE * RECEIVES), *reply = aligned_alloc(4096, 2 * MESSAGE);
	struct ibv_mr *request_mr, *reply_mr;
	struct rdma_cm_id *id;
	struct ibv_wc wc;

	if (argc != 4) {
		fprintf(stderr, "usage: ninep ADDRESS PORT DIRECTORY\n");
		return 1;
	}
	root = argv[3];
	id = accept_client(argv[1], argv[2]);
	request_mr = rdma_reg_msgs(id, requests, MESSAGE * RECEIVES);
	reply_mr = rdma_reg_msgs(id, reply, 2 * MESSAGE);
	if (!request_mr || !reply_mr)
		die("rdma_reg_msgs");
	for (uint8_t *at = requests; at < requests + MESSAGE * RECEIVES; at += MESSAGE)
		if (rdma_post_recv(id, at, at, MESSAGE, request_mr))
			die("rdma_post_recv");
	if (rdma_accept(id, NULL))
		die("rdma_accept");
	while (rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS) {
		uint8_t *request = (uint8_t *)(uintptr_t)wc.wr_id;
		uint32_t length = serve(request, reply);

		if (rdma_post_recv(id, request, request, MESSAGE, request_mr))
			die("rdma_post_recv");
		if (rdma_post_send(id, NULL, reply, length, reply_mr, 0))
			die("rdma_post_send");
		if (rdma_get_send_comp(id, &wc) != 1 || wc.status != IBV_WC_SUCCESS)
			break;
	}
	return 0;
}
