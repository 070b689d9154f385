# SPDX-License-Identifier: MIT
# Completion of gcpool for bash. The options of the library are those that the
# installed one prints.
# shellcheck shell=bash

_gcpool_variables() {
	gcpool --options 2>/dev/null | sed -n 's/^[* ] GCPOOL_\([A-Z0-9_]*\) .*/\1/p'
}

_gcpool() {
	local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} i
	local options="--stats --stats= --stats-file --off --as --handles --log --set --library
		--options --where --version --help"

	case ${COMP_WORDS[1]} in
	top | ctl)
		if [ "$COMP_CWORD" -gt 1 ]; then
			_gcpool_live "$current"
			return
		fi
		;;
	esac
	# The first word that is no option of ours is the program.
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		record) [ "$i" = 1 ] || { _gcpool_program "$i"; return; }
			options="$options -o --stacks --size" ;;
		--stats-file | --log | --set | --library | -o | --stacks | --size) ((i++)) ;;
		--stats)
			case ${COMP_WORDS[i + 1]} in
			text | json) ((i++)) ;;
			esac
			;;
		--) _gcpool_program $((i + 1)); return ;;
		-*) ;;
		*) _gcpool_program "$i"; return ;;
		esac
	done
	case $before in
	--log) mapfile -t COMPREPLY < <(compgen -W "off error warn info debug" -- "$current") ;;
	--set)
		compopt -o nospace
		mapfile -t COMPREPLY < <(compgen -S = -W "$(_gcpool_variables)" -- "$current")
		;;
	--library | --stats-file | -o) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
	*)
		case $current in
		-*) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current") ;;
		*) mapfile -t COMPREPLY < <(compgen -c -- "$current"; compgen -f -- "$current") ;;
		esac
		;;
	esac
}

# gcpool top, gcpool ctl: processes with a live view, and words.
_gcpool_live() {
	local page words="--once --json --prometheus --interval"

	[ "${COMP_WORDS[1]}" = top ] || words="trim quota stats snapshot sleep wake --to"
	for page in /dev/shm/gcpool."$(id -u)"/"$(stat -L -c %i /proc/self/ns/pid)".*[0-9]; do
		words="$words ${page##*.}"
	done
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$1"; compgen -f -- "$1")
}

# What follows is completed as if it stood alone.
_gcpool_program() {
	if declare -F _comp_command_offset >/dev/null; then
		_comp_command_offset "$1"
	elif declare -F _command_offset >/dev/null; then
		_command_offset "$1"
	else
		mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
	fi
}

complete -F _gcpool gcpool
