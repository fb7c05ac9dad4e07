"""The one exception that a person should read without a traceback."""


class Failure(Exception):
    """Something outside the code is missing or wrong. The message says what to do, in one or two lines."""
