# SPDX-License-Identifier: MIT
# Completion of gcpool for fish. The options of the library are those that the
# installed one prints.
function __gcpool_variables
    gcpool --options 2>/dev/null | string replace -rf '^[* ] GCPOOL_([A-Z0-9_]*) .*' '$1='
end

complete -c gcpool -l stats -d 'print statistics at the end'
complete -c gcpool -l stats-file -r -d 'append statistics to a file'
complete -c gcpool -l count -d 'plain CUDA, but count and time its calls'
complete -c gcpool -l off -d 'plain CUDA'
complete -c gcpool -l log -x -a 'off error warn info debug' -d 'what is said'
complete -c gcpool -l set -x -a '(__gcpool_variables)' -d 'set an option'
complete -c gcpool -l library -r -d 'this libgcpool.so'
complete -c gcpool -l options -d 'print all options and their values'
complete -c gcpool -l where -d 'print which library would be used'
complete -c gcpool -l version -d 'print the version of the library'
complete -c gcpool -s h -l help -d 'print help'
complete -c gcpool -n '__fish_is_nth_token 1; or __fish_seen_subcommand_from --' -x \
    -a '(__fish_complete_subcommand)'
