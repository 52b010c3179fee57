"""What holds when processes die: real workers and a real server, killed; effects counted in a real database."""
