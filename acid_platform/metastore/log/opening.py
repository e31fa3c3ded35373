"""stub"""


def open_log(where):
    raise NotImplementedError


def histories(where):
    raise NotImplementedError
