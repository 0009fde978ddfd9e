"""The laws of the trace: what brokers and the controller say, line by line, of each partition.

node_timeline.py makes `timeline`, cluster_views.py makes `views`, `moments` and `members`; every law of the
trace asks these. All are there, empty, where no run of the unit has a trace.

A `tick` (bigint) is 2 * time where the clocks agree, else time div (clock_error + 1), toward zero. Lines of
two nodes are *surely* in order where their ticks are two apart, and *perhaps* in either order where they are
not. A tick never leaves +-2^62 (with exact clocks, times beyond 36 years are taken for equal), so a few
may be added to it; any other number may be any 64-bit integer.

timeline: one row a line of the trace that laws look at, of a partition that run.json names: those of brokers,
but `elect` and `isr` of the controller; and one row for each partition of a broker that starts (node_start),
with an empty log, unless the partition's own start follows. "Before" means: by the same node, of the same
partition, with a lower seq.

    line              numbers the rows by (run, partition, node, seq), from 0
    run, partition, node, seq, event, epoch, leo, hw, role, offset, count, epochs, cut_from, cut_to, why, isr,
                      leader, partition_epoch, acks, follower: as in `trace`; of a node_start leo
                      0, hw 0, epochs []
    tick              above
    node_start        a start of the whole node, for this partition (alone)
    leads             only a leader says this
    ruling            only the controller says this
    last_hw, last_leo of the last line before that is no node_start; null: there is none
    log_known         since its last start the node has spoken of this log, or has been given a role
    found_empty       its last start, or role, is a node_start, and the next line of this log gives a role to
                      an empty one: it has held nothing since that start
    top_epoch         the highest epoch of its roles before
    led_epoch, led_hw of its last line before as leader
    ruled_epoch, ruled_isr, ruled_partition_epoch
                      of its last line before as controller
    epoch_start       where this line's epoch begins, if the node's last become_leader, this line's own
                      included, was in that epoch
    commits_from, commits_to
                      of a line that moves a leader's HW, or with which a leader begins: what is below
                      commits_to is committed, newly from commits_from on; else null
    fresh_from, fresh_to
                      what of that this epoch wrote; both null: nothing
    inherited_from, inherited_to
                      what of that earlier epochs wrote; both null: nothing

recoveries: one row a replica's own start (not a node_start) that finds less than its line before had.

    run, partition, node, seq, tick, leo
                      as in `timeline`
    clean             the stop before was orderly, as the line says; null: it does not
    last_leo, last_tick
                      of the line before
    outgrown          the highest LEO of the replica before any fall of its LEO earlier than this one; null:
                      it never fell before
    earlier_tick      of the start before; null: there is none

views: one row a line of the timeline at which a law asks what the other nodes had said: acks, rulings,
truncations, roles, and whatever commits. It is what they had surely said before.

    line, run, partition, node, seq, tick, event, epoch, leo, ruling
                      as in timeline
    commits_to        as in timeline
    crowded           another node has a line so near that it may as well have come first
    committed         the highest commits_to by then, that of this line included; null: nothing
    committed_epoch   the highest epoch of a leader that had committed anything, this line aside
    leader_epoch, leader_hw
                      the highest epoch in which a leader had spoken, its highest HW
    opened_epoch, opened_start
                      the highest epoch that had begun, and where
    isr_epoch, isr    the controller's last word; of a ruling: the word before it

moments: one row a cluster of lines (none of them surely apart from the one before) that ends crowded,
or in which a broker was unfenced: what holds once all of its lines have come, until the next line of anybody.

    line, run, partition, node, seq, tick
                      of the last line of the cluster, as in timeline
    ends              tick of the next line, at least tick + 2; null: there is none
    committed, isr    the highest commits_to; the controller's last word

members: one row a replica that run.json assigns, for every row of views (moment false) and of moments (moment
true). The line's own node is there as that line leaves it.

    run, partition, line, moment
                      which row of views or of moments
    node              the replica's
    leo               of its last line; null: it has said nothing
    log_known, found_empty
                      of its last line; false: it has said nothing; never null
    appended_epoch, appended_to
                      the highest epoch in which it may have appended, by lines that are only perhaps before
                      as well, and where that append ends; null: in none
"""
