"""Clients see nothing at or above the high watermark: read-above-hw, end-offset-ahead.

Why a correct broker is never accused. A leader answers a consumer with records below its HW, and an end
offset is that HW, or lower. The line that raised the HW was written before the answer left the process, so
its time is not later than the answer's arrival, except for the clock error: a line that may have come before
the op was over counts as before. Every line of a broker's replica has an HW; a follower's is an earlier one
of a leader. Where no line with an HW came before, nothing is claimed.

A finding is: of read-above-hw a record of a poll, of end-offset-ahead a partition of an answer.
"""

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.trace.node_timeline import near
from floodmark.checkers.laws.unit import Unit


def high_watermarks(unit: Unit) -> None:
    """Run both checks, and make `highest_hws`: when the highest HW of a partition rose."""
    unit.make("highest_hws", _HIGHEST_HWS)
    unit.make("polls_above_hw", _POLLS_ABOVE_HW)
    unit.find(finding_names.READ_ABOVE_HW, _READ_ABOVE_HW)
    unit.find(finding_names.END_OFFSET_AHEAD, _END_OFFSET_AHEAD)


_HIGHEST_HWS = """
    with by_time as (
        select run, partition, time, max(hw) as hw from timeline where not node_start group by all)
    select run, partition, time, max(hw) over (partition by run, partition order by time) as hw
    from by_time"""
_OF_PARTITION = f"""
    select o.* replace ({near("o.time")} + p.clock_error as time) from %s o
    join traced p using (run, partition)"""
_POLLS_ABOVE_HW = f"""
    with polled as (
        select run, partition, "at", any_value(time) as time, max("offset") as highest
        from reads group by run, partition, "at")
    select p.run, p.partition, p."at", h.hw from ({_OF_PARTITION % "polled"}) p
    asof join highest_hws h using (run, partition, time) where p.highest >= h.hw"""
_READ_ABOVE_HW = """
    select run, partition, "offset", value, process, [index] as ops, hw as seen
    from reads join polls_above_hw using (run, partition, "at") where "offset" >= hw"""
_END_OFFSET_AHEAD = f"""
    select e.run, e.partition, e."offset", e.process, [e.index] as ops, h.hw as seen
    from ({_OF_PARTITION % "ends"}) e asof join highest_hws h using (run, partition, time)
    where e.type = 'ok' and e."offset" > h.hw"""
