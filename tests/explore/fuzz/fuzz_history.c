/* SPDX-License-Identifier: MIT */
/*
 * fuzz_history.c - a fuzzer of the pool: tests/unit/test_history.c, whose random
 * numbers are the bytes of the input. The options, the memory of the device and
 * each step are chosen by them, and coverage leads to histories that chance does
 * not find. When the bytes have run out the history ends.
 */
#define GCP_HISTORY_FROM_BYTES
#include "../../unit/test_history.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	history_bytes = data;
	history_bytes_left = size;
	if (history_has_hazard(1, size > 0 && data[size - 1] % 2 == 0))
		__builtin_trap();
	return 0;
}
