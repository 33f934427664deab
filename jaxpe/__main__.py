"""`python -m jaxpe`, which is `jaxpe`."""

from jaxpe.cli.main import main

if __name__ == "__main__":
    main()
