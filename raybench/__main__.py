"""`python -m raybench`: how a Ray job starts the command line."""

from raybench.cli import main

if __name__ == "__main__":
    main()
