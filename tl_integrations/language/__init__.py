"""Write Python, get a config."""
