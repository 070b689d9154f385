# SPDX-License-Identifier: MIT
# Completion of gcpool-trace for bash.
# shellcheck shell=bash

_gcpool_trace() {
	local current=${COMP_WORDS[COMP_CWORD]} words=

	case $current in
	-*) words="--help --at --top --from --to" ;;
	*) [ "$COMP_CWORD" = 1 ] && words="summary snapshot html compare events replay" ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"; compgen -f -- "$current")
}

complete -F _gcpool_trace gcpool-trace
