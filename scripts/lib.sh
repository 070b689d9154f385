# SPDX-License-Identifier: MIT
# shellcheck shell=sh
# lib.sh - what scripts/demo, scripts/test and scripts/trial share: installing what is
# missing, finding CUDA's headers and a GPU, building, and showing that something
# moves. Sourced with $ROOT set to the root of the sources; sets BUILD, the build
# directory. Exit codes of all three: 0 all is well, 1 something was found wrong,
# 2 a wrong argument, 3 something is missing and cannot be installed, 4 the build fails.

MISSING=3 BUILD_FAILS=4

say() {
	printf '%s: %s\n' "$(basename -- "$0")" "$*"
}

# The loader preloads nothing from a path with a colon or a space.
build_place() {
	BUILD=${BUILD:-$ROOT/build}
	case $BUILD in
	/*) ;;
	*) BUILD=$PWD/$BUILD ;;
	esac
	case $BUILD in
	*[:\ ]*)
		say "the loader takes no path with a colon or a space: not building in '$BUILD',"
		BUILD=${TMPDIR:-/tmp}/gcpool-build-$(id -u)-$(echo "$BUILD" | cksum | cut -d' ' -f1)
		say "but in $BUILD"
		;;
	esac
}
build_place

fail() { # CODE WORDS...
	code=$1
	shift
	say "$*" >&2
	exit "$code"
}

# Runs a command with its output in a file. On a terminal a line shows what it is at;
# else there is one line each 20 seconds, and one at the end.
progress() { # TITLE LOG COMMAND...
	title=$1 log=$2
	shift 2
	began=$(date +%s)
	progress_show "$title" "$log" "$began" &
	shower=$!
	trap 'kill $shower 2>/dev/null || true' EXIT
	code=0
	"$@" >"$log" 2>&1 || code=$?
	kill $shower 2>/dev/null || true
	wait $shower 2>/dev/null || true
	trap - EXIT
	[ ! -t 1 ] || printf '\r\033[K'
	say "$title: $(($(date +%s) - began)) s"
	return $code
}

progress_show() { # TITLE LOG BEGAN
	pause=20
	[ ! -t 1 ] || pause=1
	# What is behind a pipe of ours waits for no sleep that outlives us.
	while sleep $pause >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
		passed=$(($(date +%s) - $3))
		last=$(tail -n 1 "$2" 2>/dev/null | cut -c 1-50)
		if [ -t 1 ]; then
			printf '\r\033[K%s: %s s: %s' "$1" "$passed" "$last"
		else
			say "$1, $passed s so far: $last"
		fi
	done
}

# --- what is missing ------------------------------------------------------------

has_command() {
	command -v "$1" >/dev/null 2>&1
}

# Of CC="ccache gcc" the first word: a program that the path has.
compiler() {
	words=${CC:-cc}
	echo "${words%% *}"
}

has_header() {
	echo "#include <$1>" | ${CC:-cc} -E - >/dev/null 2>&1
}

# The Debian and Ubuntu packages that this machine still needs to build and to test.
packages_missing() {
	has_command "$(compiler)" || echo gcc libc6-dev
	has_command ninja || echo ninja-build
	has_command meson || echo meson
	has_command pkg-config || echo pkg-config
	has_command python3 || echo python3
	has_command xz || echo xz-utils
	has_header stdio.h || echo libc6-dev
	has_header cmocka.h || echo libcmocka-dev
	cuda_look || python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
}

# Those that only some tests need, which are skipped without.
packages_for_tests() {
	has_command git || echo git
	has_fuzzer || clang_packages
	has_command readelf || echo binutils
	has_command clang-format || echo clang-format
	has_command shellcheck || echo shellcheck
	has_command musl-gcc || echo musl-tools
	has_command valgrind || echo valgrind
}

# What shows the report of gcpool-trace, 100 MB: with --all only.
packages_for_browser() {
	has_command chromium || has_command google-chrome || echo chromium
}

# clang, and libFuzzer, which Debian keeps in a package of its own.
clang_packages() {
	clang=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
	[ -z "$clang" ] || for package in "libclang-rt-$clang-dev" "libclang-common-$clang-dev"; do
		apt-cache show "$package" >/dev/null 2>&1 && echo "$package" && break
	done
	echo clang
}

# Says what comes, before anything is done.
announce() { # TIME PACKAGE...
	say "$1, on two cores, once all is installed"
	shift
	if [ $# -gt 0 ]; then
		size=$(packages_size "$@")
		say "to be installed first: $* (${size:-their size is known when apt-get has its lists})"
	fi
}

can_be_root() {
	[ "$(id -u)" = 0 ] || has_command sudo
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

# "12 packages, 34 MB to fetch", as far as apt-get can tell.
packages_size() {
	LC_ALL=C apt-get install -qq -y --no-install-recommends --print-uris "$@" 2>/dev/null |
		awk '{ bytes += $3 }
			END { if (NR) printf "%d packages, %d MB to fetch", NR, bytes / 1e6 + 1 }'
}

# Installs packages. The first word says whether what follows can do without.
packages_install() { # needed|wanted PACKAGE...
	need=$1
	shift
	[ $# -gt 0 ] || return 0
	if ! has_command apt-get; then
		packages_lack "$need" "install by hand: $* (there is no apt-get here)"
		return 1
	fi
	if ! can_be_root; then
		packages_lack "$need" "cannot install $*: not root, and there is no sudo"
		return 1
	fi
	if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && sudo -v; }; then
		packages_lack "$need" "cannot install $*: sudo wants a password that is not given"
		return 1
	fi
	log=${TMPDIR:-/tmp}/gcpool-install.$$
	size=$(packages_size "$@")
	if [ -z "$size" ]; then
		progress "reading the lists of packages" "$log" as_root apt-get update -q ||
			say "apt-get update failed: $(grep -m 1 -E '^(E|Err|W):' "$log")"
		size=$(packages_size "$@")
	fi
	say "installing${size:+ $size}: $*"
	if ! packages_fetch "$log" "$@"; then
		# The lists may be older than the archive.
		as_root apt-get update -q >/dev/null 2>&1 || true
		if ! packages_fetch "$log" "$@"; then
			packages_lack "$need" "could not install $*: $(grep -m 1 '^E:' "$log")"
			rm -f "$log"
			return 1
		fi
	fi
	rm -f "$log"
}

packages_fetch() { # LOG PACKAGE...
	fetch_log=$1
	shift
	progress "installing" "$fetch_log" as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y --no-install-recommends "$@"
}

packages_lack() {
	if [ "$1" = needed ]; then
		fail $MISSING "$2"
	fi
	say "$2" >&2
}

words() {
	tr ' ' '\n' | sort -u | tr '\n' ' '
}

has_fuzzer() {
	has_command clang && "$ROOT/tests/explore/fuzz/check-libfuzzer" clang
}

# Tells how long all takes and installs what is missing: what the build needs, and the
# PACKAGEs, without which tests are skipped.
tools_install() { # TIME PACKAGE...
	needed=$(packages_missing | words)
	time=$1
	shift
	# shellcheck disable=SC2086 # lists of words
	announce "$time" $needed "$@"
	# shellcheck disable=SC2086
	packages_install needed $needed
	packages_install wanted "$@" || say "going on without: $*"
	meson_find
}

# Whether Meson is 0.59 or newer.
meson_will_do() {
	version=$(meson --version 2>/dev/null) || return 1
	minor=${version#*.}
	[ "${version%%.*}" -gt 0 ] || [ "${minor%%.*}" -ge 59 ]
}

# Where the packaged Meson is older (Debian 11), one of PyPI in build-meson/.
meson_find() {
	PATH=$ROOT/build-meson/bin:$PATH
	export PATH
	meson_will_do && return
	say "Meson $(meson --version) is too old, fetching a newer one into build-meson/ (2 MB)"
	python3 -c 'import ensurepip, venv' 2>/dev/null || packages_install needed python3-venv
	python3 -m venv "$ROOT/build-meson"
	progress "fetching Meson" "$ROOT/build-meson/log" \
		"$ROOT/build-meson/bin/python3" -m pip install meson || true
	meson_will_do ||
		fail $MISSING "no Meson of 0.59 or newer: $(grep -m 1 ERROR "$ROOT/build-meson/log")"
}

# --- CUDA -----------------------------------------------------------------------

cuda_version() { # DIR
	sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/include/cuda.h" 2>/dev/null || true
}

# Whether DIR/include has the Toolkit's headers, of 12.5 or newer.
cuda_usable() { # DIR
	version=$(cuda_version "$1")
	[ "${version:-0}" -ge 12050 ] && [ -f "$1/include/cuda_runtime_api.h" ] &&
		[ -f "$1/include/crt/host_config.h" ]
}

# Sets CUDA to a directory with usable headers, if there is one.
cuda_look() {
	for CUDA in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr \
		"$ROOT/build-cuda/nvidia/cu13"; do
		[ -n "$CUDA" ] && cuda_usable "$CUDA" && return
	done
	CUDA=
	return 1
}

# NVIDIA's Python packages of headers, 5 MB unpacked, into $ROOT/build-cuda.
cuda_headers_fetch() {
	mkdir -p "$ROOT/build-cuda"
	progress "fetching CUDA's headers" "$ROOT/build-cuda/log" python3 -m pip download \
		--no-deps -d "$ROOT/build-cuda" 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' ||
		return 1
	for wheel in "$ROOT"/build-cuda/*.whl; do
		python3 -m zipfile -e "$wheel" "$ROOT/build-cuda"
	done
}

cuda_find() {
	cuda_look && return
	old=
	for CUDA in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr; do
		[ -z "$CUDA" ] || old=${old:-$(cuda_version "$CUDA")}
	done
	if [ "${old:-0}" -ge 12050 ]; then
		say "the CUDA headers here, of $((old / 1000)).$((old % 1000 / 10)), are incomplete (no" \
			"cuda_runtime_api.h or crt/host_config.h): fetching them into build-cuda/ (5 MB)"
	elif [ -n "$old" ]; then
		say "the CUDA headers here are of $((old / 1000)).$((old % 1000 / 10)), 12.5 or newer" \
			"are needed: fetching them into build-cuda/ (5 MB)"
	else
		say "no CUDA headers here: fetching them into build-cuda/ (5 MB)"
	fi
	if ! python3 -m pip --version >/dev/null 2>&1; then
		packages_install needed python3-pip
	fi
	cuda_headers_fetch && cuda_look && return
	fail $MISSING "no CUDA headers, set CUDA_HOME to a CUDA Toolkit:" \
		"$(grep -m 1 -E 'ERROR|error' "$ROOT/build-cuda/log" 2>/dev/null)"
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

# What Meson has looked for: when one of these comes, it must look again.
tools_described() {
	echo "$CUDA"
	for tool in "$(compiler)" meson clang clang-format shellcheck gcovr git; do
		command -v "$tool" || echo "no $tool"
	done
	has_header cmocka.h && echo cmocka
	has_fuzzer && echo fuzzer
	echo "$@"
}

# Sets up DIR with the tests, also where it was set up without, or with less at hand.
configure() { # DIR OPTION...
	place=$1
	shift
	described=$(tools_described "$@")
	if [ -f "$place/build.ninja" ] && [ "$(cat "$place/tools" 2>/dev/null)" = "$described" ]; then
		return
	fi
	again=
	[ ! -f "$place/build.ninja" ] || again=--reconfigure
	log=$place.log
	# Meson wants paths inside the sources to be relative.
	# shellcheck disable=SC2086 # none or one word
	if ! progress "setting up $place" "$log" meson setup $again "$place" "$ROOT" -Dtests=true \
		"-Dcuda=${CUDA#"$ROOT"/}" "$@"; then
		grep -E 'ERROR|Meson version' "$log" || cat "$log"
		fail $BUILD_FAILS "meson setup failed, see $log"
	fi
	rm -f "$log"
	echo "$described" >"$place/tools"
}

compile() { # TITLE DIR TARGET...
	title=$1 place=$2
	shift 2
	if ! progress "$title" "$place/build.log" ninja -C "$place" "$@"; then
		sed -n '/^FAILED/,$p' "$place/build.log" | head -40
		fail $BUILD_FAILS "the build failed, see $place/build.log"
	fi
}

packages_for_aarch64() {
	has_command aarch64-linux-gnu-gcc || echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	has_command qemu-aarch64 || has_command qemu-aarch64-static || echo qemu-user
}

# One of the shares of the planted bugs, as 3/8 (tests/explore/mutants/mutants.py).
share_of() { # NUMBER
	echo "$(($1 % 8))/8"
}

# Whether Meson has a target of this name.
has_target() { # DIR NAME
	grep -q "^build $2:" "$1/build.ninja"
}

# Those of the targets that there are: all at once, for one of them is a compiler that
# runs alone for 20 s.
compile_also() { # DIR TARGET...
	place=$1
	shift
	for target in "$@"; do
		shift
		! has_target "$place" "$target" || set -- "$@" "$target"
	done
	[ $# -eq 0 ] || compile "building the $(echo "$*" | sed 's/ /, the /g')" "$place" "$@"
}

build() { # OPTION...
	cuda_find
	configure "$BUILD" "$@"
	compile "building in $BUILD" "$BUILD"
}
