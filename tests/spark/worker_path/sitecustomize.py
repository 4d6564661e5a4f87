"""Imported by Spark's Python workers when they start.

Before each task, a worker calls `importlib.invalidate_caches`. In Python 3.11 this reads the names of all files of
Spark's archives again, 0.1 s for each task; later versions wait for the next import. No archive changes during a test.
"""

import sys
from zipimport import zipimporter

if sys.version_info < (3, 12):
    zipimporter.invalidate_caches = lambda self: None
