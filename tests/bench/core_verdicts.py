"""The two core verdicts by DuckDB alone: acked writes are in the leaders' logs, and the replicas' logs agree.

At their offsets, and offset by offset.

    python tests/bench/core_verdicts.py FOLDER json|parquet TIMES     the seconds of each time
"""

import sys
import time
from pathlib import Path

import duckdb
import orjson

_HISTORY = """read_json('{folder}/history.jsonl', format='newline_delimited', columns={{
    type: 'VARCHAR', f: 'VARCHAR',
    sends: 'STRUCT("partition" BIGINT, "value" BIGINT, "offset" BIGINT)[]'}})"""
_LOGS = """read_json('{folder}/logs/*.jsonl', format='newline_delimited', columns={{
    node: 'VARCHAR', "partition": 'BIGINT', "offset": 'BIGINT', epoch: 'BIGINT', "value": 'BIGINT',
    crc: 'BIGINT'}})"""
_LOST = """select count(*)
    from (select unnest(sends) as s from {history} where type = 'ok' and f = 'send') acked
    anti join (select * from {logs} join leaders using (node, "partition")) held
    on s."partition" = held."partition" and s."offset" = held."offset" and s."value" = held."value"
    where s."partition" in (select "partition" from leaders)"""
_DIVERGED = """select count(*) from (select "partition", "offset" from {logs}
    group by all having count(distinct (epoch, "value", crc)) > 1)"""


def times_of(folder: Path, form: str, times: int) -> list[float]:
    """The seconds of each time in which DuckDB answers both; it must find nothing, because the folder is
    healthy."""
    about = orjson.loads((folder / "run.json").read_bytes())
    database = duckdb.connect()
    database.execute('create table leaders ("partition" bigint, node varchar)')
    leads = [(int(key), leader["leader"]) for key, leader in about["leaders"].items()]
    database.executemany("insert into leaders values (?, ?)", leads)
    history, logs = _HISTORY.format(folder=folder), _LOGS.format(folder=folder)
    if form == "parquet":
        history, logs = f"'{folder}/history.parquet'", f"'{folder}/logs/*.parquet'"
    took_s = []
    for _ in range(times):
        began_s = time.perf_counter()
        for query in (_LOST, _DIVERGED):
            found = database.execute(query.format(history=history, logs=logs)).fetchone()
            if found != (0,):
                raise SystemExit(f"DuckDB found {found} in a healthy run")
        took_s.append(time.perf_counter() - began_s)
    return took_s


if __name__ == "__main__":
    print(*times_of(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
