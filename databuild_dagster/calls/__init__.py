"""What a script or a notebook calls: a function for each verb of the command line, which prints the same results."""
