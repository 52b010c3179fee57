"""What all tests share."""

from __future__ import annotations

import signal

# A shell that runs us in the background has SIGINT ignored, children inherit that, and Ctrl-C would end none of them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
