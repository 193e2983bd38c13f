"""`python -m brickscope` is the command `brickscope`."""

import os
import sys

from .command import CommandNotFound, find


def main() -> None:
    try:
        program = find()
    except CommandNotFound as error:
        sys.exit("brickscope: %s" % error)
    os.execv(program, [program] + sys.argv[1:])


if __name__ == "__main__":
    main()
