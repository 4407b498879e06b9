"""What tests of several folders share, and tools and campaigns with them.

The helpers of `tests/NAME` are in `tests/support/NAME`; the data that they read stay in `tests/NAME`.
"""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
