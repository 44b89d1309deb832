"""What a user did wrong, told in one line."""


class UserError(Exception):
    """A mistake in arguments, config or data.

    The message is one line: what is wrong, where (file, row, column, config key), and what to do.
    Commands print it without a traceback and exit with code 2.
    """
