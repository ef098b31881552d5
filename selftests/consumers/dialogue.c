// SPDX-License-Identifier: GPL-2.0
/*
 * A dialogue over a stream socket, all of which is compared:
 *
 *	dialogue -s ADDRESS PORT	says again what it hears, until the peer ends
 *	dialogue ADDRESS PORT ROUNDS	says lines of several lengths, and hears them again
 *
 * It knows sockets alone, and none of their newer flags, which a library in their place may not know.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 65536
#define IDLE_S 5

static const size_t lengths[] = { 1, 40, 3, 1000, MOST, 17 };
static unsigned char line[MOST], heard[MOST];

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "that is not what was said");
	exit(1);
}

static void say_all(int fd, const unsigned char *data, size_t length)
{
	ssize_t sent;

	for (; length; data += sent, length -= sent)
		if ((sent = send(fd, data, length, 0)) <= 0)
			die("send");
}

static int serve(int listener)
{
	ssize_t got;
	int fd;

	if (listen(listener, 1))
		die("listen");
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		die("accept");
	while ((got = recv(fd, heard, MOST, 0)) > 0)
		say_all(fd, heard, got);
	close(fd);
	return got < 0;
}

static void hear_all(int fd, size_t length)
{
	size_t have = 0;
	ssize_t got;

	for (; have < length; have += got)
		if ((got = recv(fd, heard + have, length - have, 0)) <= 0)
			die("recv");
}

/* Whoever waits in recv() over rsockets learns by what is sent alone that the peer is gone. */
static void keep_alive(int fd)
{
	int on = 1, idle = IDLE_S;

	if (setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)) ||
	    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)))
		die("setsockopt");
}

static int talk(int fd, unsigned long rounds)
{
	size_t length;

	keep_alive(fd);
	for (unsigned long turn = 0; turn < rounds; turn++) {
		length = lengths[turn % (sizeof(lengths) / sizeof(*lengths))];
		for (size_t at = 0; at < length; at++)
			line[at] = turn + at + at / 255;
		say_all(fd, line, length);
		hear_all(fd, length);
		errno = 0;
		if (memcmp(line, heard, length))
			die("hear");
	}
	shutdown(fd, SHUT_RDWR);
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST }, *found;
	int serves = argc > 1 && !strcmp(argv[1], "-s"), fd;

	if (argc != 4 || getaddrinfo(argv[1 + serves], argv[2 + serves], &hints, &found)) {
		fprintf(stderr, "usage: dialogue -s ADDRESS PORT | ADDRESS PORT ROUNDS\n");
		return 1;
	}
	fd = socket(found->ai_family, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket");
	if (serves && bind(fd, found->ai_addr, found->ai_addrlen))
		die("bind");
	if (!serves && connect(fd, found->ai_addr, found->ai_addrlen))
		die("connect");
	return serves ? serve(fd) : talk(fd, strtoul(argv[3], NULL, 0));
}
