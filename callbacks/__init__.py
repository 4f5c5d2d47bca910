"""Lightning adapters over the monitor and the config language."""
