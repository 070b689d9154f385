# SPDX-License-Identifier: MIT
# shellcheck shell=sh
# lib.sh - what scripts/demo and scripts/test share: installing what is missing,
# finding CUDA's headers and a GPU, and building. Sourced with $ROOT set to the
# root of the sources; sets BUILD, the build directory.

BUILD=${BUILD:-$ROOT/build}

say() {
	printf '%s: %s\n' "$(basename -- "$0")" "$*"
}

fail() {
	say "$*" >&2
	exit 2
}

# --- what is missing ------------------------------------------------------------

has_command() {
	command -v "$1" >/dev/null 2>&1
}

has_header() {
	echo "#include <$1>" | ${CC:-cc} -E - >/dev/null 2>&1
}

# The Debian and Ubuntu packages that this machine still needs.
packages_missing() {
	has_command "${CC:-cc}" || echo gcc libc6-dev
	has_command ninja || echo ninja-build
	has_command meson || echo meson
	has_command pkg-config || echo pkg-config
	has_command python3 || echo python3
	has_command xz || echo xz-utils
	has_header stdio.h || echo libc6-dev
	has_header cmocka.h || echo libcmocka-dev
	has_header bsd/sys/tree.h || echo libbsd-dev
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif has_command sudo; then
		sudo "$@"
	else
		fail "cannot install $missing: not root, and there is no sudo"
	fi
}

# Installs packages, quietly. Reads their lists only when it must.
packages_install() {
	missing=$*
	has_command apt-get ||
		fail "please install: $missing (there is no apt-get to do it)"
	say "installing $missing"
	# shellcheck disable=SC2086 # a list of words
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
		--no-install-recommends $missing >/dev/null 2>&1 && return
	as_root apt-get update -qq || say "apt-get update failed, trying all the same"
	# shellcheck disable=SC2086
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
		--no-install-recommends $missing >/dev/null ||
		fail "could not install $missing"
}

tools_install() {
	wanted=$(packages_missing | tr ' ' '\n' | sort -u | tr '\n' ' ')
	# shellcheck disable=SC2086
	[ -z "$wanted" ] || packages_install $wanted
}

# Whether clang is here with libFuzzer, which Debian keeps in a package of its own.
has_fuzzer() {
	has_command clang && "$ROOT/tests/explore/fuzz/check-libfuzzer" clang
}

# The fuzzers are skipped where clang cannot be had.
fuzzer_install() {
	has_fuzzer && return
	has_command clang || (packages_install clang) || true
	has_fuzzer && return
	version=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
	[ -z "$version" ] || (packages_install "libclang-rt-$version-dev") || true
	has_fuzzer || say "no clang with libFuzzer here: the fuzzers will be skipped"
}

# --- CUDA -----------------------------------------------------------------------

cuda_usable() {
	printf '#include <cuda.h>\n#include <cuda_runtime_api.h>\n' |
		${CC:-cc} -isystem "$1/include" -fsyntax-only -x c - >/dev/null 2>&1
}

# NVIDIA's Python packages of headers, 5 MB unpacked, into $ROOT/build-cuda.
cuda_headers_fetch() {
	python3 -m pip --version >/dev/null 2>&1 || packages_install python3-pip
	mkdir -p "$ROOT/build-cuda"
	python3 -m pip download -q --no-deps -d "$ROOT/build-cuda" \
		'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' || return 1
	for wheel in "$ROOT"/build-cuda/*.whl; do
		python3 -m zipfile -e "$wheel" "$ROOT/build-cuda"
	done
}

# Sets CUDA to a directory whose include/ has the Toolkit's headers.
cuda_find() {
	own=$ROOT/build-cuda/nvidia/cu13
	for CUDA in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr "$own"; do
		[ -n "$CUDA" ] && cuda_usable "$CUDA" && return
	done
	say "no CUDA headers here, fetching them into build-cuda/"
	CUDA=$own
	cuda_headers_fetch && cuda_usable "$CUDA" && return
	say "that did not work, trying the package nvidia-cuda-dev"
	CUDA=/usr
	packages_install nvidia-cuda-dev
	cuda_usable "$CUDA" ||
		fail "no usable CUDA headers: install the CUDA Toolkit, or set CUDA_HOME"
}

# Whether there is a GPU that works: its name, or nothing.
gpu_name() {
	python3 - <<'PYTHON' 2>/dev/null || true
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
name = ctypes.create_string_buffer(100)
device = ctypes.c_int()
if not cuda.cuInit(0) and not cuda.cuDeviceGet(ctypes.byref(device), 0):
    if not cuda.cuDeviceGetName(name, 100, device):
        print(name.value.decode())
PYTHON
}

# --- building -------------------------------------------------------------------

build() {
	tools_install
	cuda_find
	if [ ! -f "$BUILD/build.ninja" ]; then
		say "setting up $BUILD"
		# Meson wants paths inside the sources to be relative.
		if ! meson setup "$BUILD" "$ROOT" "-Dcuda=${CUDA#"$ROOT"/}" >"$BUILD.log" 2>&1; then
			cat "$BUILD.log"
			fail "meson setup failed"
		fi
		rm -f "$BUILD.log"
	fi
	say "building in $BUILD"
	if ! ninja -C "$BUILD" >"$BUILD/build.log" 2>&1; then
		sed -n '/^FAILED/,$p' "$BUILD/build.log" | head -40
		fail "the build failed, see $BUILD/build.log"
	fi
}
