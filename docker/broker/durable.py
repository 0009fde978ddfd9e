"""The mapped side file. (being written; opened by files.Files, nobody else needs it)"""


class Durable:
    pass
