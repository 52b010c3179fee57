"""Whatever a client sends, the run goes on: generated attacks on paused turns of a real worker."""
