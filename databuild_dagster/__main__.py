"""`python -m databuild_dagster` is `databuild`."""

from databuild_dagster.cli.main import main

if __name__ == "__main__":
    main()
