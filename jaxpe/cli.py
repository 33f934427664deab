"""The command line `jaxpe`: finds the commands, and turns bad input into one line and exit 2."""

import os
import sys

from jaxpe._errors import InputError, MissingExtraError, require


def main() -> None:
    """Entry point of `jaxpe`."""
    try:
        tyro = require("tyro", extra="report")
        require("rich", extra="report")
        from jaxpe import _commands

        tyro.extras.subcommand_cli_from_dict(
            {
                "report": _commands.report,
                "encodings": _commands.encodings,
                "export": _commands.export,
            },
            prog="jaxpe",
            description="The geometry of positional encodings, measured on your corpus.",
        )
    except BrokenPipeError:  # the reader of a pipe, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (InputError, MissingExtraError, OSError) as error:
        print(f"jaxpe: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
