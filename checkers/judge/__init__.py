"""The judge: from run folders to verdicts, as a Spark job. Begin with job.py.

job.py             folders to verdicts; what happens when something fails
bags.py            which runs are judged whole by one task, and which are cut up
whole_runs.py      a bag of whole runs in one task
two_passes.py      a big run over many tasks; pieces.py: what travels between them; far_files.py: files that
                   only Spark's JVM reaches
preconditions.py   what the first pass found: what is broken, what the nemesis did, how much there is
runs.py            a run once that is known; claim_gates.py, permissions.py, run_tables.py: what may be
                   claimed of it, what its faults permit, both as tables for the laws
reasons.py         what makes checks unknown; unread.py: faults that the history may not show
rulings.py         what the controller said; elections.py: unclean elections
examples.py        findings to counts and the few worst; blame.py: the line of the trace to blame
verdicts.py        findings and reasons to a verdict; report.py: verdict.json
failures.py        what went wrong in the judge itself

It imports checkers.laws and checkers.read, and these import nothing of it.
"""
