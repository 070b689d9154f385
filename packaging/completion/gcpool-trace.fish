# SPDX-License-Identifier: MIT
# Completion of gcpool-trace for fish.
complete -c gcpool-trace -n '__fish_is_nth_token 1' -a summary -d 'what happened, in words'
complete -c gcpool-trace -n '__fish_is_nth_token 1' -a snapshot -d 'a memory snapshot of PyTorch'
complete -c gcpool-trace -n '__fish_is_nth_token 1' -a html -d 'a report in one file for a browser'
complete -c gcpool-trace -n '__fish_is_nth_token 1' -a compare -d 'what makes the difference of the peak'
complete -c gcpool-trace -n '__fish_is_nth_token 1' -a events -d 'every event as a line'
complete -c gcpool-trace -n '__fish_is_nth_token 1' -a replay -d 'allocations for the replay benchmark'
complete -c gcpool-trace -l at -x -a 'peak end' -d 'moment of a snapshot'
complete -c gcpool-trace -l top -x -d 'how many call sites'
complete -c gcpool-trace -l from -x -d 'first second of a report'
complete -c gcpool-trace -l to -x -d 'last second of a report'
complete -c gcpool-trace -s h -l help -d 'print help'
