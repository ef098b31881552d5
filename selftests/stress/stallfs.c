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
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "../lib/fuse.h"
#include "../lib/require.h"

#define FILE_SIZE (1ULL << 40)
#define MAX_FILES 4096

enum { HELD, CONTROL, FIRST_FILE };

static const char *mountpoint;
static bool stalls = true;

static char *names[MAX_FILES] = { [HELD] = "held", [CONTROL] = "control" };
static unsigned int files = FIRST_FILE;

static struct fuse_read waiting[FUSE_MOST_WAIT];
static unsigned int held;

static uint64_t file_of(const char *name)
{
	unsigned int i;

	for (i = 0; i < files; i++)
		if (!strcmp(names[i], name))
			return i;
	require(files < MAX_FILES, "too many files");
	names[files] = strdup(name);
	require(names[files], "out of memory");
	return files++;
}

static bool is_control(uint64_t file)
{
	return file < FIRST_FILE;
}

static void answer_pages(const struct fuse_server *server, const struct fuse_read *read)
{
	static uint64_t words[FUSE_MOST / sizeof(uint64_t)];
	size_t i;

	require(read->size <= sizeof(words), "a READ of %u bytes", read->size);
	for (i = 0; i < read->size / sizeof(words[0]); i++)
		words[i] = (read->offset + i * sizeof(words[0])) / 4096;
	fuse_answer_read(server, read, words, read->size);
}

static void answer_held(const struct fuse_server *server, const struct fuse_read *read)
{
	char text[32];
	size_t length = snprintf(text, sizeof(text), "%u\n", held);

	fuse_answer_read(server, read, text, read->offset ? 0 : length);
}

static void take_read(const struct fuse_server *server, const struct fuse_read *read)
{
	if (read->file == HELD)
		return answer_held(server, read);
	if (read->file == CONTROL)
		return fuse_answer_read(server, read, NULL, 0);
	if (!stalls)
		return answer_pages(server, read);
	require(held < FUSE_MOST_WAIT, "too many READs");
	waiting[held++] = *read;
}

/* What becomes of the files nobody asks. */
static void take_write(const struct fuse_server *server, uint64_t file, uint64_t offset,
		       const void *bytes, uint32_t size)
{
	(void)offset;
	if (file != CONTROL)
		return;
	stalls = size < 2 || memcmp(bytes, "go", 2);
	while (!stalls && held)
		answer_pages(server, &waiting[--held]);
}

/* Whatever waits then gets an error. */
static void on_term(int number)
{
	(void)number;
	umount2(mountpoint, MNT_DETACH);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_term };
	struct fuse_server server = {
		.size = FILE_SIZE, .reads_ahead = true, .file_of = file_of, .is_control = is_control,
		.read = take_read, .write = take_write,
	};

	require(argc == 2, "usage: stallfs DIRECTORY");
	mountpoint = argv[1];
	server.fd = fuse_mount(mountpoint, true);
	require(server.fd >= 0, "/dev/fuse: %s", strerror(errno));
	sigaction(SIGTERM, &action, NULL);
	note("mounted");
	fuse_serve(&server);
	return 0;
}
