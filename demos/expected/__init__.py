"""What whyrss must say of each program in demos/scenarios: one module per family of mysteries, run by demos/run."""
