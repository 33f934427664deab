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

        if sys.argv[1:2] == ["train"]:  # it reads its options itself, which bring Flax and Optax
            return _commands.train(tuple(sys.argv[2:]))
        tyro.extras.subcommand_cli_from_dict(
            {
                "report": _commands.report,
                "encodings": _commands.encodings,
                "export": _commands.export,
                "count": _commands.count,
                "merge": _commands.merge,
                "audit": _commands.audit,
                "spectral": _commands.spectral,
                "extrapolate": _commands.extrapolate,
                "train": _commands.train,
            },
            prog="jaxpe",
            description="The geometry of positional encodings, measured on your corpus.",
        )
    except BrokenPipeError:  # the reader of a pipe, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (InputError, MissingExtraError, OSError) as error:
        print(f"jaxpe: {error}", file=sys.stderr)
        sys.exit(2)
    except FloatingPointError as error:  # training came to NaN: not the fault of the input
        print(f"jaxpe: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
