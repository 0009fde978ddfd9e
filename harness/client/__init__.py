"""How the system under test is reached: the client of record, which tries once and says what it knows."""
