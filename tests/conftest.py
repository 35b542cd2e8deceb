"""Settings for all tests: how Hypothesis looks for counter-examples.

``ci``, the default, tries the same examples on every run, so a red test is red for everybody. Look further
with ``HEADGATE_HYPOTHESIS=explore``, and turn what it finds into an ``@example``.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HEADGATE_HYPOTHESIS", "ci"))
