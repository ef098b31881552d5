// SPDX-License-Identifier: GPL-2.0
/*
 * An unprivileged process has on-demand memory of a file written to, beyond the space that its file system gives to
 * unprivileged processes:
 *
 *	reserved FILE
 */
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "rc.h"
#include "verbs.h"

#define NOBODY 65534
#define SIZE (12ul << 20)

static void become_nobody(void)
{
	require_sys(setgroups(0, NULL));
	require_sys(setresgid(NOBODY, NOBODY, NOBODY));
	require_sys(setresuid(NOBODY, NOBODY, NOBODY));
}

int main(int argc, char **argv)
{
	struct ibv_sge sge = { .length = SIZE };
	uint64_t available, used;
	struct statvfs space;
	struct stat file;
	struct ibv_mr *mr;
	char *bytes;
	int fd, err;

	require(argc == 2, "usage: reserved FILE");
	name_ends_from_environment();
	end_open(&ends[0], FAMILY_IPV4);
	become_nobody();
	fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	require_sys(fd);
	require_sys(ftruncate(fd, SIZE));
	require_sys(fstatvfs(fd, &space));
	available = space.f_bavail * space.f_frsize;
	require(available && available < SIZE && space.f_bfree * space.f_frsize > SIZE,
		"%lu of %lu blocks are available", space.f_bavail, space.f_bfree);

	bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	mr = ibv_reg_mr(ends[0].pd, bytes, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	require(mr, "ibv_reg_mr: %s", strerror(errno));
	sge.addr = (uintptr_t)bytes;
	sge.lkey = mr->lkey;
	err = advise(ends[0].pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		     IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &sge, 1);

	require_sys(fstat(fd, &file));
	used = file.st_blocks * 512ul;
	printf("%lu bytes were available, and %lu are used: %s\n", available, used, strerror(err));
	require(used, "nothing was written to");
	require(used <= available, "more is used");
	require(err == EFAULT, "the end of the space was not told");
	return 0;
}
