/* SPDX-License-Identifier: MIT */
/*
 * cross_device_wait.c - two devices whose work depends on each other, as collectives
 * do: a kernel of the first runs until one of the second has begun. A thread works on
 * each.
 *
 * The first thread frees and allocates much while its kernel runs. On plain CUDA that
 * waits for the kernel, and the other thread's work begins all the same, since it is
 * another context's. So nothing that the library does may hold it back either.
 *
 * The first kernel does not really wait, it lasts very long: the second device's work
 * must be done before it.
 *
 *   --blocks N --block BYTES --rounds N
 *
 * Exit code: 0 right, 1 held back, 2 an error of CUDA, 77 one device only.
 *
 * Run: both: trial.py @ --blocks 3 --rounds 1 GCPSIM_DEVICES=2 GCPSIM_SPEED=never
 * GCPOOL_TEST_WINDOW=0 GCPOOL_TEST_FENCE_BATCH=1
 * Run: both: trial.py @ --blocks 3 --rounds 1 GCPSIM_DEVICES=2 GCPSIM_SPEED=never
 * GCPOOL_TEST_WINDOW=0 GCPOOL_THREAD_CACHE=0
 * Run: trial.py @ --blocks 110 --rounds 1 GCPSIM_DEVICES=2 GCPSIM_SPEED=never
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"
#include "kernels.h"
#include "util.h"

enum { BLOCKS_MAX = 4096, WORDS = 1000 };

static const uint64_t SPIN_NS = 3000000000;

struct partners {
	size_t blocks, bytes, rounds;
	CUstream stream; /* of the first device */
	void *block[BLOCKS_MAX];
	atomic_bool begun;
};

static void *first_works(void *arg)
{
	struct partners *p = arg;
	struct gcpt_kernels kernels;

	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_kernels_load(&kernels));
	GCPT_OK(gcpt_launch_spin(&kernels, p->stream, SPIN_NS));
	atomic_store(&p->begun, true);
	for (size_t round = 0; round < p->rounds; round++) {
		for (size_t i = 0; i < p->blocks; i++)
			GCPT_OK(gcpt_free(p->block[i]));
		for (size_t i = 0; i < p->blocks; i++)
			GCPT_OK(gcpt_malloc(&p->block[i], p->bytes));
	}
	return NULL;
}

/* Returns once its work is done. */
static void second_works(const struct gcpt_kernels *kernels, CUstream stream,
			 void *buffer)
{
	GCPT_OK(gcpt_use(1));
	GCPT_OK(gcpt_launch_fill(kernels, stream, buffer, WORDS, 1));
	GCPT_OK(gcpt_stream_sync(stream));
}

int main(int argc, char **argv)
{
	static struct partners p;
	struct gcpt_kernels kernels;
	pthread_t first;
	CUstream stream;
	void *buffer;
	int count = 0, code;

	p.blocks = gcpt_arg(argc, argv, "--blocks", 300) % BLOCKS_MAX;
	p.bytes = gcpt_arg(argc, argv, "--block", 1 << 20);
	p.rounds = gcpt_arg(argc, argv, "--rounds", 3);
	GCPT_OK(gcpt_use(0));
	GCPT_OK(gcpt_device_count(&count));
	if (count < 2)
		return 77;
	GCPT_OK(gcpt_stream_create(&p.stream));
	for (size_t i = 0; i < p.blocks; i++)
		GCPT_OK(gcpt_malloc(&p.block[i], p.bytes));
	GCPT_OK(gcpt_use(1));
	GCPT_OK(gcpt_kernels_load(&kernels));
	GCPT_OK(gcpt_stream_create(&stream));
	GCPT_OK(gcpt_malloc(&buffer, WORDS * 4));
	second_works(&kernels, stream, buffer);

	GCPT_OK(pthread_create(&first, NULL, first_works, &p));
	while (!atomic_load(&p.begun))
		usleep(1000);
	usleep(500000);
	second_works(&kernels, stream, buffer);
	code = (int)cu.cuStreamQuery(p.stream);
	printf("partners: the other device's work was %s\n",
	       code == CUDA_ERROR_NOT_READY ? "not held back" : "HELD BACK");
	fflush(stdout);
	GCPT_OK(pthread_join(first, NULL));
	return code == CUDA_ERROR_NOT_READY ? 0 : 1;
}
