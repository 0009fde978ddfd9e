"""The two core verdicts by DuckDB, for a measure: are acked writes in the leaders' logs at their offsets, and
do the replicas' logs agree offset by offset. Warm times of both, on the same files.

    make bench ARGS='--only duckdb --ops 1000000'
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import big
import orjson

Say = Callable[[str, Sequence[float], str], None]

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
_WARM = """
import sys, time
from pathlib import Path
from checkers.judge.job import SparkJudge
judge, times = SparkJudge(), []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    verdict, = judge.judge([Path(sys.argv[1])])
    times.append(time.perf_counter() - began)
assert verdict.valid is True, verdict
print(*times[1:])
from checkers.spark.session import leave
leave()
"""


def bench_duckdb(scratch: Path, sizes: Sequence[int], repeat: int, say: Say) -> None:
    """Warm times (all calls but a process's first) from JSON lines and from Parquet, and their ratios."""
    print("warm times on the same files: the judge, all checks; DuckDB, the two core ones", flush=True)
    for ops in sizes:
        folder = big.write(scratch / f"duck-{ops}", ops=ops)
        for form in ("jsonl", "parquet"):
            if form == "parquet":
                as_parquet(folder)
            ours, theirs = warm_judge(folder, repeat), warm_duckdb(folder, form, repeat)
            say(f"{ops:,} ops, {form}: floodmark", ours, "s")
            say(f"{ops:,} ops, {form}: DuckDB", theirs, "s")
            ratio = statistics.median(ours) / statistics.median(theirs)
            print(f"  {f'{ops:,} ops, {form}: ratio':<58}{ratio:>12,.3g}", flush=True)


def warm_judge(folder: Path, repeat: int) -> list[float]:
    ran = subprocess.run([sys.executable, "-c", _WARM, str(folder), str(repeat + 1)],
                         capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr[-2000:])
    return [float(word) for word in ran.stdout.split()]


def as_parquet(folder: Path) -> None:
    """The twins that a run and a judge leave."""
    from checkers.read.history_twin import keep
    from harness.dump_twin import write_twin

    for lines in (folder / "logs").glob("*.jsonl"):
        write_twin(lines)
    keep(folder / "history.jsonl")


def warm_duckdb(folder: Path, form: str, repeat: int) -> list[float]:
    import duckdb

    about = orjson.loads((folder / "run.json").read_bytes())
    database = duckdb.connect()
    database.execute('create table leaders ("partition" bigint, node varchar)')
    leads = [(int(key), told["leader"]) for key, told in about["leaders"].items()]
    database.executemany("insert into leaders values (?, ?)", leads)
    history, logs = _HISTORY.format(folder=folder), _LOGS.format(folder=folder)
    if form == "parquet":
        history, logs = f"'{folder}/history.parquet'", f"'{folder}/logs/*.parquet'"
    times = []
    for _ in range(repeat + 1):
        began_s = time.perf_counter()
        for query in (_LOST, _DIVERGED):
            found = database.execute(query.format(history=history, logs=logs)).fetchone()
            if found != (0,):
                raise SystemExit(f"DuckDB found {found} in a healthy run")
        times.append(time.perf_counter() - began_s)
    return times[1:]
