"""What a script or a notebook calls, as the command line does, and answers made from definitions and files."""
