# SPDX-License-Identifier: MIT
# Completion of gcpool for fish. The options of the library are those that the
# installed one prints.
function __gcpool_variables
    gcpool --options 2>/dev/null | string replace -rf '^[* ] GCPOOL_([A-Z0-9_]*) .*' '$1='
end

complete -c gcpool -l stats -d 'print statistics at the end'
complete -c gcpool -l stats-file -r -d 'append statistics to a file'
complete -c gcpool -l off -d 'plain CUDA'
complete -c gcpool -l as -x -d 'as on a device of that size'
complete -c gcpool -l handles -d 'pool handles of cuBLAS and others as well'
complete -c gcpool -l log -x -a 'off error warn info debug' -d 'what is said'
complete -c gcpool -l set -x -a '(__gcpool_variables)' -d 'set an option'
complete -c gcpool -l library -r -d 'this libgcpool.so'
complete -c gcpool -l options -d 'print all options and their values'
complete -c gcpool -l where -d 'print which library would be used'
complete -c gcpool -l version -d 'print the version of the library'
complete -c gcpool -s h -l help -d 'print help'
# Processes of this user with a live view.
function __gcpool_processes
    set -l pages /dev/shm/gcpool.(id -u)/(stat -L -c %i /proc/self/ns/pid).*
    string replace -r '.*\.' '' -- $pages
end

complete -c gcpool -n '__fish_is_nth_token 1' -a record -d 'run a program and write a report of its memory'
complete -c gcpool -n '__fish_seen_subcommand_from record' -s o -r -d 'the report'
complete -c gcpool -n '__fish_seen_subcommand_from record' -l stacks -x -d 'frames of call stacks'
complete -c gcpool -n '__fish_seen_subcommand_from record' -l size -x -d 'the recording grows to this'
complete -c gcpool -n '__fish_is_nth_token 1' -a top -d 'show processes that run with GCPOOL_LIVE=1'
complete -c gcpool -n '__fish_is_nth_token 1' -a ctl -d 'ask one of them for something'
complete -c gcpool -n '__fish_seen_subcommand_from top' -l once -d 'print once instead of filling the terminal'
complete -c gcpool -n '__fish_seen_subcommand_from top' -l json -d 'print once, as JSON'
complete -c gcpool -n '__fish_seen_subcommand_from top' -l prometheus -r -d 'write metrics there, again and again'
complete -c gcpool -n '__fish_seen_subcommand_from top' -l interval -x -d 'seconds between two looks'
complete -c gcpool -n '__fish_seen_subcommand_from top ctl; and __fish_is_nth_token 2' -x -a '(__gcpool_processes)'
complete -c gcpool -n '__fish_seen_subcommand_from ctl; and __fish_is_nth_token 3' -x -a 'trim quota stats snapshot sleep wake'
complete -c gcpool -n '__fish_seen_subcommand_from ctl' -l to -r -d 'sleep: into a file there'
complete -c gcpool -n '__fish_is_nth_token 1; or __fish_seen_subcommand_from -- record' -x \
    -a '(__fish_complete_subcommand)'
