"""Names Kafka's error codes, as far as a client meets them."""

NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
NETWORK_EXCEPTION = 13
UNSUPPORTED_VERSION = 35
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75

_NAMES = {  # where kafka-python has an older name
    -1: "UNKNOWN_SERVER_ERROR", 6: "NOT_LEADER_OR_FOLLOWER", 10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
}


def name_of(code: int) -> str:
    """Kafka's name of the code, or its number."""
    from kafka.errors import kafka_errors  # imports all of kafka-python: half of floodmark's start

    known = str(kafka_errors[code].message) if code in kafka_errors else f"ERROR_{code}"
    return _NAMES.get(code, known)
