"""The judge turns run folders into verdicts, as a Spark job. Begin with job.py.

  job.py             folders to verdicts; what happens when something fails
  many_runs.py       all runs of a call, and again half by half if that fails
  layout.py          decides which task gets what
  passes.py          both passes, in one task or over many; pieces.py: the data that travels between these;
                     far_files.py: files that only Spark's JVM can read
  preconditions.py   the results of the first pass: what is broken, the nemesis's acts, the counts
  runs.py            a run after the first pass; permissions.py, run_tables.py: what its faults permit, as
                     tables for the laws; unread.py: faults that the history may not show
  reasons.py         what makes checks unknown, and what may be claimed about each partition
  rulings.py         the controller's decisions; elections.py: unclean elections
  examples.py        findings to counts and the few worst; blame.py: the line of the trace to blame
  verdicts.py        findings and reasons to a verdict; report.py: verdict.json
  failures.py        errors in the judge itself

It imports checkers.laws and checkers.read; neither imports it.
"""
