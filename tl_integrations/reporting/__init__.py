"""Turn records into something to look at."""
