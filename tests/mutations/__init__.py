"""`make mutations`: take each guard of a list out of the package and see which test fails."""
