"""The texts of findings: words.ini has every sentence, and the facts about Kafka behind them.

  words.py          a finding as a paragraph; a cycle, edge by edge
  blame_words.py    the sentence about what is to blame
  explain.py        what `floodmark explain NAME` says of findings, facts, and what permits a finding
"""
