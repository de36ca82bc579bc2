//go:build ignore

/* Measures how fast threads read memory, in plain C with POSIX threads. It shares no code with the
 * program that it checks.
 *
 * read BYTES THREADS takes one sample for each line of standard input, and prints bytes per second.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE = 2 << 20, AHEAD = 1024 };

struct part {
	pthread_t thread;
	const uint64_t *words;
	size_t count;
	int passes;
	uint64_t sum;
	double begin, end;
};

static pthread_barrier_t ready;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Reads one cache line of each quarter of the part, then the next line of each: four streams. */
static uint64_t sum(const uint64_t *words, size_t count) {
	const size_t quarter = count / 4;
	uint64_t s = 0;
	for (size_t at = 0; at < quarter; at += 8) {
		for (int q = 0; q < 4; q++) {
			const uint64_t *w = words + q * quarter + at;
			__builtin_prefetch((const char *)w + AHEAD);
			for (int i = 0; i < 8; i++)
				s += w[i];
		}
	}
	return s;
}

static void *reader(void *arg) {
	struct part *p = arg;
	pthread_barrier_wait(&ready);
	p->begin = now();
	for (int i = 0; i < p->passes; i++)
		p->sum += sum(p->words, p->count);
	p->end = now();
	return 0;
}

int main(int argc, char **argv) {
	size_t bytes = argc == 3 ? strtoull(argv[1], 0, 10) : 0;
	int threads = argc == 3 ? atoi(argv[2]) : 0;
	if (bytes < 4096 || threads < 1 || threads > 1024) {
		fprintf(stderr, "read: expected BYTES, 4096 or more, and THREADS\n");
		return 2;
	}
	char *mapped = mmap(0, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED) {
		perror("read: mmap");
		return 1;
	}
	char *data = mapped + (HUGE - (uintptr_t)mapped % HUGE) % HUGE;
	madvise(data, bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < bytes; i++)
		data[i] = i;

	struct part *parts = calloc(threads, sizeof *parts);
	size_t count = bytes / 8 / threads / 32 * 32;
	int passes = 1 + (64 << 20) / bytes;
	char line[16];
	while (fgets(line, sizeof line, stdin)) {
		pthread_barrier_init(&ready, 0, threads);
		for (int i = 0; i < threads; i++) {
			parts[i].words = (const uint64_t *)data + i * count;
			parts[i].count = count;
			parts[i].passes = passes;
			if (pthread_create(&parts[i].thread, 0, reader, &parts[i])) {
				perror("read: a thread");
				return 1;
			}
		}
		double begin = 0, end = 0;
		volatile uint64_t all = 0;
		for (int i = 0; i < threads; i++) {
			pthread_join(parts[i].thread, 0);
			if (i == 0 || parts[i].begin < begin)
				begin = parts[i].begin;
			if (parts[i].end > end)
				end = parts[i].end;
			all += parts[i].sum;
		}
		pthread_barrier_destroy(&ready);
		printf("%.6g\n", 8.0 * count * threads * passes / (end - begin));
		fflush(stdout);
	}
	return 0;
}
