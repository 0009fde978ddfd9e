"""Selects the brokers that were surely registered and not fenced at a line."""


def only_active(rows: str, *, latest: str = "tick", least: int = 4) -> str:
    """A SELECT of those rows of `rows` (run, who, tick, ...) whose `who` was surely registered and not fenced
    at some moment from `tick` to `latest` (an expression of their columns), in a time of at least `least`
    ticks. It was if the highest end of all the times that had begun by then is late enough: rows and times
    are sorted together, not compared pair by pair."""
    return f"""
        with asked as (
            select *, ({latest}) - 2 as begun_by from ({rows})
        ), times as (
            select run, node as who, since, max(until) over (partition by run, node order by since) as ended
            from active_brokers where until::hugeint - since >= {least}
        )
        select asked.* exclude (begun_by) from asked asof join times
            on asked.run = times.run and asked.who = times.who and asked.begun_by >= times.since
        where times.ended >= asked.tick + 2"""
