"""Power cuts: from the recorded system calls of commands, the disks that a power cut may leave, and what is found on them."""
