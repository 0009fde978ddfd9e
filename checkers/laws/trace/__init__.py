"""The laws of the trace: what brokers and the controller record, line by line, about each partition.

node_timeline.py makes `timeline`, cluster_views.py makes `views`, `moments` and `members`; every law of the
trace uses these. They are always there, empty if no run of the unit has a trace.

Lines of two nodes are *surely* in order if their times (ns) differ by more than the run's `clock_error`, and
*perhaps* in either order if they do not. A time is never outside +-2^61 (times beyond 73 years count as
equal), and a clock error is at most 2^62, so the one may be added to the other; any other number may be any
64-bit integer.

timeline: one row for each line of the trace that laws use, of a partition that run.json names: the brokers'
lines, and `elect` and `isr` of the controller; and one row for each partition of a broker that starts
(node_start), with an empty log, unless the partition's own start follows. "Before" means: by the same node,
of the same partition, with a lower seq.

    line              numbers the rows by (run, partition, node, seq), from 0
    run, partition, node, seq, event, epoch, leo, hw, role, offset, count, epochs, cut_from, cut_to, cause,
                      answer, isr, leader, partition_epoch, acks, follower: as in `trace`; of a node_start
                      leo 0, hw 0, epochs []
    time, clock_error above
    node_start        a start of the node itself, for this partition (alone)
    leads             only a leader writes this line
    ruling            only the controller writes this line
    last_hw, last_leo of the last line before that is no node_start; null: there is none
    log_known         since its last start the node has written a line about this log, or got a role
    found_empty       its last start or role is a node_start, and the next line of this log gives a role to an
                      empty one: the log has been empty since that start
    top_epoch         the highest epoch of its roles before
    led_epoch, led_hw of its last line before as leader
    ruled_isr, ruled_partition_epoch
                      of its last line before as controller
    epoch_start       where this line's epoch begins, if the node's last become_leader, this line's own
                      included, was in that epoch
    commits_from, commits_to
                      of a line that moves a leader's HW, or with which a leader begins: records below
                      commits_to are committed, newly from commits_from on; else null
    had_committed     the highest commits_to of the replica's lines up to this one; null: none. (An HW that
                      rested on an append which never reached the disk committed nothing.)
    fresh_from, fresh_to
                      the part of that range that this epoch wrote; both null: nothing
    inherited_from, inherited_to
                      the part that earlier epochs wrote; both null: nothing

recoveries: one row for each replica's own start (not a node_start) that finds less than its line before had.

    run, partition, node, seq, time, clock_error, leo
                      as in `timeline`
    clean             the stop before was orderly, as the line says; null: it does not say
    last_leo, last_time
                      of the line before
    max_leo_before    the highest LEO of the replica before any fall of its LEO earlier than this one; null:
                      it never fell before
    earlier_time      of the start before; null: there is none
    truncating        the process's last role was a follower's, and it had appended nothing since: it may have
                      been truncating its log to its leader's

views: one row for each line of the timeline at which a law needs the earlier lines of the other nodes: acks,
rulings, truncations, roles, and lines that commit. It shows what was surely before.

    line, run, partition, node, seq, time, clock_error, event, epoch, leo, ruling
                      as in timeline
    commits_to        as in timeline
    crowded           another node has a line so near that it may have come first
    committed         the highest commits_to by then, including those of the node's own lines up to this one,
                      however near they are; null: nothing
    leader_epoch, leader_hw
                      the highest epoch in which a leader had written a line, its highest HW
    opened_epoch, opened_start
                      the highest epoch that had begun, and where
    isr_epoch, isr    the controller's last line
    ruling_near       another line of the controller is so near that it may have come first

moments: one row for each cluster of lines (none of them surely apart from the one before) that ends crowded,
or in which a broker was unfenced: the state after all of its lines, until the next line of any node.

    line, run, partition, node, seq, time, clock_error
                      of the last line of the cluster, as in timeline
    ends              time of the next line, which is surely later; null: there is none
    committed, isr    the highest commits_to; the ISR in the controller's last line

members: one row for each replica that run.json assigns, for every row of views (moment false) and of moments
(moment true). The line's own node is there as it is after that line.

    run, partition, line, moment
                      which row of views or of moments
    node              the replica's
    leo               of its last line; null: it has none
    log_known, found_empty
                      of its last line; false: it has none; never null
    reach             it had no more: the same, or the highest LEO of its lines so far if one that is only
                      perhaps before makes its log longer
    appended_epoch, appended_to
                      the highest epoch in which it may have appended, by lines that are only perhaps before
                      as well, and where that append ends; null: in none
"""
