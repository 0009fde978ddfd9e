"""Selects the brokers that were surely registered and not fenced at a line."""


def only_active(rows: str, *, latest: str = "time") -> str:
    """A SELECT of those rows of `rows` (run, who, time, clock_error, ...) whose `who` was surely registered
    and not fenced at some moment from `time` to `latest` (an expression of their columns). It was if the
    highest end of all the times that had surely begun by then is surely later: rows and times are sorted
    together, not compared pair by pair."""
    return f"""
        with asked as (
            select *, ({latest}) - clock_error - 1 as since from ({rows})
        ), times as (
            select run, node as who, since, max(until) over (partition by run, node order by since) as ended
            from active_brokers
        )
        select asked.* exclude (since) from asked asof join times using (run, who, since)
        where times.ended > asked.time + asked.clock_error"""
