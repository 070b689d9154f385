# SPDX-License-Identifier: MIT
# Completion of gcpool-compare for bash.
# shellcheck shell=bash

_gcpool_compare() {
	local current=${COMP_WORDS[COMP_CWORD]}

	case $current in
	-*)
		mapfile -t COMPREPLY < <(compgen -W "--runs --json --library --stdin --output --help" -- "$current")
		;;
	*) mapfile -t COMPREPLY < <(compgen -c -- "$current"; compgen -f -- "$current") ;;
	esac
}

complete -F _gcpool_compare gcpool-compare
