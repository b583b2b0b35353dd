"""Imported before anything else: what is compiled is kept.

Where PYTHONDONTWRITEBYTECODE is set, every process of the bridge and every Python worker of Spark compiles
PySpark anew, and every process of pytest rewrites all of Hypothesis, which takes it a second.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
