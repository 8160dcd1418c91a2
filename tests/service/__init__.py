"""The whole service as its users see it: concurrent commands, recorded from outside and compared with the rules of registers."""
