# SPDX-License-Identifier: MIT
# Completion of gcpool-compare for fish.
complete -c gcpool-compare -s n -l runs -x -d 'runs of each'
complete -c gcpool-compare -l json -r -d 'also write JSON'
complete -c gcpool-compare -l library -r -d 'this libgcpool.so'
complete -c gcpool-compare -l stdin -r -d 'what the program reads'
complete -c gcpool-compare -l output -d 'show the output of the first plain run'
complete -c gcpool-compare -s h -l help -d 'print help'
complete -c gcpool-compare -x -a '(__fish_complete_subcommand)'
