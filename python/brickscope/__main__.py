"""`python -m brickscope` is the command `brickscope`."""

import os
import sys

from .command import CommandNotFound, find


def main() -> None:
    try:
        program = find()
    except CommandNotFound as error:
        sys.exit("brickscope: %s" % error)
    try:
        os.execv(program, [program] + sys.argv[1:])
    except OSError as error:
        # Such as a wheel's program for another machine.
        sys.exit("brickscope: %s can't be run: %s" % (program, error))


if __name__ == "__main__":
    main()
