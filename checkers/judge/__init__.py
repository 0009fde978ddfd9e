"""The judge turns run folders into verdicts, as a Spark job. Begin with job.py.

  job.py             folders to verdicts; what happens when something fails
  many_runs.py       all runs of a call, and again half by half if that fails
  layout.py          decides which task gets what
  passes.py          both passes, in one task or over many; pieces.py: the data that travels between these;
                     far_files.py: files that only Spark's JVM can read
  preconditions.py   the results of the first pass: what is broken, the nemesis's acts, the counts
  runs.py            a run after the first pass; acts.py: the nemesis's acts, and those that the history may
                     not show
  run_tables.py      the driver's facts, and the SELECTs that make the laws' tables of them in each unit;
                     permissions.py: what faults and elections permit; which brokers were active
  reasons.py         what makes checks unknown, and what may be claimed about each partition
  examples.py        findings to counts and the few worst; blame.py: the line of the trace to blame
  verdicts.py        findings and reasons to a verdict; report.py: verdict.json
  failures.py        errors in the judge itself

It imports checkers.laws and checkers.read; neither imports it.
"""
