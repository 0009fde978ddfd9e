"""The texts of findings: sentences, and the facts about Kafka behind them.

  words.py          a finding as a paragraph; cycle_words.py: a cycle, edge by edge
  blame_words.py    the sentence about what is to blame
  explain.py        the text of `floodmark explain NAME`
  semantics.py      what Kafka promises, what permits a finding, and common misunderstandings
"""
