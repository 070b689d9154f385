# SPDX-License-Identifier: MIT
# shellcheck shell=sh
# lib.sh - what packaging/wheel and packaging/check share. Sourced with $ROOT set to
# the root of the sources.

say() {
	printf '%s: %s\n' "$(basename -- "$0")" "$*"
}

fail() {
	say "$*" >&2
	exit 2
}

need() { # COMMAND...
	for command in "$@"; do
		command -v "$command" >/dev/null 2>&1 || fail "needs $command, which is not here"
	done
}

# Sets CUDA to a directory with CUDA's headers, as debian/rules does.
cuda_headers() {
	for CUDA in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda \
		"$ROOT/build-cuda/nvidia/cu13" /usr; do
		[ -n "$CUDA" ] && [ -f "$CUDA/include/cuda.h" ] && return
	done
	fail "no CUDA headers: set CUDA_HOME, or run scripts/demo once, which fetches them"
}
