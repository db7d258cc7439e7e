"""The exception for input that a user can mend."""


class InputError(ValueError):
    """Something that the user gave is wrong: the text says where, what was found and what is needed.

    The command line turns it into one line on stderr and exit code 2.
    """
