// SPDX-License-Identifier: GPL-2.0
/*
 * Messages over RDS that come back, all of which is compared:
 *
 *	rds -s ADDRESS			sends back what comes to that address
 *	rds ADDRESS PEER ROUNDS [SECONDS]	sends PEER messages of many lengths, and wants each back once, in
 *					order, and within SECONDS
 *
 * Bound to RDMA: without that RDS would take TCP.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rds.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PORT 4000
#define MOST 65536
/* That the peer is unreachable is noticed later than by other transports: RDS tries again for ever. */
static time_t patience_s = 90;

static const size_t lengths[] = { 1, 4095, 4096, 4097, 8, 40000, 64, MOST, 1000 };
static unsigned char message[MOST], answer[MOST + 1];

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static struct sockaddr_in address_of(const char *text, int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
		die(text);
	return address;
}

static int open_at(const char *text, int port)
{
	struct sockaddr_in address = address_of(text, port);
	struct timeval patience = { .tv_sec = patience_s };
	int transport = RDS_TRANS_IB, room = 4 * MOST;
	int fd = socket(AF_RDS, SOCK_SEQPACKET, 0);

	if (fd < 0)
		die("socket");
	if (setsockopt(fd, SOL_RDS, SO_RDS_TRANSPORT, &transport, sizeof(transport)))
		die("SO_RDS_TRANSPORT");
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		die("setsockopt");
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)))
		die("bind");
	return fd;
}

static void serve(const char *text)
{
	struct sockaddr_in peer;
	socklen_t length;
	ssize_t got;
	int fd = open_at(text, PORT);

	printf("serving\n");
	fflush(stdout);
	for (;;) {
		length = sizeof(peer);
		got = recvfrom(fd, answer, sizeof(answer), 0, (struct sockaddr *)&peer, &length);
		if (got < 0 && errno == EAGAIN)
			continue;
		if (got < 0)
			die("recvfrom");
		if (sendto(fd, answer, got, 0, (struct sockaddr *)&peer, length) != got)
			die("sendto");
	}
}

static void fill(size_t length, uint32_t round)
{
	for (size_t i = 0; i < length; i++)
		message[i] = (round + i) * 2654435761u >> 24;
}

static void exchange(int fd, const struct sockaddr_in *peer, size_t length, uint32_t round)
{
	ssize_t got;

	fill(length, round);
	if (sendto(fd, message, length, 0, (const struct sockaddr *)peer, sizeof(*peer)) != (ssize_t)length)
		die("sendto");
	got = recv(fd, answer, sizeof(answer), 0);
	if (got < 0)
		die("recv");
	if ((size_t)got != length || memcmp(message, answer, length)) {
		fprintf(stderr, "round %u: %zu bytes came back as %zd others\n", round, length, got);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in peer;
	uint32_t rounds;
	int fd;

	if (argc == 3 && !strcmp(argv[1], "-s"))
		serve(argv[2]);
	if (argc != 4 && argc != 5) {
		fprintf(stderr, "rds -s ADDRESS | rds ADDRESS PEER ROUNDS [SECONDS]\n");
		return 2;
	}
	if (argc == 5)
		patience_s = strtoul(argv[4], NULL, 0);
	fd = open_at(argv[1], 0);
	peer = address_of(argv[2], PORT);
	rounds = strtoul(argv[3], NULL, 0);
	for (uint32_t round = 0; round < rounds; round++)
		exchange(fd, &peer, lengths[round % (sizeof(lengths) / sizeof(lengths[0]))], round);
	printf("%u messages were the same\n", rounds);
	return 0;
}
