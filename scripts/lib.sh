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

fail() { # CODE WORDS...
	code=$1
	shift
	say "$*" >&2
	exit "$code"
}

BUILD=${BUILD:-$ROOT/build}
TOOLS=$ROOT/build-meson # where Meson and Ninja are put if they are missing
case $BUILD in
/*) ;;
*) BUILD=$PWD/$BUILD ;;
esac
case $BUILD in
*[:\ ]*) fail 2 "the loader takes no path with a colon or a space, as '$BUILD': set BUILD" ;;
esac

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

# The Debian and Ubuntu packages that this machine still needs to build. Without them
# Meson, Ninja and CUDA's headers come from PyPI.
packages_missing() {
	has_command "$(compiler)" || echo gcc libc6-dev
	has_header stdio.h || echo libc6-dev
	has_command ninja || echo ninja-build
	has_command meson || echo meson
	has_command python3 || echo python3
	cuda_look || pip_is_there python3 || echo python3-pip
}

# Those without which whole suites are left out.
packages_for_suites() {
	has_header cmocka.h || echo libcmocka-dev
}

# Those that only some tests need, which are skipped without.
packages_for_tests() {
	packages_for_suites
	has_command git || echo git
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

# Fails where there is no sudo, or it wants a password.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

# Installs packages, or says in a line why not.
packages_install() { # PACKAGE...
	[ $# -gt 0 ] || return 0
	why=
	as_root true 2>/dev/null || why="not root, and no sudo without a password"
	has_command apt-get || why="there is no apt-get here"
	if [ -z "$why" ]; then
		say "installing $*"
		log=$(mktemp)
		# The lists may be missing, or older than the archive.
		as_root apt-get update -q >/dev/null 2>&1 || true
		progress "installing" "$log" as_root env DEBIAN_FRONTEND=noninteractive \
			apt-get install -q -y --no-install-recommends "$@" ||
			why=$(grep -m 1 '^E:' "$log" || echo "apt-get fails")
		rm -f "$log"
	fi
	[ -z "$why" ] || say "going on without $*: $why"
}

# Says how long all takes and installs what is missing, as far as that is possible: what
# the build needs, and the PACKAGEs, without which tests are skipped.
tools_install() { # TIME PACKAGE...
	say "$1, on two cores, once all is installed"
	shift
	# shellcheck disable=SC2046 # a list of words
	packages_install $(packages_missing | tr ' ' '\n' | sort -u)
	packages_install "$@"
	if ! has_command "$(compiler)" || ! has_header stdio.h; then
		fail $MISSING "no C compiler with its headers here: install gcc and libc6-dev, or set CC"
	fi
	has_command python3 || fail $MISSING "no Python here: install python3"
	meson_find
}

# --- what PyPI has ----------------------------------------------------------------

# Sets pip_python to a Python that has pip: this machine's, or that of a virtual environment.
pip_find() {
	for pip_python in python3 "$TOOLS/venv/bin/python3"; do
		! pip_is_there "$pip_python" || return 0
	done
	python3 -I -m venv "$TOOLS/venv" >/dev/null 2>&1 && return
	fail $MISSING "this Python has neither pip nor ensurepip, to fetch $1:" \
		"install python3-pip or python3-venv"
}

pip_is_there() { # PYTHON
	(cd / && "$1" -m pip --version) >/dev/null 2>&1
}

# Python finds modules in the current directory first, which may belong to another user.
pip_run() {
	(cd / && "$pip_python" -m pip --disable-pip-version-check "$@")
}

# Returns true if there is Ninja, and Meson of 0.59 or newer.
meson_will_do() {
	version=$(meson --version 2>/dev/null) && has_command ninja || return 1
	minor=${version#*.}
	[ "${version%%.*}" -gt 0 ] || [ "${minor%%.*}" -ge 59 ]
}

# Finds Meson and Ninja; where they are missing, or Meson is older (Debian 11), it fetches
# those of PyPI.
meson_find() {
	PATH=$TOOLS/bin:$PATH
	export PATH
	meson_will_do && return
	say "no Meson of 0.59 or newer with Ninja here: fetching them into $TOOLS (2 MB)"
	pip_find "Meson and Ninja"
	mkdir -p "$TOOLS"
	progress "fetching Meson and Ninja" "$TOOLS/log" \
		pip_run install --upgrade --target "$TOOLS" meson ninja || true
	# Python finds modules beside the file that a link leads to.
	printf '%s\n' '#!/usr/bin/env python3' 'import sys' \
		'from mesonbuild.mesonmain import main' 'sys.exit(main())' >"$TOOLS/meson.py"
	chmod +x "$TOOLS/meson.py"
	mkdir -p "$TOOLS/bin"
	ln -sf ../meson.py "$TOOLS/bin/meson"
	meson_will_do || fail $MISSING "no Meson of 0.59 or newer with Ninja, install them:" \
		"$(grep -m 1 ERROR "$TOOLS/log")"
}

# --- CUDA -----------------------------------------------------------------------

# Whether DIR/include has the Toolkit's headers, of 12.5 or newer.
cuda_usable() { # DIR
	version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/include/cuda.h" 2>/dev/null)
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
	progress "fetching CUDA's headers" "$ROOT/build-cuda/log" pip_run download \
		--no-deps -d "$ROOT/build-cuda" 'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' ||
		return 1
	for wheel in "$ROOT"/build-cuda/*.whl; do
		python3 -I -m zipfile -e "$wheel" "$ROOT/build-cuda"
	done
}

cuda_find() {
	cuda_look && return
	say "no CUDA headers here, complete and of 12.5 or newer: fetching them into build-cuda/ (5 MB)"
	pip_find "CUDA's headers"
	cuda_headers_fetch && cuda_look && return
	fail $MISSING "no CUDA headers, set CUDA_HOME to a CUDA Toolkit:" \
		"$(grep -m 1 -E 'ERROR|error' "$ROOT/build-cuda/log" 2>/dev/null)"
}

# Whether there is a GPU that works: its name, or nothing.
gpu_name() {
	python3 -I - <<'PYTHON' 2>/dev/null || true
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
	for tool in "$(compiler)" meson clang-format shellcheck gcovr git; do
		command -v "$tool" || echo "no $tool"
	done
	has_header cmocka.h && echo cmocka
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

# Those of the targets that there are: all at once, for one of them is a compiler that
# runs alone for 20 s.
compile_also() { # DIR TARGET...
	place=$1
	shift
	for target in "$@"; do
		shift
		! grep -q "^build $target:" "$place/build.ninja" || set -- "$@" "$target"
	done
	[ $# -eq 0 ] || compile "building the $(echo "$*" | sed 's/ /, the /g')" "$place" "$@"
}

build() { # OPTION...
	cuda_find
	configure "$BUILD" "$@"
	compile "building in $BUILD" "$BUILD"
}
