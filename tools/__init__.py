"""What contributors run and `make` calls; each module's first line says what it makes or checks."""
