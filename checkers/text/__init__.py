"""What findings say to people: sentences, and the facts about Kafka behind them.

words.py          a finding in a paragraph; cycle_words.py: a cycle, edge by edge
blame_words.py    who is to blame for it
explain.py        what `floodmark explain NAME` says
semantics.py      what Kafka promises, what permits a finding, and what is often got wrong
"""
